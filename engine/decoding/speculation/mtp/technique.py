"""Layers for multi-token prediction: what the catalogue, the window and the command line say of them."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.speculation.technique import DRAFTING, DraftTechnique
from engine.protocol import keys

TECHNIQUE = DraftTechnique(
    choice=Choice(
        "mtp",
        "MTP layers",
        needs=("mtp layers",),
        explains="Layers for multi-token prediction that the checkpoint itself brings, as MiMo's and Qwen3.5's do.",
        also=("MTP", "multi-token prediction"),
    ),
    missing={"mtp layers": "This checkpoint has no layers for multi-token prediction (MTP)."},
    label="multi-token",
    noun="MTP layers",
    by="by the model's multi-token layers",
    color="mute",
    offer="multi-token layers of the model's own file",
    heads="own",
    uses=(*DRAFTING, keys.TREE_NODES),
    shows=(keys.NGRAM_FIRST,),
    files="engine.decoding.speculation.mtp.files",
)
