"""Log-probabilities of an answer's tokens, as OpenAI's interfaces tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from engine.doors.http.fields import BadField
from engine.protocol import Delta, TokenInfo
from engine.text.tokenizer import Tokenizer

MOST_TOP = 20
"""Alternatives to a token, as OpenAI and vLLM have it."""


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob] = []


class PlacedToken(NamedTuple):
    """A token with what of its text stands in the answer, and where that begins."""

    info: TokenInfo
    text: str
    offset: int


class TokenPlaces:
    """Where the tokens of one answer's content stand in it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._length = 0
        """Characters of the content so far."""
        self._end = 0
        """Where in it the last token ends."""

    def take(self, delta: Delta) -> list[PlacedToken]:
        """The tokens of a delta of content whose log-probabilities are told."""
        found: list[PlacedToken] = []
        end = self._length
        for token in delta.tokens:
            # A token begins where the last one ended, which lies in an earlier delta where a part of it was told there.
            begin, end = self._end, end + token.chars
            self._end = end
            if token.cut and end == begin:
                while found and found[-1].info.chars == 0 and self._tokenizer.id_to_bytes(found[-1].info.id):
                    found.pop()  # the first bytes of a character that was cut off
            elif token.logprob is not None:
                piece = self._tokenizer.piece(token.id)
                found.append(PlacedToken(token, piece[: len(piece) - token.cut], begin))
        self._length += len(delta.text)
        return found


def token_logprob(token: PlacedToken, tokenizer: Tokenizer, name: Callable[[int], str] | None = None) -> TokenLogprob:
    """The log-probability of a token, and those of the alternatives to it, under a ``name`` instead of their text."""

    def named(id: int, logprob: float) -> tuple[str, float, list[int]]:
        return (name or tokenizer.piece)(id), logprob, list(tokenizer.id_to_bytes(id))

    info, text, _ = token
    top = [TopLogprob(*named(id, value)) for id, value in info.top]
    own, logprob, data = named(info.id, info.logprob or 0.0)
    return TokenLogprob(text if name is None else own, logprob, list(text.encode()) if info.cut else data, top)


def check_top(field: str, wanted: int | None) -> None:
    """Raises BadField for more alternatives than are told."""
    if not 0 <= (wanted or 0) <= MOST_TOP:
        raise BadField(field, f"{field} is 0 to {MOST_TOP}: {wanted} is not.")
