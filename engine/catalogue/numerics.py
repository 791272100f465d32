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
        title="Captured steps",
        group="Numerics",
        default=True,
        applies="live",
        explains="Captures all calls of a step once, and from then on repeats them: on a GPU as a CUDA graph, on a "
        "processor as a tape of calls of Kvasir's native code. Without it Python calls every kernel of every layer for "
        "each token, and the device waits for it.",
        measure=Measure("tokens per second, and the share of steps that were captured", SPEED, (False, True)),
        helps="Decoding on a fast GPU, and small models, draft models and few chats at once on any device.",
        costs="Memory: about ten megabytes for each captured shape. Nothing in the text; captured steps are "
        "padded, for which PyTorch's products of 16-bit weights may round the last bits differently.",
        source=("engine/compute/runner/graphs.py", "engine/compute/native/tape.py"),
        also=("CUDA graphs", "graph capture"),
        reference="CUDA C++ Programming Guide, CUDA Graphs "
        "(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs)",
        relevant=Relevance(capabilities=("graphs",)),
    ),
)
