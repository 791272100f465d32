"""Switches of arithmetic."""

from __future__ import annotations

from engine.catalogue.metrics import SPEED
from engine.catalogue.option import Option, Relevance
from engine.protocol import Measure, keys

NUMERICS = (
    Option(
        key=keys.BATCH_INVARIANT,
        title="Batch-invariant arithmetic",
        group="Numerics",
        default=False,
        applies="live",
        on_change="stop sharing",
        explains="Computes every row in the same order whatever else is in the batch, "
        "so that equal settings give equal text to the last token. "
        "It is slower; with it one can prove that a lossless switch changes nothing.",
        measure=Measure("tokens per second, and the first differing token of a comparison", SPEED, (True, False)),
        helps="Proving that two settings give the same text, and reproducing an answer exactly.",
        costs="Speed.",
        source=("engine/compute/attention/backends/batch_invariant.py", "engine/compute/layers/linear/tiled.py"),
        also=("deterministic arithmetic",),
        reference="He et al. 2025, Defeating nondeterminism in LLM inference "
        "(https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/)",
    ),
    Option(
        key=keys.CUDA_GRAPHS,
        title="CUDA graphs",
        group="Numerics",
        default=True,
        applies="live",
        explains="Captures all kernel launches of a step once, and from then on makes them by a single call. "
        "Without it Python launches every kernel of every layer for each token, and a fast GPU waits for it.",
        measure=Measure("tokens per second, and the share of steps that were captured", SPEED, (False, True)),
        helps="Decoding on a fast GPU, most of all with small models, a draft model or few chats at once.",
        costs="GPU memory: about ten megabytes for each captured shape. Nothing in the text; captured steps are "
        "padded, for which PyTorch's products of 16-bit weights may round the last bits differently.",
        source=("engine/compute/runner/graphs.py",),
        also=("graph capture", "CUDA graph"),
        reference="CUDA C++ Programming Guide, CUDA Graphs "
        "(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs)",
        relevant=Relevance(capabilities=("graphs",)),
    ),
)
