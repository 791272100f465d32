"""Models that Kvasir brings: some loaded once for all tests of this folder, others for those of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.library.paths import find_model
from engine.protocol import LoadOptions
from engine.services.client import EngineClient


def loaded(name: str, draft: str | None = None, **options: Any) -> Iterator[EngineClient]:
    """On the processor; with the draft that it brings, or another, "" for none."""
    known = find_model(name)
    with EngineClient() as client:
        client.load(known.path, known.draft if draft is None else draft, LoadOptions(device="cpu", **options))
        yield client


@pytest.fixture(scope="session")
def guide() -> Iterator[EngineClient]:
    yield from loaded("kvasir-guide")


@pytest.fixture(scope="session")
def needle() -> Iterator[EngineClient]:
    """The model that finds codes in a text."""
    yield from loaded("kvasir-needle")
