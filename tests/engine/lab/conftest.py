"""The bundled models, each loaded once for all tests of this folder; results are kept in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.bench.client import EngineClient
from engine.paths import find_model
from engine.protocol import LoadOptions


def loaded(name: str) -> Iterator[EngineClient]:
    known = find_model(name)
    with EngineClient() as client:
        client.load(known.path, known.draft, LoadOptions(device="cpu"))
        yield client


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def guide() -> Iterator[EngineClient]:
    yield from loaded("kvasir-guide")
