"""What a program started, and which files it computes with, read from /proc of this machine."""

from __future__ import annotations

import re
import time
from pathlib import Path

POLL_S = 0.05


def family(pid: int) -> list[int]:
    """``pid`` and everything it started that still runs."""
    found = [pid]
    for parent in found:
        for listed in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, listed.read_text().split())
            except OSError:
                continue
    return found


def command(pid: int) -> list[str]:
    """Its command line; empty where it has ended."""
    try:
        return (Path(f"/proc/{pid}/cmdline")).read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def mapped(pid: int) -> set[str]:
    """The files that it has in its memory: its program and its libraries. Raises OSError where it has ended."""
    lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    fields = (re.split(r"\s+", line, maxsplit=5) for line in lines)
    return {parts[5] for parts in fields if len(parts) == 6 and parts[5].startswith("/")}


def wait_for_torch(pid: int, timeout: float, place: str = "", argument: str = "") -> tuple[int, set[str]]:
    """The process below ``pid`` that has torch's largest library in memory, and its files. ``place`` is in the path of
    that library, ``argument`` one of the command line, if given. Raises TimeoutError.
    """
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        for each in family(pid):
            try:
                files = mapped(each)
            except OSError:
                continue
            has_torch = any(file.endswith("/libtorch_cpu.so") and place in file for file in files)
            if has_torch and (not argument or argument in command(each)):
                return each, files
        time.sleep(POLL_S)
    raise TimeoutError(f"no process with torch within {timeout:.0f} s: {[command(each) for each in family(pid)]}")
