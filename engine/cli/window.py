"""`kvasir` without a command: the window, which is a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from engine.installation import packaged, program

NO_DISPLAY = (
    "kvasir: There is no display for the window. "
    "Use `kvasir chat` in this terminal, or `kvasir serve` for other programs."
)


def has_display() -> bool:
    """Whether a window can open; on X11 and Wayland an environment variable says where."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def open_window() -> int:
    """Run the window until it is closed; its exit code. 2 without a display."""
    if not has_display():
        print(NO_DISPLAY, file=sys.stderr)
        return 2
    command = [str(program("kvasir-window"))] if packaged() else [sys.executable, "-m", "app"]
    if os.name == "posix":
        os.execv(command[0], command)
    try:
        return subprocess.call(command)
    except KeyboardInterrupt:
        return 130
