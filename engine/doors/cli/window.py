"""`kvasir` without a command: the window, which is a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence

from engine.base.installation import own_module, packaged, program, without_own_libraries
from engine.base.terminal import say

NO_DISPLAY = (
    "kvasir: There is no display for the window. "
    "Use `kvasir chat` in this terminal, or `kvasir serve` for other programs."
)


def has_display() -> bool:
    """Return True if a window can open; on X11 and Wayland an environment variable says where."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def model_in(arguments: Sequence[str], commands: Collection[str]) -> str:
    """The model to open in the window where the command line is nothing but its path or file:// URL; else "".

    A command of that name goes first. A GGUF file that is not there counts: the window says so.
    """
    if len(arguments) != 1 or arguments[0].startswith(("-", " ")) or arguments[0] in ("", *commands):
        return ""
    given = arguments[0]
    wanted = given.lower().startswith("file:") or given.lower().endswith(".gguf")
    return given if wanted or os.path.exists(given) else ""


def open_window(model: str = "", quick: bool = False) -> int:
    """Run the window until it is closed, with a model to open if one is given, or its ``quick`` chat; its exit code.
    2 without a display."""
    if not has_display():
        say(NO_DISPLAY, error=True)
        return 2
    command = [str(program("kvasir-window"))] if packaged() else own_module("app")
    command += [model] if model else []
    command += ["--quick"] if quick else []  # as app/start.py reads it
    variables = without_own_libraries(os.environ)  # the window's loader would take them for the user's
    if os.name == "posix":
        os.execve(command[0], command, variables)
    try:
        return subprocess.call(command, env=variables)
    except KeyboardInterrupt:
        return 130
