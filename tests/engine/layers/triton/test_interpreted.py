"""The cases that need Triton's interpreter, in a process of their own: it is chosen once, when Triton is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = sorted(Path(__file__).parent.glob("cases_*.py"))


def run(marks: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", marks, *map(str, CASES)]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_kernels_compute_what_the_definitions_say() -> None:
    pytest.importorskip("triton")
    run("not long")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_kernels_at_more_sizes() -> None:
    pytest.importorskip("triton")
    run("long")
