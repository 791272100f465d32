"""A part in a process of its own, which is stopped, with all that it started, after its time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.gpu.check import notes

PATIENCE = 5.0
"""Seconds in which a process that was stopped has to be gone: one that hangs in the driver may never be."""


def run_apart(arguments: Sequence[str], file: Path, part: str, limit: float) -> bool:
    """``python -m tests.gpu.check ARGUMENTS``, which writes ``file``; whether all of the part went well.

    What was measured when the process was stopped, or died, is noted there as an error.
    """
    process = subprocess.Popen([sys.executable, "-m", "tests.gpu.check", *arguments], start_new_session=True)
    reason = ""
    try:
        ended = process.wait(limit)
    except subprocess.TimeoutExpired:
        ended, reason = -1, f"stopped after {limit:.0f} seconds"
    finally:
        _stop(process)
    if ended not in (0, 1) or not file.is_file():  # it could not say what befell it
        content = notes.read(file) or {"part": part, "figures": {}, "errors": {}}
        measuring = content.get("measuring") or "the part"
        content["errors"][measuring] = reason or f"the process ended with {ended}"
        stopped = content.setdefault("stopped", {})
        stopped[measuring] = stopped.get(measuring, 0) + 1
        notes.write(file, content)
    return ended == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
