"""The part "tests": everything under tests/gpu, several at a time, with what failed written down as it fails."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.check.notes import Measures, Setting

HERE = Path(__file__).parents[1]
WORKERS = 12
"""Most of the time goes into compiling some hundred variants of kernels, each on one core."""
LINES = 12
"""Of each failure that are kept."""


class Listener:
    """A plugin of pytest's main process, to which its workers report."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the test once: by its call, or by what kept it from being called."""
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.failed:
            self._failed(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a failure too."""
        if report.failed:
            self.counts["failed"] += 1
            self._failed(report)

    def _failed(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Its last lines that pytest marks as the error, and the last lines of what it printed."""
        text = report.longreprtext.splitlines()
        marked = [line for line in text if line.startswith("E ")] or text
        self.failures.append({"test": report.nodeid, "lines": [line[:300] for line in marked[:LINES]]})

    def figure(self) -> dict[str, Any]:
        """What is known by now."""
        counts = {outcome: self.counts[outcome] for outcome in ("passed", "failed", "skipped")}
        return {**counts, "failures": list(self.failures)}


def measures(setting: Setting) -> Measures:
    """All tests; dry: a few of them, on the CPU."""
    if setting.dry:
        os.environ["KVASIR_TEST_DEVICE"] = "cpu"

    def run() -> Iterator[dict[str, Any]]:
        listener = Listener()
        yield listener.figure()
        chosen = [str(HERE / "test_cuda.py"), "-k", "noise"] if setting.dry else [str(HERE), "-n", str(WORKERS)]
        options = [
            "-c",
            str(HERE / "pytest.ini"),
            f"--rootdir={HERE.parents[1]}",
            "-q",
            "--tb=short",
            "-o",
            "timeout=150",
        ]
        code = pytest.main([*options, *chosen], plugins=[listener])
        yield {**listener.figure(), "exit": int(code)}
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"{listener.counts['failed']} of the tests failed (pytest ended with {int(code)})")

    yield "tests", run
