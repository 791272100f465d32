"""All that is said of the last token again, and how its proposer is made."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DRAFTING, DraftTechnique, Made, ProposerInputs
from engine.protocol import keys


def _make(target: ProposerInputs) -> Made:
    from tests.extending.again.proposer import Again

    return Made(Again(), "the last token")


TECHNIQUE = DraftTechnique(
    choice=Choice("again", "Last token again", explains="Drafts the last token again.", also=("echo",)),
    label="echo",
    noun="an echo",
    by="as an echo",
    color="teal",
    share=0.5,
    paper="Nobody 2026, Again (https://example.org/again)",
    uses=(*DRAFTING, keys.TREE_NODES),
    shows=(keys.DRAFT_LENGTH,),
    make=_make,
)
