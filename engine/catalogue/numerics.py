"""Switches of arithmetic."""

from __future__ import annotations

from engine.catalogue.metrics import SPEED
from engine.catalogue.option import Option
from engine.protocol import keys

NUMERICS = (
    Option(
        key=keys.BATCH_INVARIANT,
        title="Batch-invariant arithmetic",
        group="Numerics",
        default=False,
        scope="engine",
        metric=SPEED,
        applies="live",
        on_change="stop sharing",
        exactness="lossless",
        explains="Computes every row in the same order whatever else is in the batch, "
        "so that equal settings give equal text to the last token. "
        "It is slower; with it one can prove that a lossless switch changes nothing.",
        shows="tokens per second, and the first differing token of a comparison",
        helps="Proving that two settings give the same text, and reproducing an answer exactly.",
        costs="Speed.",
        source=("engine/attention/backends/batch_invariant.py", "engine/layers/linear/tiled.py"),
        also=("deterministic arithmetic",),
        reference="He et al. 2025, Defeating nondeterminism in LLM inference "
        "(https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/)",
        compare=(True, False),
    ),
)
