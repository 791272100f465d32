"""The one way in which the server says that something cannot be served."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - an outcome that a person is told about
    """A message of a client cannot be served. ``code`` is for programs, the text for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
