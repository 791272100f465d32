"""The machine code of the Triton kernels of attention, looked at without a GPU.

    python tests/gpu/attention_code.py [--sm 90 ...] [--kernel TEXT] [--dtype bfloat16] [--text FOLDER]

As machine_code.py: nothing runs. The loop over keys, in instructions for each number of keys and values that it reads
(heads that share them included); packing kernels as a whole, for each number they write. At its memory's full speed an
H200 has 14 for a number of 16 bits, 7 for one of 8 and 4 for one of 4.5 (estimates, as there).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from engine.cache.stores.packed import Flush, PackedKV
from engine.compute.attention.interface import AttnSpec, NewRows
from engine.compute.attention.rotation import RotaryStep, TableRotaryStep
from engine.compute.attention.triton import (
    byte_kernels,
    kernels,
    launch,
    merge_kernels,
    merging,
    nibble_kernels,
    pack,
    pack_kernels,
    quest,
    quest_kernels,
    trial,
    wide_nibble_kernels,
)
from tests.gpu.machine_code import TARGETS, Code, Launch, jumped, look, recorded

META = torch.device("meta")
KERNELS = [
    (byte_kernels, "attend_bytes"),
    (nibble_kernels, "attend_nibbles"),
    (wide_nibble_kernels, "attend_wide_nibbles"),
    (kernels, "attend"),
    (kernels, "combine"),
    (quest_kernels, "page_scores"),
    (quest_kernels, "attend_pages"),
    (quest_kernels, "bound_pages"),
    (merge_kernels, "merge"),
    (pack_kernels, "write"),
    (pack_kernels, "flush_keys"),
    (pack_kernels, "flush_values"),
]
CAPPED = AttnSpec(0.1, window=4096, softcap=50.0)
BITS = {"kivi 4": (4, 4), "kivi 2": (2, 2)}


class Made(NamedTuple):
    """A launch, the elements that one turn of its loop handles (a program, where it has none), and what marks it."""

    launch: Launch
    turn: int
    marker: str


def arenas(kind: str, dtype: torch.dtype, widths: tuple[int, int]) -> PackedKV:
    generator = torch.Generator().manual_seed(1)
    batch = trial.batch_of([(60, 4)])
    name = kind.split()[0]
    return trial.on(trial.arenas(name, widths, BITS.get(kind, (4, 4)), batch, dtype, generator, 8), META)


def attention(
    kind: str, dtype: torch.dtype, widths: tuple[int, int] = (128, 128), per_kv: int = 4, rows: int = 1,
    tree: bool = False, context: int = 32000, spec: AttnSpec = AttnSpec(0.1), ranges: bool = False,
) -> Made:  # fmt: skip
    kv = arenas(kind, dtype, widths)
    batch = trial.batch_on(trial.batch_of([(context, rows)], tree), META)
    q = torch.empty(rows, per_kv * kv.kv_heads, widths[0], dtype=dtype, device=META)
    with recorded(KERNELS) as found:
        bound = torch.empty(rows, dtype=torch.int32, device=META) if ranges else None
        launch.attend(q, kv, spec, batch, 0, ranges, bound, bound)
    read = widths[0] if kind == "latent" else sum(widths)
    return Made(found[0], found[0].keywords["BN"] * read, "MMA")


def whole(kind: str, dtype: torch.dtype, widths: tuple[int, int] = (128, 128), context: int = 4000) -> Made:
    """One row, which attention rotates and writes, and whose last split merges."""
    kv = arenas(kind, dtype, widths)
    batch = trial.batch_on(trial.batch_of([(context, 1)]), META)
    qkv = torch.empty(1, 48, max(widths), dtype=dtype, device=META)
    q, k, v = qkv[..., : widths[0]].split((32, 8, 8), 1)
    numbers = torch.empty(1, dtype=torch.int64, device=META)
    rope = TableRotaryStep(torch.empty(4096, 2, widths[0], dtype=dtype, device=META), numbers)
    new = NewRows(k, v[..., : widths[1]], rope, numbers)
    with recorded(KERNELS) as found:
        launch.attend(q, kv, AttnSpec(0.1), batch, arrived=trial.arrivals(META), new=new)
    assert len(found) == 1
    return Made(found[0], found[0].keywords["BN"] * sum(widths), "MMA")


def combining(dtype: torch.dtype) -> Made:
    part = torch.empty(64, 1, 32, 128, device=META)
    out = torch.empty(1, 32, 128, dtype=dtype, device=META)
    with recorded(KERNELS) as found:
        launch.merge_parts(part, part[..., 0], out, part[0, ..., 0], 1)
    return Made(found[0], 64 * 128, "none")


def pages(dtype: torch.dtype, widths: tuple[int, int] = (128, 128), scores: bool = False) -> Made:
    kv = arenas("dense", dtype, widths)
    batch = trial.batch_on(trial.batch_of([(32000, 1)]), META)
    q = torch.empty(1, 32, widths[0], dtype=dtype, device=META)
    with recorded(KERNELS) as found:
        if scores:
            quest.page_scores(q, torch.empty(2000, 8, 2 * widths[0], dtype=dtype, device=META), batch)
            return Made(found[0], quest.SCORED_PAGES * 2 * widths[0], "none")
        chosen, limits = (torch.empty(shape, dtype=kind, device=META) for shape, kind in
                          (((1, 32, 128), torch.int64), ((1,), torch.int32)))  # fmt: skip
        quest.attend_pages(q, kv, AttnSpec(0.1), batch, chosen, limits)
    return Made(found[0], quest.PAGES_AT_ONCE * 16 * sum(widths), "MUFU.EX2")


def writing(kind: str, dtype: torch.dtype, widths: tuple[int, int] = (128, 128)) -> Made:
    kv = arenas(kind, dtype, widths)
    q, k = (torch.empty(4, heads, widths[0], dtype=dtype, device=META) for heads in (32, 8))
    v, table = torch.empty(4, 8, widths[1], dtype=dtype, device=META), torch.empty(4, 1, widths[0], device=META)
    slots = torch.empty(4, dtype=torch.int64, device=META)
    with recorded(KERNELS) as found:
        pack.write(q, k, v, RotaryStep(table.to(dtype), table.to(dtype)), slots, kv)
    return Made(found[0], sum(widths), "none")


def flushing(bits: int, dtype: torch.dtype, keys: bool, width: int = 128) -> Made:
    kv = arenas(f"kivi {bits}", dtype, (width, width))
    kv = kv._replace(recent=arenas("dense", dtype, (width, width)))
    slots, numbers = (torch.empty(n, dtype=torch.int64, device=META) for n in (64, 4))
    with recorded(KERNELS) as found:
        pack.flush(kv, Flush(slots, numbers))
    return Made(found[0 if keys else 1], width * (32 if keys else 1), "none")


def bounding(dtype: torch.dtype, width: int = 128) -> Made:
    kv = arenas("dense", dtype, (width, width))._replace(
        bounds=torch.empty(100, 8, 2 * width, dtype=dtype, device=META)
    )
    with recorded(KERNELS) as found:
        quest.bound_pages(kv, torch.empty(4, dtype=torch.int64, device=META))
    return Made(found[0], 16 * width, "none")


def merged(dtype: torch.dtype, width: int = 128) -> Made:
    o, lse = torch.empty(4, 32, width, dtype=dtype, device=META), torch.empty(4, 32, device=META)
    with recorded(KERNELS) as found:
        merging.merge(o, lse, o, lse)
    return Made(found[0], 2 * width, "none")


CASES: dict[str, Callable[[torch.dtype], Made]] = {
    "decode dense": lambda dtype: attention("dense", dtype),
    "decode int8": lambda dtype: attention("int8", dtype),
    "decode int8 64": lambda dtype: attention("int8", dtype, (64, 64)),
    "decode int8 256": lambda dtype: attention("int8", dtype, (256, 256)),
    "decode int8 cap": lambda dtype: attention("int8", dtype, spec=CAPPED),
    "decode fp8": lambda dtype: attention("fp8", dtype),
    "decode int4": lambda dtype: attention("int4", dtype),
    "decode kivi 4": lambda dtype: attention("kivi 4", dtype),
    "decode kivi 2": lambda dtype: attention("kivi 2", dtype),
    "decode dense 64": lambda dtype: attention("dense", dtype, (64, 64)),
    "decode dense 96": lambda dtype: attention("dense", dtype, (96, 96)),
    "decode int4 96": lambda dtype: attention("int4", dtype, (96, 96)),
    "decode dense 256": lambda dtype: attention("dense", dtype, (256, 256)),
    "decode int4 64": lambda dtype: attention("int4", dtype, (64, 64)),
    "decode int4 256": lambda dtype: attention("int4", dtype, (256, 256)),
    "decode latent": lambda dtype: attention("latent", dtype, (576, 512), 16),
    "whole dense": lambda dtype: whole("dense", dtype),
    "whole dense 64": lambda dtype: whole("dense", dtype, (64, 64)),
    "whole dense 256": lambda dtype: whole("dense", dtype, (256, 256)),
    "whole int8": lambda dtype: whole("int8", dtype),
    "whole int8 64": lambda dtype: whole("int8", dtype, (64, 64)),
    "whole int8 256": lambda dtype: whole("int8", dtype, (256, 256)),
    "whole int8 96": lambda dtype: whole("int8", dtype, (96, 96)),
    "whole fp8": lambda dtype: whole("fp8", dtype),
    "whole int4": lambda dtype: whole("int4", dtype),
    "whole int4 64": lambda dtype: whole("int4", dtype, (64, 64)),
    "whole int4 256": lambda dtype: whole("int4", dtype, (256, 256)),
    "whole int4 96": lambda dtype: whole("int4", dtype, (96, 96)),
    "8 rows dense": lambda dtype: attention("dense", dtype, rows=8),
    "tree dense": lambda dtype: attention("dense", dtype, rows=8, tree=True),
    "tree, bounds, cap": lambda dtype: attention("dense", dtype, rows=8, tree=True, spec=CAPPED, ranges=True),
    "prompt, bounds, cap": lambda dtype: attention("dense", dtype, rows=512, spec=CAPPED, ranges=True),
    "merge": combining,
    "prompt dense": lambda dtype: attention("dense", dtype, rows=512),
    "prompt dense 256": lambda dtype: attention("dense", dtype, (256, 256), rows=512),
    "prompt int8": lambda dtype: attention("int8", dtype, rows=512),
    "prompt fp8": lambda dtype: attention("fp8", dtype, rows=512),
    "prompt int4": lambda dtype: attention("int4", dtype, rows=512),
    "prompt int4 96": lambda dtype: attention("int4", dtype, (96, 96), rows=512),
    "prompt kivi 4": lambda dtype: attention("kivi 4", dtype, rows=512),
    "prompt latent": lambda dtype: attention("latent", dtype, (576, 512), 16, rows=512),
    "quest scores": lambda dtype: pages(dtype, scores=True),
    "quest pages": lambda dtype: pages(dtype),
    "quest bounds": bounding,
    "merge two": merged,
    "write dense": lambda dtype: writing("dense", dtype),
    "write int8": lambda dtype: writing("int8", dtype),
    "write fp8": lambda dtype: writing("fp8", dtype),
    "write int4": lambda dtype: writing("int4", dtype),
    "write int4 96": lambda dtype: writing("int4", dtype, (96, 96)),
    "flush keys 4": lambda dtype: flushing(4, dtype, True),
    "flush keys 2": lambda dtype: flushing(2, dtype, True),
    "flush values 4": lambda dtype: flushing(4, dtype, False),
}


def code_of(case: str, dtype: torch.dtype, sm: int) -> Code:
    """Of kernels for a few rows without the masks, which are jumped over in all blocks before the new rows."""
    made = CASES[case](dtype)
    code = look(made.launch, sm, made.turn, made.marker)
    few = made.launch.kernel.__name__ in ("attend_bytes", "attend_nibbles", "attend_wide_nibbles")
    return code._replace(per_weight=code.per_weight * (1 - jumped(code))) if few else code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sm", type=int, nargs="+", default=list(TARGETS))
    parser.add_argument("--kernel", default="", help="only cases whose name contains this")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--text", type=Path, help="write the disassembly into this folder")
    parser.add_argument("--operations", action="store_true", help="list the loop's commonest instructions")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    print(f"{'case':20} {'sm':>4} {'instr/number':>12} {'regs':>5} {'shared':>7} {'spills':>6} {'wide':>5}")
    for case in [name for name in CASES if options.kernel in name]:
        for sm in options.sm:
            code = code_of(case, dtype, sm)
            print(f"{case:20} {sm:4} {code.per_weight:12.2f} {code.registers:5} {code.shared:7} {code.spilled:6} "
                  f"{code.wide:5}", flush=True)  # fmt: skip
            if options.operations:
                print("    " + ", ".join(f"{count} {name}" for name, count in code.operations.most_common(20)))
            if options.text:
                options.text.mkdir(parents=True, exist_ok=True)
                (options.text / f"{re.sub(r'[^a-z0-9]+', '_', case)}_sm{sm}.txt").write_text(code.text)


if __name__ == "__main__":
    main()
