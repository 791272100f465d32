"""Medusa heads: what the catalogue, the window and the command line say of them."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DRAFTING, DraftTechnique, HeadTraining
from engine.protocol import keys

TECHNIQUE = DraftTechnique(
    choice=Choice(
        "medusa",
        "Medusa heads",
        needs=("medusa heads",),
        explains="Small heads next to the output layer each predict one further token from the same hidden state.",
        also=("Medusa", "Medusa heads"),
    ),
    missing={
        "medusa heads": "This model has no Medusa heads: choose a file of them in the model menu, or make them with "
        "kvasir train-heads."
    },
    label="Medusa",
    noun="Medusa heads",
    by="by the Medusa heads",
    color="accent",
    paper="Cai et al. 2024, Medusa (arXiv 2401.10774)",
    heads="trained",
    training=HeadTraining("heads side by side", several=True),
    uses=(*DRAFTING, keys.TREE_NODES),
    shows=(keys.NGRAM_FIRST, keys.TREE_NODES),
    files="engine.decoding.speculation.medusa.files",
)
