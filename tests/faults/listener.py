"""A plugin for the pytest of a fault: it runs files in the order in which they are named, and writes each test that
begins and each that fails into the file that KVASIR_FAULT_REPORT names, a line of JSON each, so that what is known
outlives the process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest


def _write(**line: str) -> None:
    with open(os.environ["KVASIR_FAULT_REPORT"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """The nearest files come first, whatever the suite's own order."""
    yield
    place = {name.partition("::")[0]: at for at, name in reversed(list(enumerate(config.args)))}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(began=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write(failed=report.nodeid)
    elif report.when == "teardown":
        _write(ended=report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported."""
    if report.failed:
        _write(failed=report.nodeid)
