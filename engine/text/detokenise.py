"""Token by token to text, never half a character, at a cost that does not grow with the text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from engine.text.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_MOST_PENDING = 8
"""Ids after which text that still ends in U+FFFD is taken as truly broken (a character has at most four bytes)."""


_LEAD, _MOST_LEAD = 8, 12
"""Ids before a text that a window begins with, and where these begin within a character."""


class Detokeniser(Protocol):
    def push(self, token_id: int) -> str:
        """The text that this token completed."""


def detokeniser(tokenizer: Tokenizer, before: Sequence[int] | None = None) -> Detokeniser:
    """The detokeniser of one text. ``before``: the ids of the text that it continues, of which a leading space is part;
    None: it is a text of its own."""
    if tokenizer.rules is None:
        return WindowDetokeniser(tokenizer, before or ())
    return ByteDetokeniser(tokenizer, before is not None)


class ByteDetokeniser:
    """Feeds the bytes of each token to an incremental UTF-8 decoder.

    Equal to decoding all ids at once, but for an unfinished last character (left out here) and, with byte fallback, for
    runs of byte tokens that are no UTF-8 (the library then gives up the whole run, here only its broken part).
    """

    def __init__(self, tokenizer: Tokenizer, continues: bool = False) -> None:
        assert tokenizer.rules is not None
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = 0 if continues else tokenizer.rules.strip_leading
        self._strip_piece = tokenizer.rules.strip_first_piece and not continues

    def push(self, token_id: int) -> str:
        piece = self._tokenizer.id_to_bytes(token_id)
        if not piece and token_id in self._tokenizer.special_ids:
            return ""
        if self._strip_piece:
            piece = piece.replace(b" ", b"")
            self._strip_piece = False
        text = self._decoder.decode(piece)
        while self._strip and text:
            if text[0] != " ":
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text


class WindowDetokeniser:
    """Decodes a short window of ids with the library and takes what the newest id added.

    The window begins with the ids of the previous piece of text, because some decoders treat the first id differently;
    at first with the end of the text ``before``.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._before = self._end(before)
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        if token_id in self._tokenizer.special_ids:
            return ""
        self._pending.append(token_id)
        text = self._tokenizer.decode(self._before + self._pending)
        if text.endswith(_REPLACEMENT) and len(self._pending) < _MOST_PENDING:
            return ""
        seen = len(self._tokenizer.decode(self._before)) if self._before else 0
        self._before, self._pending = self._pending, []
        return text[seen:]

    def _end(self, before: Sequence[int]) -> list[int]:
        """The last ids with text, beginning with a whole character."""
        spoken = [id for id in before[-4 * _MOST_LEAD :] if id not in self._tokenizer.special_ids]
        ends = (spoken[-count:] for count in range(_LEAD, _MOST_LEAD))
        whole = (end for end in ends if not self._tokenizer.decode(end).startswith(_REPLACEMENT))
        return next(whole, spoken[-_LEAD:])
