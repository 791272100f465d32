"""Switches of arithmetic."""

from __future__ import annotations

from engine.catalogue.metrics import SPEED
from engine.catalogue.option import Option, Relevance
from engine.protocol import Measure, NumberRange, keys

NUMERICS = (
    Option(
        key=keys.BATCH_INVARIANT,
        title="Batch invariance",
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
        also=("batch-invariant arithmetic", "deterministic arithmetic"),
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
        helps="Decoding on a fast GPU, and small models, mixtures of experts, models with states, draft models and few "
        "chats at once on any device.",
        costs="Memory: about ten megabytes for each captured shape. Nothing in the text; captured steps are "
        "padded, for which PyTorch's products of 16-bit weights may round the last bits differently.",
        source=(
            "engine/compute/runner/graphs.py",
            "engine/compute/runner/recorders.py",
            "engine/compute/native/tape.py",
        ),
        also=("CUDA graphs", "graph capture"),
        reference="CUDA C++ Programming Guide, CUDA Graphs "
        "(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs)",
        relevant=Relevance(capabilities=("graphs",)),
    ),
    Option(
        key=keys.EARLY_LAUNCH,
        title="Early launch",
        group="Numerics",
        default=False,
        applies="live",
        explains="Lets each kernel of a captured step start before the one before it has ended: it asks for the "
        "weights that it will need, and waits only before it reads what others write. "
        "Without it the GPU's memory idles between any two kernels; no GPU has measured yet what that costs.",
        measure=Measure("tokens per second, and whether the steps were captured so", SPEED, (False, True)),
        helps="Decoding one answer on a GPU with fast memory, where the time between kernels counts most.",
        costs="Kernels compiled once more, at the first step that is captured so. Nothing in the text: kernels compute "
        "the same. Each GPU tries it first, and steps are captured without it where that fails.",
        source=("engine/compute/native/early.py", "engine/compute/native/early_kernels.py"),
        also=("programmatic dependent launch", "PDL", "dependent launch"),
        reference="CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization "
        "(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#programmatic-dependent-launch-and-synchronization)",
        relevant=Relevance(capabilities=("graphs", "early launch")),
    ),
    Option(
        key=keys.FETCHED_AHEAD,
        title="L2 prefetch (MB)",
        group="Numerics",
        default=0,
        applies="live",
        explains="How much of the next kernel's weights a kernel has prefetched into the GPU's level-2 cache: "
        "attention while it waits, a product at its end. More than half of that cache would push out what was "
        "prefetched before.",
        measure=Measure("tokens per second", SPEED, (0, 8)),
        helps="Decoding with early launch, where a kernel finds no room to start early. Try 4 to 16.",
        costs="Memory traffic of its own where too much is prefetched. Nothing in the text.",
        source=("engine/compute/native/early_kernels.py", "engine/compute/native/triton_launch.py"),
        also=("L2 prefetch", "prefetch into L2"),
        range=NumberRange(minimum=0, maximum=32, zero_means="none"),
        relevant=Relevance(of=(keys.EARLY_LAUNCH, (True,)), capabilities=("graphs", "early launch")),
    ),
    Option(
        key=keys.RESIDENT,
        title="Resident products",
        group="Numerics",
        default=False,
        applies="reload",
        explains="Products of one to eight rows ask for several pieces of their 4-bit weights at once, so that fast "
        "memory never waits for a request. An experiment, which no GPU has measured yet: each kernel is compared with "
        "the one that it replaces at the load, and what it cannot serve keeps that one.",
        measure=Measure("tokens per second", SPEED, (False, True)),
        helps="Decoding for one to eight answers on a GPU with HBM, such as an H100 or H200.",
        costs="Seconds of the load, in which these kernels are compiled and tried. Products are added up in another "
        "order, so that the last of 16 bits may differ.",
        source=(
            "engine/compute/layers/linear/triton/resident.py",
            "engine/compute/layers/linear/triton/kernels/resident.py",
        ),
        also=("weight prefetch", "Gluon kernels", "persistent kernels"),
        reference="Frantar et al. 2024, MARLIN: mixed-precision auto-regressive parallel inference on large language "
        "models (arXiv 2408.11743)",
        relevant=Relevance(capabilities=("resident products",)),
    ),
)
