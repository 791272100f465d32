"""Line breaking of text, also of a pasted megabyte without a space."""

from __future__ import annotations

import re

from PySide6.QtGui import QTextOption

LONGEST_WORD = 5_000
_TOO_LONG = re.compile(rf"\S{{{LONGEST_WORD}}}")


def wrap_mode(text: str) -> QTextOption.WrapMode:
    """At words, else anywhere; but anywhere at once for text with an endless word (base64, a minified file).

    Qt looks for the word boundary again for every line of a word, which takes time with the square of its length: 90 s
    for a million characters.
    """
    modes = QTextOption.WrapMode
    return modes.WrapAnywhere if _TOO_LONG.search(text) else modes.WrapAtWordBoundaryOrAnywhere
