"""Standard input, output and error, made so that the commands need not ask what they are."""

from __future__ import annotations

import io
import os
import sys


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
