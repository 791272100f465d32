"""The bundled model, loaded once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.bench.client import EngineClient
from engine.paths import find_model
from engine.protocol import LoadOptions


def loaded(name: str) -> Iterator[EngineClient]:
    known = find_model(name)
    with EngineClient() as client:
        client.load(known.path, known.draft, LoadOptions(device="cpu"))
        yield client


@pytest.fixture(scope="session")
def guide() -> Iterator[EngineClient]:
    yield from loaded("kvasir-guide")
