"""The one way in which the server says that something cannot be served."""

from __future__ import annotations

from collections.abc import Mapping

MOST_SHOWN = 100
"""Characters of a client's text that a sentence repeats."""


class Refused(Exception):  # noqa: N818 - an outcome that a person is told about
    """A message of a client cannot be served. ``code`` and the ``figures`` are for programs, the text for people."""

    def __init__(self, code: str, message: str, figures: Mapping[str, int] = {}) -> None:
        super().__init__(message)
        self.code = code
        self.figures = figures


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """The text, or its beginning where it has more than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
