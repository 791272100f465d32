"""EAGLE heads: what the catalogue, the window and the command line say of them."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DRAFTING, DraftTechnique, HeadTraining
from engine.protocol import keys

TECHNIQUE = DraftTechnique(
    choice=Choice(
        "eagle",
        "EAGLE head",
        needs=("eagle head",),
        explains="One extra layer goes on from the model's hidden states, token by token.",
        also=("EAGLE", "EAGLE head"),
    ),
    missing={
        "eagle head": "This model has no EAGLE head: choose a file of one in the model menu, or make one with kvasir "
        "train-heads."
    },
    label="EAGLE",
    noun="an EAGLE head",
    by="by the EAGLE head",
    color="accent",
    share=0.5,
    paper="Li et al. 2024 and 2025, EAGLE 1 to 3 (arXiv 2401.15077, arXiv 2406.16858, arXiv 2503.01840)",
    heads="trained",
    training=HeadTraining("one that goes on"),
    uses=(*DRAFTING, keys.TREE_NODES),
    shows=(keys.NGRAM_FIRST, keys.TREE_NODES, keys.ACCEPTANCE),
    files="engine.decoding.speculation.eagle.files",
)
