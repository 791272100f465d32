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
        metric=SPEED,
        applies="live",
        on_change="stop sharing",
        explains="Computes every row in the same order whatever else is in the batch, "
        "so that equal settings give equal text to the last token. "
        "It is slower; with it one can prove that a lossless switch changes nothing.",
        shows="tokens per second, and the first differing token of a comparison",
        helps="Proving that two settings give the same text, and reproducing an answer exactly.",
        costs="Speed.",
        source=("engine/compute/attention/backends/batch_invariant.py", "engine/compute/layers/linear/tiled.py"),
        also=("deterministic arithmetic",),
        reference="He et al. 2025, Defeating nondeterminism in LLM inference "
        "(https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/)",
        compare=(True, False),
    ),
    Option(
        key=keys.CUDA_GRAPHS,
        title="CUDA graphs",
        group="Numerics",
        default=True,
        metric=SPEED,
        applies="live",
        explains="Captures all kernel launches of a step once, and from then on makes them by a single call. "
        "Without it Python launches every kernel of every layer for each token, and a fast GPU waits for it.",
        shows="tokens per second, and the share of steps that were captured",
        helps="Decoding on a fast GPU, most of all with small models, a draft model or few chats at once.",
        costs="GPU memory: about ten megabytes for each captured shape. Nothing in the text; captured steps are "
        "padded, for which PyTorch's products of 16-bit weights may round the last bits differently.",
        source=("engine/compute/runner/graphs.py",),
        also=("graph capture", "CUDA graph"),
        reference="CUDA C++ Programming Guide, CUDA Graphs "
        "(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs)",
        pointless_without=("graphs",),
        compare=(False, True),
    ),
    Option(
        key=keys.RESIDENT,
        title="Resident products",
        group="Numerics",
        default=False,
        metric=SPEED,
        applies="reload",
        explains="Products of one to eight rows ask for several pieces of their 4-bit weights at once, and for the "
        "next ones before these are used up, so that fast memory never waits for a request. An experiment, which no "
        "GPU has measured yet: each kernel is compared with the one that it replaces when a model is loaded, and what "
        "it cannot serve keeps that one.",
        shows="tokens per second",
        helps="Decoding for one to eight answers on a GPU with HBM, such as an H100 or H200, where several requests "
        "must be under way at all times. Cards with slower memory keep it at work without.",
        costs="Seconds of the load, in which these kernels are compiled and tried. Products are added up in another "
        "order, so that the last of 16 bits may differ.",
        source=(
            "engine/compute/layers/linear/triton/resident.py",
            "engine/compute/layers/linear/triton/kernels/resident.py",
        ),
        also=("weight prefetch", "Gluon kernels", "persistent kernels"),
        reference="Frantar et al. 2024, MARLIN: mixed-precision auto-regressive parallel inference on large language "
        "models (arXiv 2408.11743)",
        pointless_without=("resident products",),
        compare=(False, True),
    ),
)
