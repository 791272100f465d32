"""Lines of text as editors, JSON lines and Markdown count them. Light: the window uses it too."""

from __future__ import annotations

import io


def split_lines(text: str, keepends: bool = False) -> list[str]:
    r"""``text`` split at \n, \r\n and \r alone.

    str.splitlines also splits at form feeds, U+0085, U+2028 and others, which stand inside of lines everywhere else.
    """
    found = io.StringIO(text, newline="").readlines()
    return found if keepends else [line.rstrip("\r\n") for line in found]
