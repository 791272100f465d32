"""Bytes of text that one token can stand for, told from the parts of a tokenizer without tokenising anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from tokenizers import pre_tokenizers

from engine.text.tokenizer_bounds import steps

_COMPOSED = 4
"""NFC makes one byte of three at most (U+212A is K, three Hangul letters are a syllable); one more to be sure."""


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False


class _Model(msgspec.Struct, frozen=True):
    type: str = ""
    byte_fallback: bool = False


class TokenizerParts(msgspec.Struct):
    """Parts of a tokenizer.json that are looked at; vocabulary and merges are passed over."""

    model: _Model = _Model()
    added_tokens: list[_AddedToken] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None


def longest(parts: TokenizerParts, vocabulary: Mapping[str, int]) -> int | None:
    """Bytes of text that one token of ``vocabulary``, added ones included, stands for at most.

    None where that has no bound: where unknown text becomes one token however long it is, or parts of it are dropped.
    """
    words, changes = steps(parts.pre_tokenizer, "pretokenizers"), steps(parts.normalizer, "normalizers")
    if parts.model.type != "BPE" or not _knows_all_bytes(vocabulary, parts.model.byte_fallback, words + changes):
        return None
    shrinks = [_shrinks(step) for step in changes]
    if any(map(_drops, words)) or None in shrinks or any(token.lstrip or token.rstrip for token in parts.added_tokens):
        return None
    factor = _COMPOSED if _COMPOSED in shrinks else 1
    return factor * max(len(token.encode()) for token in vocabulary)


def _knows_all_bytes(vocabulary: Mapping[str, int], fallback: bool, steps: list[dict[str, Any]]) -> bool:
    """Return True if no text is unknown: each byte is an entry of its own."""
    if fallback:
        return all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
    as_bytes = any(step.get("type") == "ByteLevel" for step in steps)
    return as_bytes and all(character in vocabulary for character in pre_tokenizers.ByteLevel.alphabet())


def _drops(step: dict[str, Any]) -> bool:
    """Return True if a step that takes a text apart into words may drop what stands between them."""
    known = step.get("type") in ("ByteLevel", "Digits", "Metaspace", "Split", "Punctuation")
    return not known or step.get("behavior") == "Removed"


def _shrinks(step: dict[str, Any]) -> int | None:
    """Maximum number of bytes of a text that a normaliser turns into one; None where that has no bound."""
    match step:
        case {"type": "NFC"}:
            return _COMPOSED
        case {"type": "Prepend" | "ByteLevel"}:
            return 1
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return 1 if len(new.encode()) >= len(old.encode()) else None
    return None
