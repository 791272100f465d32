"""Fingerprint of a GPU pack's test: the driver, the GPUs and Kvasir's version, read in about a millisecond."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from engine.base.drivers import ROOT, drivers_and_gpus


def fingerprint(root: Path = ROOT) -> str:
    """One line that changes with the driver, the GPUs or Kvasir. ``root``: where the system's files lie."""
    return "; ".join([f"kvasir {installed_version() or 'unknown'}", *drivers_and_gpus(root)])


def installed_version() -> str:
    """Kvasir's version by the name of its metadata's folder, for importlib.metadata is slow to import; "" if none."""
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):
                if match := re.fullmatch(r"kvasir-(.+)\.dist-info", name):
                    return match[1]
    return ""
