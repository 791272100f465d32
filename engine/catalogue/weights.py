"""Switches of how weights are held and multiplied with."""

from __future__ import annotations

from functools import partial

from engine.catalogue.metrics import BYTES_READ, SPEED, WEIGHT_BYTES
from engine.catalogue.option import Choice, Option, Relevance
from engine.protocol import Measure, keys

_weights = partial(Option, group="Weights", applies="reload")
"""Fields that the switches of weights share."""

WEIGHTS = (
    _weights(
        key=keys.WEIGHTS,
        title="Weights",
        common=True,
        default="packed",
        explains="Keeps quantised weights of 2 to 8 bits packed and unpacks them inside the multiplication, "
        "so that far fewer bytes are read for each token. "
        "16-bit holds the same weights unpacked: the same numbers, more memory.",
        measure=Measure(
            "memory of the weights, and bytes read per token", WEIGHT_BYTES, ("16bit", "packed"), "weights"
        ),
        helps="Every quantised model (GPTQ, AWQ, NF4, GGUF and others): decoding waits for bytes.",
        costs="Nothing beyond what the quantisation of the file cost already.",
        source=(
            "engine/compute/layers/linear/base.py",
            "engine/formats/quantised/gptq.py",
            "engine/formats/quantised/awq.py",
        ),
        also=("quantised weights", "4-bit weights"),
        reference="Frantar et al. 2022, GPTQ (arXiv 2210.17323); Lin et al. 2023, AWQ (arXiv 2306.00978); "
        "Dettmers et al. 2023, QLoRA: NF4 (arXiv 2305.14314)",
        choices=(
            Choice("packed", "packed", explains="As in the file: 2 to 8 bits a weight."),
            Choice("16bit", "16-bit", explains="Unpacked when the model is loaded: about four times a 4-bit model."),
        ),
        needs=("packed weights",),
    ),
    _weights(
        key=keys.PACKED_KERNEL,
        title="4-bit matmul kernel",
        default="native",
        explains="Chooses the code that multiplies with packed weights. "
        "Kvasir's own, in C for processors and in Triton for GPUs, turns codes into numbers in a register, so that "
        "memory is read at nearly its full speed.",
        measure=Measure("tokens per second, and milliseconds of prefill", SPEED, ("torch", "native"), "weights"),
        helps="Quantised models; the gain depends on the format and the machine.",
        costs="Nothing in the text; kernels may round the last bits differently.",
        source=(
            "engine/compute/layers/linear/native.py",
            "engine/compute/native/products.c",
            "engine/compute/layers/linear/triton/int4.py",
        ),
        also=("packed-weight kernel",),
        choices=(
            Choice("native", "Kvasir", explains="Kvasir's own code."),
            Choice("torch", "PyTorch", explains="PyTorch's operators, where they can do the same work."),
        ),
        needs=("packed weights", "native kernel"),
    ),
    _weights(
        key=keys.ACTIVATIONS,
        title="Activations",
        default="auto",
        applies="live",
        on_change="stop sharing",
        exactness="approximate",
        explains="Quantises what meets packed weights in products on a processor, with a scale for every 32 numbers. "
        "Products are integers then, and the fewer bits they have, the more of them an instruction adds up.",
        measure=Measure(
            "tokens per second, and the divergence (KL) of a text's predictions", SPEED, ("32bit", "8bit"), "weights"
        ),
        helps="Quantised models on a processor, prompts most of all.",
        costs="Accuracy with 8 bits: little with the bundled model (KL 0.0005 to 0.0010 nats per token), more with a "
        "real one: 0.0030 for SmolLM2-135M in Q4_1, which then answered wrongly, and 0.0006 with 16 bits. See "
        "docs/measurements.md.",
        source=("engine/compute/native/products.c", "engine/compute/layers/linear/native.py"),
        also=("activation quantisation", "W4A8", "Q8_0 activations", "dynamic quantisation"),
        reference="Yao et al. 2022, ZeroQuant (arXiv 2206.01861)",
        choices=(
            Choice(
                "auto",
                "auto",
                explains="8-bit where that hardly changes the model's predictions; else 16-bit where the errors are "
                "largest, or for all: measured with the model at its first load, on a short conversation (KL of at "
                "most 0.001 nats per token).",
            ),
            Choice("8bit", "8-bit", explains="The fastest, and what llama.cpp does."),
            Choice("16bit", "16-bit", explains="More exact than bfloat16, and slower."),
            Choice("32bit", "32-bit", exactness="lossless", explains="As exact as float32, and slower still."),
        ),
        relevant=Relevance(capabilities=("quantised activations",)),
    ),
    _weights(
        key=keys.OUTPUT_HEAD,
        title="Output head",
        default="file",
        explains="The output head turns the last layer's result into a number for each token of the vocabulary, and "
        "most quantised files leave it in 16 bits: about 1 GB of an 8B model, read for every token. "
        "In 8 bits half of that is read, and the text may differ.",
        measure=Measure("bytes read per token, and tokens per second", BYTES_READ, ("file", "int8"), "weights"),
        helps="GPTQ, AWQ and 16-bit models with a large vocabulary, most of all small ones.",
        costs="A little accuracy: see docs/measurements.md. Where the head is the token table (tied embeddings) the "
        "8-bit one is held besides it, so that memory grows while fewer bytes are read.",
        source=("engine/compute/layers/linear/int8.py", "engine/formats/quantised/quantise.py"),
        also=("lm_head", "8-bit head", "logits layer"),
        reference="Dettmers et al. 2022, LLM.int8 (arXiv 2208.07339), without its outlier columns",
        choices=(
            Choice("file", "as in the file", explains="16 or 32 bits a weight, or as the file packs it."),
            Choice(
                "int8",
                "8-bit",
                exactness="approximate",
                explains="Quantised when the model is loaded: 8 bits a weight and a scale for each token of the "
                "vocabulary.",
            ),
        ),
        needs=("dense head", "native kernel"),
    ),
    _weights(
        key=keys.TOKEN_TABLE,
        title="Token table",
        default="file",
        explains="The token table has a row of numbers for every token of the vocabulary, and a step reads the rows of "
        "its tokens alone. Left in the model's file it takes no memory of the engine's: the system holds what was "
        "read for as long as nothing else wants the room.",
        measure=Measure("memory of the weights", WEIGHT_BYTES, ("memory", "file"), "weights"),
        helps="Models on a processor whose output head is not the token table: 1 GB less of an 8B in GPTQ or AWQ.",
        costs="Nothing in the text. Its disk must stay connected, and the file must not be written over, while the "
        "model is loaded: the engine would end. Deleting the file is harmless.",
        source=("engine/compute/layers/embedding.py", "engine/formats/mapped.py"),
        also=("embedding table", "memory-mapped embeddings", "mmap"),
        choices=(
            Choice("file", "file", explains="Mapped: read ahead where memory is free, else as tokens occur."),
            Choice("memory", "memory", explains="Read whole when the model is loaded."),
        ),
        needs=("table apart",),
    ),
)
