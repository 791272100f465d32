"""Switches of how weights are held and multiplied with."""

from __future__ import annotations

from engine.catalogue.option import Choice, Option

WEIGHTS = (
    Option(
        key="weights",
        title="Weights",
        group="Weights",
        default="packed",
        scope="engine",
        applies="reload",
        exactness="lossless",
        explains="Keeps weights of 2 to 8 bits packed and unpacks them inside the multiplication, "
        "so that far fewer bytes are read for each token. "
        "16-bit holds the same weights unpacked: the same numbers, more memory.",
        shows="bytes read per token and memory of the weights",
        reference="Frantar et al. 2022, GPTQ (arXiv 2210.17323)",
        choices=(Choice("packed", "packed"), Choice("16bit", "16-bit")),
        needs=("packed weights",),
        compare=("16bit", "packed"),
    ),
    Option(
        key="packed_kernel",
        title="Packed-weight kernel",
        group="Weights",
        default="native",
        scope="engine",
        applies="reload",
        exactness="lossless",
        explains="Multiplies with packed weights in Kvasir's own code, written in C for processors and in Triton for "
        "GPUs: codes become numbers in a register, so that memory is read at nearly its full speed. "
        "PyTorch's operators do the same work where they can.",
        shows="tokens per second, and milliseconds to read a prompt",
        choices=(Choice("native", "Kvasir's"), Choice("torch", "PyTorch's")),
        needs=("packed weights", "native kernel"),
        compare=("torch", "native"),
    ),
)
