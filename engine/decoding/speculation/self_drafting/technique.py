"""Early exit and layer skipping: what the catalogue, the window and the command line say of them."""

from __future__ import annotations

from engine.catalogue import Choice, Option, Relevance
from engine.catalogue.metrics import PER_STEP
from engine.decoding.speculation.technique import DraftTechnique, Made, ProposerInputs
from engine.protocol import SPECULATION_GROUP, Measure, NumberRange, keys

_NEED = "several layers"


def _exit(target: ProposerInputs) -> Made | None:
    from engine.decoding.speculation.self_drafting.proposers import early_exit

    return early_exit(target)


def _skip(target: ProposerInputs) -> Made | None:
    from engine.decoding.speculation.self_drafting.proposers import layer_skipping

    return layer_skipping(target)


EARLY_EXIT = DraftTechnique(
    choice=Choice(
        "exit",
        "early exit",
        needs=(_NEED,),
        explains="The model's own first layers draft (LayerSkip); the check goes on from where they stopped.",
        also=("early exit", "LayerSkip"),
    ),
    missing={_NEED: "This model cannot draft with some of its layers: it has too few, or some carry states."},
    label="early exit",
    by="by the model's first layers (early exit)",
    color="violet",
    paper="Elhoushi et al. 2024, LayerSkip (arXiv 2404.16710)",
    options=(
        Option(
            key=keys.EXIT_LAYER,
            title="Exit after layer",
            group=SPECULATION_GROUP,
            default=0,
            range=NumberRange(0, 200, "auto"),
            scope="request",
            applies="next request",
            explains="How many of the model's layers draft under early exit. "
            "More layers draft better and cost more; auto takes what was found for this model, or a quarter of them.",
            measure=Measure("acceptance rate by draft position", PER_STEP, (1, 0), "speculation"),
            helps="Models trained for early exit, such as LayerSkip's and the bundled guide.",
            costs="Nothing in the text.",
            source=(
                "engine/decoding/speculation/self_drafting/proposers.py",
                "engine/decoding/speculation/proposers/layer_choice.py",
            ),
            reference="Elhoushi et al. 2024, LayerSkip (arXiv 2404.16710)",
            relevant=Relevance(of=(keys.SPECULATION, ("exit",))),
        ),
    ),
    shows=(keys.NGRAM_FIRST, keys.EXIT_LAYER, keys.ACCEPTANCE),
    make=_exit,
)
LAYER_SKIPPING = DraftTechnique(
    choice=Choice(
        "skip",
        "layer skipping",
        needs=(_NEED,),
        explains="The model drafts with some of its layers left out (Draft & Verify).",
        also=("layer skipping", "Draft & Verify"),
    ),
    label="layer skipping",
    by="by the model with layers left out (layer skipping)",
    color="violet",
    share=0.5,
    paper="Zhang et al. 2024, Draft & Verify (arXiv 2309.08168)",
    shows=(keys.NGRAM_FIRST, keys.ACCEPTANCE),
    make=_skip,
)
