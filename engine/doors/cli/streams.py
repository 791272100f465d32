"""Standard input, output and error, and the folder, made so that the commands need not ask what they are."""

from __future__ import annotations

import io
import os
import sys

from engine.base.terminal import say


def prepare_streams() -> None:
    """Replace missing streams, let no letter that standard output lacks end a command, and use UTF-8 on Windows' pipes.

    There a pipe or a file would otherwise speak the code page of the country: a model's answer may hold letters that
    this lacks. A console is left alone; it takes any letter. Elsewhere too a terminal may lack letters, and the name of
    a file need not be text; where the language is C, Python would write it as it is and stop at any other letter.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif sys.platform == "win32" and isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8")
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors in ("strict", "surrogateescape"):
        out.reconfigure(errors="backslashreplace")


def leave_deleted_folder() -> None:
    """Go home from a working folder that is gone, in which libraries of others end the process (MKL's: "FATAL ERROR").

    Who looks on is told, since paths that do not begin at the top are now others.
    """
    try:
        os.getcwd()
    except OSError:
        home = os.path.expanduser("~")
        home = home if os.path.isdir(home) else os.path.abspath(os.sep)
        os.chdir(home)
        if sys.stderr.isatty():
            say(f"kvasir: The folder that this was started in is gone. Paths count from {home}.", error=True)
