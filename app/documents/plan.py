"""Which of a message's documents are sent whole, and how much room is left for passages of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.documents.records import Document
from engine.protocol import ChatMessage

ANSWER_SHARE, MOST_ANSWER = 0.25, 2048
"""Share of the context that is left for the answer, and its most tokens."""
LEAST_PASSAGES = 1000
"""Tokens that whole documents leave to passages of others, if half of the room is not less."""
MOST_PASSAGES = 6000
"""Tokens of passages: more of them answer no better, and take long to read."""
LEAST_ROOM = 60
"""Tokens below which there is no room for a passage."""
PASSAGE_SLACK = 0.8
"""Share of their room that passages are given: theirs are counted by the document's average."""
UNKNOWN_CONTEXT = 32_768
"""Tokens that another server's model is taken to read, which says nothing of that."""


class DocumentPlan(NamedTuple):
    """``whole``: for each document whether it is sent whole. ``passages``: tokens for those of each that is not.
    ``tokens``: of all that is sent of the documents."""

    whole: tuple[bool, ...]
    passages: int
    tokens: int


class DocumentCount(NamedTuple):
    """Tokens of a document, whether all of it will be sent, and else whether passages of it will."""

    tokens: int
    whole: bool
    passages: bool


def planned(context: int, base: int, tokens: Sequence[int]) -> DocumentPlan:
    """``base``: tokens of the prompt without the documents; ``tokens``: of each document."""
    room = max(0, context - base - answer_room(context))
    if sum(tokens) <= room:
        return DocumentPlan((True,) * len(tokens), 0, sum(tokens))
    kept = min(LEAST_PASSAGES, room // 2)
    whole, left = [False] * len(tokens), room - kept
    for place in sorted(range(len(tokens)), key=lambda place: tokens[place]):
        if tokens[place] > left:
            break
        whole[place] = True
        left -= tokens[place]
    others = whole.count(False)
    each = int(PASSAGE_SLACK * min(MOST_PASSAGES, left + kept)) // max(1, others)
    sent = sum(count for count, all_ in zip(tokens, whole, strict=True) if all_)
    return DocumentPlan(tuple(whole), each, sent + each * others)


def answer_room(context: int) -> int:
    return min(MOST_ANSWER, int(ANSWER_SHARE * context))


def estimated_prompt(messages: Sequence[ChatMessage]) -> int:
    """About how many tokens the messages have, where nobody counts them."""
    return sum(len(each.content) for each in messages) // 3


def estimated(document: Document) -> int:
    """About how many tokens the document has, where nobody counts them."""
    return len(document.text.encode("utf-8", "surrogatepass")) // 3 + 16
