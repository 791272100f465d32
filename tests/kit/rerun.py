"""Says of each case that failed by which command it runs alone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


def command(nodeid: str) -> str:
    """To be typed in the repository's root."""
    python = Path(sys.executable)
    shown = python.relative_to(_ROOT) if python.is_relative_to(_ROOT) else python
    return f"QT_QPA_PLATFORM=offscreen OMP_NUM_THREADS=1 {shown} -m pytest {shlex.quote(nodeid)}"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each case once, whether its set-up failed or itself."""
    stats = terminalreporter.stats
    names = dict.fromkeys(report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ()))
    if names:
        terminalreporter.section("each alone")
        for name in names:
            terminalreporter.line(command(name))
