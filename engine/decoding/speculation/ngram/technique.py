"""N-gram lookup: what the catalogue, the window and the command line say of it."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DraftTechnique, Made, ProposerInputs
from engine.protocol import keys


def _make(target: ProposerInputs) -> Made:
    from engine.decoding.speculation.ngram.proposer import NgramProposer

    return Made(NgramProposer(), "what followed the last few tokens before")


TECHNIQUE = DraftTechnique(
    choice=Choice(
        "ngram",
        "n-gram lookup",
        explains="Finds the last few tokens earlier in the text and drafts what followed them there. It needs "
        "no second model.",
        also=("n-gram lookup", "prompt lookup decoding"),
    ),
    label="n-gram",
    by="from what the text repeats (n-gram)",
    color="teal",
    paper="Saxena 2023, prompt lookup decoding (https://github.com/apoorvumang/prompt-lookup-decoding)",
    uses=(keys.NGRAM_CHATS, keys.DRAFT_LENGTH, keys.ACCEPTANCE),
    shows=(keys.DRAFT_LENGTH, keys.NGRAM_CHATS),
    make=_make,
)
