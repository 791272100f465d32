"""Cases that need Triton's interpreter, in a process of their own: it is chosen once, when Triton is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.kit import content

ROOT = Path(__file__).parents[2]


def run_cases(files: Iterable[Path], marks: str, request: pytest.FixtureRequest) -> None:
    """Passes where these cases pass. Cases that they skip as unchanged are counted in this run's own last lines."""
    pytest.importorskip("triton")
    options = ["-m", marks, *([] if content.skips(request.config) else ["--unchanged"])]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *options, *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    request.node.user_properties.append((content.REASON, content.skipped_in(done.stdout)))
