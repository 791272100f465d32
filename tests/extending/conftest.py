"""What a test registers is gone after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import catalogue
from engine.compute.layers.linear import choose
from engine.compute.models import registry
from engine.doors.http import dialects
from engine.formats.quantised import quantisation
from tests.extending.busy_engine import write_model


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    tables = [choose._PATHS, registry._MODULES, quantisation.FORMATS]
    lists = [catalogue.TECHNIQUES, dialects.DIALECTS]
    before, listed = [dict(table) for table in tables], [list(each) for each in lists]  # type: ignore[call-overload]
    yield
    for table, was in zip(tables, before, strict=True):
        table.clear()
        table.update(was)
    for each, items in zip(lists, listed, strict=True):
        each[:] = items  # type: ignore[assignment]
    catalogue.rebuild()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "small")
