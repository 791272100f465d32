"""How fast the Triton kernels of attention are on this machine's GPU, beside torch's, and whether they are right.

    python tests/gpu/bench_attention.py [--kinds TEXT ...] [--batches 1 8] [--rows 1 4 8] [--contexts 512 4096 32768]
                                        [--steps 64 256 1024 4096 16384] [--json FILE]

First every result is compared with the definition in float32. Then each figure: a CUDA graph of 20 calls over arenas
that rotate through more than the level-2 cache holds, the median of 10 replays, in microseconds a call; the bytes of
keys and values read in that time as GB/s, and as a share of what a read-only pass over 2 GB reaches here. 32 query
heads of 128 over 8 KV heads ("latent": 16 of 576 over 1). ``--steps``: contexts of steps of one row, each with its
rotation, writing and merge: as one kernel, as three, and of codes as one by the kernel for all kinds. Nothing is a
figure about a model. ``--dry-run`` checks the script on a CPU, in Triton's interpreter (TRITON_INTERPRET=1), in tiny
sizes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import PackedKV
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttnSpec, NewRows
from engine.compute.attention.rotation import RotaryStep
from engine.compute.attention.triton import few_rows, launch, pack, quest, trial
from engine.compute.batch import Batch
from tests.engine.compute.attention.triton import reference
from tests.gpu.bench_kernels import read_ceiling

KINDS = ("dense", "int8", "fp8", "int4", "kivi 4", "kivi 2", "latent")
BITS = {"kivi 4": (4, 4), "kivi 2": (2, 2)}
ROTATED, CALLS, REPLAYS = 512 << 20, 20, 10
MOST_COPIES = 64
STEP_COPIES = 512
"""The same of steps over few keys, which would all lie in the level-2 cache: a step has read a layer in between."""
STEP_KINDS = ("int4", "int8", "dense")
STEP_CONTEXTS = (64, 256, 1024, 4096, 16384)
WHOLE, GENERAL, APART = "one kernel", "one kernel for all kinds", "three kernels"
"""Forms of a step: of the kernel that serves, of `kernels.attend` where that is another one, and with the rotation and
the writing before and the merge after as kernels of their own."""
QUEST_PAGES = 128

Call = Callable[[], object]


class Figure(NamedTuple):
    """``error``: the largest difference from the definition, as a share of the largest value."""

    what: str
    batch: int
    rows: int
    context: int
    microseconds: float
    gigabytes_per_second: float
    share_of_read: float
    error: float


class Sizes(NamedTuple):
    heads: int
    kv_heads: int
    widths: tuple[int, int]


def sizes_of(kind: str, dry: bool) -> Sizes:
    if kind == "latent":
        return Sizes(4, 1, (40, 32)) if dry else Sizes(16, 1, (576, 512))
    return Sizes(4, 2, (32, 32)) if dry else Sizes(32, 8, (128, 128))


def tensors_of(kv: PackedKV) -> list[Tensor]:
    found = [kv.k] if kv.kind == "latent" else [kv.k, kv.v]
    return found + [meta for meta in (kv.k_meta, kv.v_meta) if meta is not None]


def copy_of(kv: PackedKV) -> PackedKV:
    if kv.kind == "latent":
        k = kv.k.clone()
        return PackedKV(k, k[..., : kv.v_dim], kv.kind)
    k_meta, v_meta = (None if meta is None else meta.clone() for meta in (kv.k_meta, kv.v_meta))
    return kv._replace(k=kv.k.clone(), v=kv.v.clone(), k_meta=k_meta, v_meta=v_meta)


def microseconds(calls: Sequence[Call], device: torch.device) -> float:
    """The median of a call, over a graph of them; without a GPU, of one."""
    if device.type != "cuda":
        begun = time.perf_counter()
        calls[0]()
        return 1e6 * (time.perf_counter() - begun)
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for place in range(max(CALLS, len(calls))):
            calls[place % len(calls)]()
    found = []
    for _ in range(REPLAYS + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(1e3 * start.elapsed_time(end) / max(CALLS, len(calls)))
    return statistics.median(found[2:])


def error_of(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())


def contiguous(q: Tensor, sizes: Sizes, batch: int, context: int) -> list[Call]:
    """torch's attention over keys that lie in a row: no pages, all rows see everything: what paging costs."""
    rows, width = q.shape[0] // batch, sizes.widths[0]
    heads = q.view(batch, rows, sizes.heads, width).transpose(1, 2)
    size = 4 * batch * context * sizes.kv_heads * width
    shape = (batch, sizes.kv_heads, context, width)
    held = [
        tuple(torch.randn(shape, dtype=q.dtype, device=q.device) for _ in range(2))
        for _ in range(min(MOST_COPIES, max(1, ROTATED // size)) if q.device.type == "cuda" else 1)
    ]
    return [partial(F.scaled_dot_product_attention, heads, k, v, enable_gqa=True) for k, v in held]


class OneRow(NamedTuple):
    """Attention of one row over copies of the same keys and values."""

    q: Tensor
    held: list[PackedKV]
    spec: AttnSpec
    batch: Batch

    def calls(self, cut: launch.TileConfig) -> list[Call]:
        """The attention, cut so, of each copy."""
        return [partial(launch.attend, self.q, kv, self.spec, self.batch, cut=cut) for kv in self.held]


def one_row(kind: str, context: int, dtype: torch.dtype, device: torch.device, dry: bool) -> OneRow:
    """One row after ``context`` - 1 tokens, whose keys and values lie in more copies than a cache holds."""
    sizes, generator = sizes_of(kind, dry), torch.Generator(device).manual_seed(1)
    host = trial.batch_of([(context - 1, 1)])
    made = trial.arenas(kind, sizes.widths, (4, 4), host, dtype, generator, sizes.kv_heads)
    q = torch.randn(1, sizes.heads, sizes.widths[0], generator=generator, device=device).to(dtype)
    spec = AttnSpec(sizes.widths[0] ** -0.5)
    return OneRow(q, copies_of(made, dry), spec, trial.batch_on(host, device))


class Step(NamedTuple):
    """One sequence's row that is rotated, written and attended to, over copies of the same keys and values.

    q [1, H, d] and the new key and value [1, H_kv, d] are not rotated yet.
    """

    q: Tensor
    new: NewRows
    held: list[PackedKV]
    spec: AttnSpec
    batch: Batch
    arrived: Tensor

    def forms(self) -> dict[str, Callable[[PackedKV], Tensor]]:
        """What each form of the step does with an arena: the attention [1, H, d]."""
        kv = self.held[0]
        found: dict[str, Callable[[PackedKV], Tensor]] = {WHOLE: partial(self.whole, self.cut())}
        if few_rows.named(kv.kind, kv.k_dim) is not None:
            found[GENERAL] = partial(self.whole, self.cut(general=True))
        return found | {APART: partial(self.apart, self.cut())}

    def cut(self, general: bool = False) -> launch.TileConfig:
        return launch.cut_of(self.q, self.held[0], self.spec, self.batch, general=general)

    def whole(self, cut: launch.TileConfig, kv: PackedKV) -> Tensor:
        return launch.attend(self.q, kv, self.spec, self.batch, cut=cut, arrived=self.arrived, new=self.new)[0]

    def apart(self, cut: launch.TileConfig, kv: PackedKV) -> Tensor:
        new = self.new
        turned = pack.write(self.q, new.k, new.v, new.rope, new.slots, kv)
        return launch.attend(turned, kv, self.spec, self.batch, cut=cut)[0]

    def expected(self) -> Tensor:
        """The definition, in torch, over an arena of its own."""
        kv, new = copy_of(self.held[0]), self.new
        assert new.rope is not None
        turned = reference.write(self.q, new.k, new.v, new.rope, new.slots, kv)
        return reference.attend(turned.float(), kv, self.spec, self.batch)[0]


def step(kind: str, context: int, dtype: torch.dtype, device: torch.device, dry: bool) -> Step:
    """The step of a row after ``context`` - 1 tokens."""
    sizes, generator = sizes_of(kind, dry), torch.Generator(device).manual_seed(1)
    if dry:
        sizes = sizes._replace(widths=(64, 64))  # the fewest channels that int4's kernel for a few rows has
    width, last = sizes.widths[0], context - 1
    host = trial.batch_of([(last, 1)])
    made = trial.arenas(kind, sizes.widths, (4, 4), host, dtype, generator, sizes.kv_heads)

    def normal(heads: int) -> Tensor:
        return torch.randn(1, heads, width, generator=generator, device=device).to(dtype)

    q, k, v, cos, sin = (normal(heads) for heads in (sizes.heads, sizes.kv_heads, sizes.kv_heads, 1, 1))
    slot = int(host.page_table[0, 0, last // PAGE_SIZE]) * PAGE_SIZE + last % PAGE_SIZE
    new = NewRows(k, v, RotaryStep(cos, sin), torch.tensor([slot], device=device))
    batch, copies = trial.batch_on(host, device), copies_of(made, dry, STEP_COPIES)
    return Step(q, new, copies, AttnSpec(width**-0.5), batch, trial.arrivals(device))


def copies_of(made: PackedKV, dry: bool, most: int = MOST_COPIES) -> list[PackedKV]:
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(made))
    copies = 1 if dry else min(most, max(1, -(-ROTATED // size)))
    return [made, *(copy_of(made) for _ in range(copies - 1))]


class Bench:
    """All cases on one device."""

    def __init__(self, dtype: torch.dtype, device: torch.device, dry: bool) -> None:
        self.dtype, self.device, self.dry = dtype, device, dry
        self.generator = torch.Generator(device).manual_seed(1)
        self.read = read_ceiling(device, dry)

    def figure(self, what: str, batch: Batch, calls: Sequence[Call], size: int, error: float) -> Figure:
        each = microseconds(calls, self.device)
        rate = size / each * 1e6
        host = batch.host
        return Figure(what, host.S, host.max_rows, host.max_kv, each, rate / 1e9, rate / self.read, error)

    def kind(self, kind: str, sequences: int, row_counts: Sequence[int], context: int) -> Iterator[Figure]:
        sizes = sizes_of(kind, self.dry)
        first = trial.batch_of([(context - 1, 1)] * sequences)
        made = trial.arenas(kind.split()[0], sizes.widths, BITS.get(kind, (4, 4)), first, self.dtype, self.generator,
                            sizes.kv_heads)  # fmt: skip
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(made))
        held = copies_of(made, self.dry)
        read = size * sequences * context // (made.k.shape[0])
        spec = AttnSpec(sizes.widths[0] ** -0.5)
        for rows in row_counts:
            host = trial.batch_of([(context - rows, rows)] * sequences)
            batch = trial.batch_on(host, self.device)
            q = torch.randn(rows * sequences, sizes.heads, sizes.widths[0], generator=self.generator,
                            device=self.device).to(self.dtype)  # fmt: skip
            stop = None
            if kind.startswith("kivi"):
                stop = torch.full((len(q),), context // 32 * 32 - 32, dtype=torch.int32, device=self.device)
            expected, _ = reference.attend(q.float(), made, spec, batch, 0, False, None, stop)
            found, _ = launch.attend(q, made, spec, batch, 0, False, None, stop)
            calls: list[Call] = [partial(launch.attend, q, kv, spec, batch, 0, False, None, stop) for kv in held]
            yield self.figure(kind, batch, calls, read, error_of(found, expected))
            if kind == "dense":
                backend = SdpaAttention()
                found, _ = backend.attend(q, made, spec, batch)
                calls = [partial(backend.attend, q, kv, spec, batch) for kv in held]
                yield self.figure("torch, paged", batch, calls, read, error_of(found, expected))
                calls = contiguous(q, sizes, sequences, context)
                yield self.figure("torch, contiguous", batch, calls, read, 0.0)
                if rows == 1:
                    yield from self.chosen(q, held, spec, batch)

    def chosen(self, q: Tensor, held: list[PackedKV], spec: AttnSpec, batch: Batch) -> Iterator[Figure]:
        """QUEST: the choice and the attention over what is chosen, as one call. The bytes are those it reads."""
        kv, count = held[0], 2 if self.dry else QUEST_PAGES
        if batch.host.max_kv // 16 <= count:
            return
        pages_of = kv.k.view(-1, 16, *kv.k.shape[1:])
        bounds = torch.cat((pages_of.amin(1), pages_of.amax(1)), -1)
        pages = quest.choose_pages(q, bounds, batch, count)
        # The definition in torch walks row by row, so one sequence and one head of it are compared.
        limits = torch.full((len(q),), count, dtype=torch.int32, device=q.device)
        found, _ = quest.attend_pages(q, kv, spec, batch, pages, limits)
        one = trial.batch_on(trial.batch_of([(batch.host.max_kv - 1, 1)]), self.device)
        one.page_table[:] = batch.page_table[:, :1]
        expected, _ = reference.attend_pages(q[:1].float(), kv, spec, one, pages[:1])
        width = kv.k.element_size() * kv.kv_heads * kv.k_dim
        size = batch.host.S * (batch.host.max_kv // 16 * 2 * width + q.shape[1] // kv.kv_heads * count * 16 * 2 * width)

        def both(kv: PackedKV) -> None:
            quest.attend_pages(q, kv, spec, batch, quest.choose_pages(q, bounds, batch, count), limits)

        calls = [partial(both, kv) for kv in held]
        yield self.figure(f"quest, {count} pages", batch, calls, size, error_of(found[:1], expected))

    def step(self, kind: str, context: int) -> Iterator[Figure]:
        """Each form of a step of one row; the bytes are those of the keys and values that it reads."""
        case = step(kind, context, self.dtype, self.device, self.dry)
        expected, kv = case.expected(), case.held[0]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(kv)) * context // kv.k.shape[0]
        for form, run in case.forms().items():
            error = error_of(run(kv), expected)
            yield self.figure(f"{kind}, {form}", case.batch, [partial(run, each) for each in case.held], size, error)

    def writes(self, kind: str, rows: int) -> Iterator[Figure]:
        """Rotation, packing and storing of a step's rows, beside the same in torch's operations."""
        sizes = sizes_of(kind, self.dry)
        host = trial.batch_of([(40, rows)])
        batch = trial.batch_on(host, self.device)
        kv = trial.arenas(kind, sizes.widths, (4, 4), host, self.dtype, self.generator, sizes.kv_heads)
        width = sizes.widths[0]

        def normal(heads: int) -> Tensor:
            shape = (rows, heads, width)
            return torch.randn(shape, generator=self.generator, device=self.device).to(self.dtype)

        q, k, v = normal(sizes.heads), normal(sizes.kv_heads), normal(sizes.kv_heads)
        rotary = RotaryStep(normal(1), normal(1))
        slots = torch.arange(rows, device=self.device) + 32
        theirs = copy_of(kv)
        expected = reference.write(q, k, v, rotary, slots, theirs)
        error = error_of(pack.write(q, k, v, rotary, slots, kv), expected)
        pairs = zip(tensors_of(kv), tensors_of(theirs), strict=True)
        error = max(error, *(error_of(a[slots], b[slots]) for a, b in pairs))
        size = sum(2 * x.numel() * x.element_size() for x in (q, k, v))
        for name, run in (("write", pack.write), ("torch write", reference.write)):
            yield self.figure(f"{name} {kind}", batch, [partial(run, q, k, v, rotary, slots, kv)], size, error)


def main(arguments: list[str] | None = None) -> list[Figure]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--contexts", nargs="+", type=int, default=[512, 4096, 32768])
    parser.add_argument("--steps", nargs="*", type=int, default=list(STEP_CONTEXTS))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, in the interpreter, tiny")
    options = parser.parse_args(arguments)
    dry = options.dry_run
    device = torch.device("cpu" if dry else "cuda")
    if not dry and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA GPU here")
    bench = Bench(torch.float32 if dry else getattr(torch, options.dtype), device, dry)
    batches, rows, contexts, steps = (2,), (1, 3), (70,), (70, 200)
    if not dry:
        batches, rows, contexts, steps = options.batches, options.rows, options.contexts, options.steps
    print(f"read-only pass: {bench.read / 1e9:.0f} GB/s")
    found: list[Figure] = []
    cases = itertools.chain(
        (figure for kind in ("dense", "int8", "fp8", "int4") if kind in options.kinds for count in rows
         for figure in bench.writes(kind, count)),
        (figure for kind in options.kinds for count in batches for context in contexts
         for figure in bench.kind(kind, count, rows, context)),
        (figure for kind in STEP_KINDS if kind in options.kinds for context in steps
         for figure in bench.step(kind, context)),
    )  # fmt: skip
    for figure in cases:
        found.append(figure)
        print(f"{figure.what:30} batch {figure.batch} rows {figure.rows} context {figure.context:6} "
              f"{figure.microseconds:8.1f} us {figure.gigabytes_per_second:6.0f} GB/s "
              f"{100 * figure.share_of_read:3.0f} % error {figure.error:.1e}", flush=True)  # fmt: skip
    if options.json:
        name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu, interpreted"
        facts: dict[str, Any] = {"device": name, "torch": torch.__version__, "read": bench.read}
        options.json.write_text(json.dumps({**facts, "figures": [figure._asdict() for figure in found]}, indent=1))
    return found


if __name__ == "__main__":
    main()
