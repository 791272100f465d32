"""The part "tests": everything under tests/gpu, several at a time, with what failed written down as it fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.check.notes import Measures, Setting

HERE = Path(__file__).parents[1]
WORKERS = 15
"""Most of the time goes into compiling some hundred variants of kernels, each on one core."""
TRIED_ANYWHERE = ("test_cuda.py",)
"""What a dry run tries, so that tests which only a GPU runs do not fall behind the code."""
MANY_VARIANTS = ("test_triton", "test_attention_kernels")
LINES, KEPT, TIMEOUT = 12, 100, 150
"""Lines of each failure that are kept; reports after which the counts are written; seconds of one test."""


class Listener:
    """A plugin of pytest's main process, to which its workers report. ``figure`` is what is known by now."""

    def __init__(self, keep: Callable[[], None]) -> None:
        self.figure: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": 0, "failures": []}
        self._keep, self._reports = keep, 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the test once: by its call, or by what kept it from being called."""
        self._reports += 1
        if report.when == "call" or report.outcome != "passed":
            self.figure[report.outcome] += 1
        if report.failed:
            self._failed(report)
        elif self._reports % KEPT == 0:
            self._keep()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a failure too."""
        if report.failed:
            self.figure["failed"] += 1
            self._failed(report)

    def _failed(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """The lines that pytest marks as the error, else the first ones."""
        text = report.longreprtext.splitlines()
        marked = [line for line in text if line.startswith("E ")] or text
        self.figure["failures"].append({"test": report.nodeid, "lines": [line[:300] for line in _ends(marked)]})
        self._keep()


class OneOfEach:
    """A plugin: of the tests with parameters, only the first case."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        first = {(item.path, getattr(item, "originalname", item.name)): item for item in reversed(items)}
        items[:] = [item for item in items if item in first.values()]


def _ends(lines: list[str]) -> list[str]:
    """The first lines and the last ones: a compiler says what is wrong at the end."""
    return lines if len(lines) <= LINES else [*lines[: LINES // 2], *lines[-LINES // 2 :]]


def files() -> list[Path]:
    """Those with the most variants of kernels last: what a limit cuts off is more of the same."""
    return sorted(HERE.glob("test_*.py"), key=lambda file: (file.stem in MANY_VARIANTS, file.name))


def measures(setting: Setting) -> Measures:
    """All tests; dry: a case of each in some files, on the CPU."""
    if setting.dry:
        os.environ["KVASIR_TEST_DEVICE"] = "cpu"

    def run() -> Iterator[dict[str, Any]]:
        listener = Listener(setting.keep)
        yield listener.figure
        chosen = (
            [str(HERE / name) for name in TRIED_ANYWHERE] if setting.dry else [*map(str, files()), "-n", str(WORKERS)]
        )
        options = ["-c", str(HERE / "pytest.ini"), f"--rootdir={HERE.parents[1]}", "-q", "--tb=short"]
        code = pytest.main(
            [*options, *chosen, "-o", f"timeout={TIMEOUT}"], plugins=[listener, *[OneOfEach()] * setting.dry]
        )
        yield {**listener.figure, "exit": int(code)}
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"{listener.figure['failed']} of the tests failed (pytest ended with {int(code)})")

    yield "tests", run
