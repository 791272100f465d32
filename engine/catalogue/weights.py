"""Switches of how weights are held and multiplied with."""

from __future__ import annotations

from functools import partial

from engine.catalogue.metrics import SPEED, WEIGHT_BYTES
from engine.catalogue.option import Choice, Option
from engine.protocol import keys

_weights = partial(Option, group="Weights", scope="engine", applies="reload", exactness="lossless")
"""What the switches of weights share."""

WEIGHTS = (
    _weights(
        key=keys.WEIGHTS,
        title="Weights",
        default="packed",
        metric=WEIGHT_BYTES,
        explains="Keeps quantised weights of 2 to 8 bits packed and unpacks them inside the multiplication, "
        "so that far fewer bytes are read for each token. "
        "16-bit holds the same weights unpacked: the same numbers, more memory.",
        shows="memory of the weights, and bytes read per token",
        helps="Every quantised model (GPTQ, AWQ, NF4, GGUF and others): decoding waits for bytes.",
        costs="Nothing beyond what the quantisation of the file cost already.",
        source=(
            "engine/layers/linear/base.py",
            "engine/checkpoints/quantised/gptq.py",
            "engine/checkpoints/quantised/awq.py",
        ),
        also=("quantised weights", "4-bit weights"),
        reference="Frantar et al. 2022, GPTQ (arXiv 2210.17323); Lin et al. 2023, AWQ (arXiv 2306.00978); "
        "Dettmers et al. 2023, QLoRA: NF4 (arXiv 2305.14314)",
        choices=(
            Choice("packed", "packed", explains="As in the file: 2 to 8 bits a weight."),
            Choice("16bit", "16-bit", explains="Unpacked when the model is loaded: about four times a 4-bit model."),
        ),
        needs=("packed weights",),
        compare=("16bit", "packed"),
    ),
    _weights(
        key=keys.PACKED_KERNEL,
        title="4-bit matmul kernel",
        default="native",
        metric=SPEED,
        explains="Chooses the code that multiplies with packed weights. "
        "Kvasir's own, in C for processors and in Triton for GPUs, turns codes into numbers in a register, so that "
        "memory is read at nearly its full speed.",
        shows="tokens per second, and milliseconds of prefill",
        helps="Quantised models; the gain depends on the format and the machine.",
        costs="Nothing in the text; kernels may round the last bits differently.",
        source=("engine/layers/linear/native/int4.py", "engine/native/int4.c", "engine/layers/linear/triton/int4.py"),
        also=("packed-weight kernel",),
        choices=(
            Choice("native", "Kvasir", explains="Kvasir's own code."),
            Choice("torch", "PyTorch", explains="PyTorch's operators, where they can do the same work."),
        ),
        needs=("packed weights", "native kernel"),
        compare=("torch", "native"),
    ),
)
