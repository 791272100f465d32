"""Why a file could not be fetched."""

from __future__ import annotations

from engine.errors import MOST, plain


class FetchFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """A file cannot be had; the message is a sentence for a person, and what it quotes of a server is plain text."""

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence, most=MOST))


class Refused(FetchFailed):
    """The server answered that it does not give the file; ``status`` is HTTP's."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status
