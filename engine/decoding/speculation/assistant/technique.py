"""Gemma 4's assistant: what the catalogue, the window and the command line say of it."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DraftTechnique
from engine.protocol import keys

TECHNIQUE = DraftTechnique(
    choice=Choice(
        "assistant",
        "Gemma 4 assistant",
        needs=("assistant",),
        explains="Gemma 4's small drafter, which reads the model's own keys and values and needs no cache.",
        also=("Gemma 4 assistant", "Gemma 4 MTP"),
    ),
    missing={"assistant": "No assistant of Gemma 4 was loaded with this model: choose its folder in the model menu."},
    label="assistant",
    noun="an assistant of Gemma 4",
    by="by the Gemma 4 assistant",
    color="good",
    share=0.5,
    offer="assistant",
    shows=(keys.DRAFT_LENGTH, keys.NGRAM_FIRST, keys.ACCEPTANCE),
    files="engine.decoding.speculation.assistant.files",
)
