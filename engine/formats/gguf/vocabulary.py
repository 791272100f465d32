"""The vocabulary of a GGUF file: tokens, what kind each is, and how pieces merge. Nothing in the file is trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.base.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""tokenizer.ggml.token_type."""
TOKENS = "tokenizer.ggml.tokens"
MAX_TOKENS = 1 << 19
"""Twice the largest vocabulary that is known."""
MAX_MERGES = 1 << 20
MAX_CHARACTERS = 1 << 23
"""Most characters of all tokens together; the largest vocabularies have two million."""
MAX_PIECE = 512
"""Characters of a piece that merges are derived for."""
_FILLER = re.compile(r"\[(PAD|EMPTY_)\d+\]")
_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def broken(what: str) -> CheckpointError:
    return CheckpointError(f"The GGUF file's tokenizer {what}; download the file again, or choose another one.")


def text(metadata: Mapping[str, Any], key: str, missing: str | None = None) -> str:
    """A text of the metadata. Without ``missing`` the key is required."""
    value = metadata.get(key, missing)
    if isinstance(value, str):
        return value
    raise broken(f"has no {key}" if value is None else f"has a {key} that is not text")


def flag(metadata: Mapping[str, Any], key: str, missing: bool) -> bool:
    value = metadata.get(key, missing)
    if value not in (False, True):  # 0 and 1 as well
        raise broken(f"has a {key} that is neither true nor false")
    return bool(value)


def _listed(metadata: Mapping[str, Any], key: str, most: int) -> list[Any] | None:
    value = metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise broken(f"has a {key} that is not a list")
    if len(value) > most:
        raise broken(f"has {len(value):,} entries in {key}, and at most {most:,} are read")
    return value


class Vocabulary(NamedTuple):
    """``ids`` maps every token to its place in ``tokens``; ``types`` is as long as ``tokens``."""

    tokens: list[str]
    types: list[int]
    ids: dict[str, int]

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Vocabulary:
        """Raises :class:`CheckpointError`."""
        found = _listed(metadata, TOKENS, MAX_TOKENS)
        if not found:
            raise broken(f"has no {TOKENS}")
        if not all(isinstance(token, str) for token in found):
            raise broken("has tokens that are not text")
        if sum(map(len, found)) > MAX_CHARACTERS:
            raise broken(f"has tokens of more than {MAX_CHARACTERS:,} characters together")
        # Some converters leave a token empty; llama.cpp gives it a name as well.
        tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(found)]
        ids = {token: index for index, token in enumerate(tokens)}
        if len(ids) < len(tokens):
            twice = next(token for index, token in enumerate(tokens) if ids[token] != index)
            raise broken(f"has the token {twice[:60]!r} twice")
        types = _listed(metadata, "tokenizer.ggml.token_type", MAX_TOKENS)
        if types is None:
            types = [NORMAL] * len(tokens)
        if len(types) != len(tokens) or not all(type(kind) is int for kind in types):
            raise broken(f"has {len(tokens):,} tokens and {len(types):,} types for them")
        return cls(tokens, types, ids)

    def declared(self, metadata: Mapping[str, Any], key: str) -> int | None:
        """The token that ``key`` names, or None without the key."""
        index = metadata.get(key)
        if index is None:
            return None
        if type(index) is not int:
            raise broken(f"has a {key} of {str(index)[:30]}")
        # Out of range it names none: some files have such values for tokens that they do not use.
        return index if 0 <= index < len(self.tokens) else None

    def is_control(self, token: str) -> bool:
        index = self.ids.get(token)
        return index is not None and self.types[index] == CONTROL

    def is_user_defined(self, index: int) -> bool:
        return self.types[index] == USER_DEFINED

    @property
    def pieces(self) -> dict[str, int]:
        """``ids`` without what only fills the table up, as converters pad it; another file may pad differently."""
        unused = {index for index, kind in enumerate(self.types) if kind == UNUSED}
        return {token: index for token, index in self.ids.items() if not (index in unused and _FILLER.fullmatch(token))}

    @property
    def has_bytes(self) -> bool:
        """True if every byte has a token of its own."""
        return self.ids.keys() >= _BYTES


def merges(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The listed merges, best first. Each is two tokens with a space between, which together are a token."""
    listed = _listed(metadata, "tokenizer.ggml.merges", MAX_MERGES)
    if listed is None:
        raise broken("has no tokenizer.ggml.merges")
    ids, found = vocabulary.ids, []
    for entry in listed:
        if not isinstance(entry, str):
            raise broken("has merges that are not text")
        left, _, right = entry[1:].partition(" ")  # a piece may itself be a space
        left = entry[:1] + left
        if left not in ids or right not in ids or left + right not in ids:
            raise broken(f"merges {entry[:60]!r}, which names no tokens")
        found.append((left, right))
    return found


def merges_by_score(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The merges that the tokens' scores imply, best first: every way to put a piece together from two pieces.

    SentencePiece merges the pair whose piece has the best score; of equal ones the leftmost, for which a longer left
    part stands in here (runs of one character are taken from the left).
    """
    scores = _listed(metadata, "tokenizer.ggml.scores", MAX_TOKENS)
    if scores is None or len(scores) != len(vocabulary.tokens):
        count = 0 if scores is None else len(scores)
        raise broken(f"has {len(vocabulary.tokens):,} tokens and {count:,} scores for them")
    if not all(isinstance(score, float | int) and score == score for score in scores):
        raise broken("has scores that are not numbers")
    mergeable = (NORMAL, USER_DEFINED)
    pieces = {token for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if kind in mergeable}
    order = sorted((-scores[index], index) for index, kind in enumerate(vocabulary.types) if kind in mergeable)
    found = []
    for _, index in order:
        piece = vocabulary.tokens[index]
        if len(piece) > MAX_PIECE:
            raise broken(f"has a token of {len(piece):,} characters")
        cuts = ((piece[:cut], piece[cut:]) for cut in range(len(piece) - 1, 0, -1))
        found += [(left, right) for left, right in cuts if left in pieces and right in pieces]
        if len(found) > MAX_MERGES:
            raise broken(f"implies more than {MAX_MERGES:,} merges")
    return found
