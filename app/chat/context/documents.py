"""What the next question will be sent of its documents, as far as is known before it is asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from app.chat.session.settling import folder_room
from app.documents.plan import LEAST_ROOM, DocumentCount, planned
from app.documents.records import Document


class NextDocuments(NamedTuple):
    """``counts``: of its own documents, and then of the folder's; None where the tokens are not known. ``searched``:
    those of which it will be sent passages. ``tokens``: what all of them add to the prompt that is counted, in which
    those in front stand already."""

    counts: list[DocumentCount | None]
    searched: list[Document]
    tokens: int


def next_documents(
    context: int,
    base: int,
    own: Sequence[Document | None],
    folder: Sequence[Document],
    known: Sequence[int | None],
    front: Collection[str],
    question: bool = True,
) -> NextDocuments:
    """``base``: tokens of the prompt that is counted which take room from documents. ``own``: None for one that is
    still read. ``known``: tokens of each, the folder's behind its own. ``front``: the digests of the folder's that
    stand in the prompt. ``question``: False for an answer in a person's words, which brings none of the folder's."""
    documents = [*own, *folder]
    sent = range(len(documents) if question else len(own))
    counts = {at: tokens for at, tokens in enumerate(known) if tokens is not None and at in sent}
    there = sum(counts[at] for at, each in enumerate(folder, len(own)) if at in counts and each.digest in front)
    base = max(0, base - there)  # they are decided anew with each question
    plan = planned(context, base, list(counts.values()))
    passages = plan.passages >= LEAST_ROOM
    whole = dict(zip(counts, plan.whole, strict=True))
    cut = [at for at, all_ in whole.items() if not all_]
    others = sum(at >= len(own) for at in cut)
    left = context - base - sum(counts[at] for at, all_ in whole.items() if all_)
    return NextDocuments(
        [None if each is None else DocumentCount(each, whole.get(at, True), passages) for at, each in enumerate(known)],
        [each for at in cut if passages and (each := documents[at]) is not None],
        plan.tokens - others * (plan.passages - folder_room(plan, left, context, others)) - there,
    )
