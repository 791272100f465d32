"""A draft model: what the catalogue, the window and the command line say of it."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DraftTechnique
from engine.protocol import keys

TECHNIQUE = DraftTechnique(
    choice=Choice(
        "draft",
        "draft model",
        needs=("draft model",),
        explains="A much smaller model with the same tokenizer drafts.",
        also=("draft model",),
    ),
    missing={"draft model": "Needs a draft model with the same tokenizer: choose one in the model menu."},
    label="draft model",
    by="by the draft model",
    color="good",
    shows=(keys.DRAFT_LENGTH, keys.NGRAM_FIRST, keys.ACCEPTANCE),
)
