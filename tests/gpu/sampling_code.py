"""The machine code of sampling's kernels, looked at without a GPU.

    python tests/gpu/sampling_code.py [--sm 90 ...] [--vocabulary 128256]

As attention_code.py: nothing runs. Instructions are those of a whole program, for each of its warps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from engine.compute.native.triton_launch import gathering
from engine.compute.sampling import device
from tests.gpu.machine_code import TARGETS, Code, Launch, look

VOCABULARIES = (32000, 128256, 262208)


def launches(vocabulary: int, dtype: torch.dtype) -> dict[str, Launch]:
    """All that a step may launch, by a name: of the kernel, and whether a row is truncated."""
    with gathering() as found:
        device.rehearse(dtype, vocabulary, torch.device("meta"))
    return {
        f"{launch.kernel.fn.__name__}{', truncated' if launch.keywords.get('TRUNCATES') else ''}": Launch(
            launch.kernel, launch.args, launch.keywords
        )
        for launch in found
    }


def code_of(launch: Launch, sm: int) -> Code:
    return look(launch, sm, 32 * launch.keywords["num_warps"], "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sm", type=int, nargs="+", default=[75, *TARGETS])
    parser.add_argument("--vocabulary", type=int, nargs="+", default=list(VOCABULARIES))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    options = parser.parse_args()
    print("kernel              tokens   sm instructions warps  regs  shared spills")
    for vocabulary in options.vocabulary:
        for name, launch in launches(vocabulary, getattr(torch, options.dtype)).items():
            for sm in options.sm:
                code = code_of(launch, sm)
                print(f"{name:18} {vocabulary:7} {sm:4} {code.per_weight:12.0f} {launch.keywords['num_warps']:5} "
                      f"{code.registers:5} {code.shared:7} {code.spilled:6}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
