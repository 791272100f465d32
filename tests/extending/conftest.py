"""What a test registers is gone after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import catalogue
from engine.cache import policies
from engine.cache.stores import kinds
from engine.compute.layers.linear import choose
from engine.compute.models import arenas, registry
from engine.decoding.scheduling import policy
from engine.formats.quantised import quantise
from tests.extending.busy_engine import write_model


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    tables: list[dict[str, object]] = [
        policies.POLICIES, kinds.BITS, quantise.PACKERS, choose._PATHS, arenas.STORES,
        registry.OTHERS, policy.POLICIES,
    ]  # type: ignore[list-item]  # fmt: skip
    before, techniques = [dict(table) for table in tables], list(catalogue.TECHNIQUES)
    yield
    for table, was in zip(tables, before, strict=True):
        table.clear()
        table.update(was)
    catalogue.TECHNIQUES[:] = techniques
    catalogue.rebuild()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "small")
