"""All that is said of a table of followers, and how its proposer is made."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DRAFTING, DraftTechnique, Made, ProposerInputs
from engine.protocol import keys


def _make(target: ProposerInputs) -> Made:
    from tests.extending.bigram.proposer import Bigram

    return Made(Bigram(), "what followed each token")


TECHNIQUE = DraftTechnique(
    choice=Choice("bigram", "Last followers", explains="Drafts what followed each token last time."),
    label="bigrams",
    noun="a table of followers",
    by="from what followed each token",
    color="teal",
    share=0.5,
    paper="Luo et al. 2024, Token Recycling (arXiv 2408.08696)",
    uses=(*DRAFTING, keys.TREE_NODES),
    shows=(keys.DRAFT_LENGTH,),
    make=_make,
)
