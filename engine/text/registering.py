"""Tokens that the files next to tokenizer.json name and it does not register, so that no text would become them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec
import tokenizers
from tokenizers import AddedToken

from engine.text.longest import TokenizerParts
from engine.text.token_files import FLAGS, Mark
from engine.text.tokenizer_bounds import MAX_ENTRIES, check_added, growth_of

OWN = "tokenizer.json"


class Contradiction(ValueError):  # noqa: N818 - becomes a TokenizerError, which names the folder
    """Two files say different things of one token: the middle of a sentence that says which."""


def registered(inner: tokenizers.Tokenizer, marks: Iterable[Mark], rows: int | None = None) -> tokenizers.Tokenizer:
    """The tokenizer with every mark that is in its vocabulary, or whose number is free and below ``rows``.

    What another file says of a token that tokenizer.json registers goes over that, but it stays special. Raises
    :class:`Contradiction`, and :class:`engine.text.tokenizer_bounds.TooMuch` for too many or too long tokens.
    """
    found = _merged(marks)
    _agree(inner, found)
    least = min(rows or MAX_ENTRIES, MAX_ENTRIES)
    new = {
        mark.content: mark.id
        for mark in found.values()
        if mark.id is not None and mark.id < least and inner.token_to_id(mark.content) is None
    }
    there = {token.content: token for token in inner.get_added_tokens_decoder().values()}
    wanted = [mark for mark in found.values() if mark.content in new or _is_mark(inner, mark)]
    wanted.sort(key=lambda mark: new.get(mark.content, -1))
    tokens = [_token(mark, there.get(mark.content)) for mark in wanted]
    changed = [token for token in tokens if repr(token) != repr(there.get(token.content))]
    if not changed:
        return inner
    parts = msgspec.json.decode(inner.to_str().encode(), type=TokenizerParts)
    contents = [*there, *(token.content for token in changed)]
    check_added(contents, growth_of(parts.normalizer, parts.pre_tokenizer))
    inner = _with_entries(inner, new) if new else inner
    inner.add_tokens(changed)
    for content, number in new.items():
        if inner.token_to_id(content) != number:
            raise Contradiction(f"{found[content].file} gives {content[:60]!r} the number {number:,}, which cannot be")
    return inner


def _with_entries(inner: tokenizers.Tokenizer, new: Mapping[str, int]) -> tokenizers.Tokenizer:
    """The tokenizer with the tokens in its vocabulary; those that are added to it the library numbers in a row."""
    state = json.loads(inner.to_str())
    if not isinstance(state["model"]["vocab"], dict):
        return inner  # a list, which is numbered in a row as well
    state["model"]["vocab"] |= new
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def _merged(marks: Iterable[Mark]) -> dict[str, Mark]:
    """One mark a text: the first file that has them gives number and flags, and any makes it special."""
    found: dict[str, Mark] = {}
    for mark in marks:
        before = found.setdefault(mark.content, mark)
        if mark.id is not None and before.id is not None and before.id != mark.id:
            raise _numbers(mark.content, before.file, before.id, mark.file, mark.id)
        first = mark if before.id is None and mark.id is not None else before
        found[mark.content] = first._replace(special=before.special or mark.special, flags=before.flags or mark.flags)
    return found


def _agree(inner: tokenizers.Tokenizer, marks: Mapping[str, Mark]) -> None:
    """Raises :class:`Contradiction` where numbers are not tokenizer.json's, or two tokens have one number."""
    named: dict[int, Mark] = {}
    for mark in marks.values():
        if mark.id is None:
            continue
        number = inner.token_to_id(mark.content)
        if number is not None and number != mark.id:
            raise _numbers(mark.content, mark.file, mark.id, OWN, number)
        other = named.setdefault(mark.id, mark)
        text = inner.id_to_token(mark.id) if number is None else mark.content
        file, text = (OWN, text) if text is not None else (other.file, other.content)
        if text != mark.content:
            raise Contradiction(
                f"{mark.file} calls the token {mark.id:,} {mark.content[:60]!r}, and {file} {text[:60]!r}"
            )


def _numbers(content: str, file: str, number: int, other: str, its: int) -> Contradiction:
    return Contradiction(f"{file} gives the token {content[:60]!r} the number {number:,}, and {other} {its:,}")


def _is_mark(inner: tokenizers.Tokenizer, mark: Mark) -> bool:
    """Return True if a text of the vocabulary is to be found as a whole. Files name single letters ("!") to fill
    batches up, and these stay letters: as special tokens they would be cut out of every answer."""
    return inner.token_to_id(mark.content) is not None and (mark.id is not None or len(mark.content) > 1)


def _token(mark: Mark, before: AddedToken | None) -> AddedToken:
    special = mark.special or (before is not None and before.special)
    flags = {name: getattr(before, name) for name in FLAGS} if before is not None else {"normalized": not special}
    return AddedToken(mark.content, special=special, **(flags | dict(mark.flags)))
