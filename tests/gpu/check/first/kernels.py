"""What the first minutes ask of the card itself and of single kernels: parts 1 to 5, 7 and 9."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import MethodType
from typing import Any, cast

import torch

from engine.compute.native import early as launch
from tests.gpu.check import ceilings
from tests.gpu.check.kernels import MATRICES, SWEPT, plain, show
from tests.gpu.check.notes import Measures, Setting

LAYER = ("down", "gate_up", "o", "qkv")
"""The matrices of a layer, first the one whose tile decides whether something served is to be reverted."""
KEYS = (256, 128, 64)
"""Fewest keys of a split: what is served first."""
CONTEXTS = (512, 8192, 128, 1024, 32768)
PACKED = ("int8", "int4")
PACKED_CONTEXTS = (32768, 8192)
PROMPTS = (256, 512, 192, 384, 128, 2048)
UNDER_WAY = {8: 1, 16: 2, 24: 3, 32: 4, 48: 6, 64: 8}
"""Kilobytes that a multiprocessor has under way, by programs of 8 KB each."""
STEPS = {"level 2": (8 << 20, 1 << 15), "memory": (1 << 30, 1 << 16)}
"""Bytes of a table, and loads of a chain through it: fewer than its lines, so that none is met twice."""
CHAINED, REPLAYS = 25, 50


def memory(setting: Setting) -> Measures:
    """``figures``: bytes a second; nanoseconds of a load; share of the read ceiling by kilobytes under way."""
    device = torch.device(setting.device)
    rates: dict[str, float] = {}

    def bandwidth() -> dict[str, float]:
        rates.update(copy=ceilings.copied(device), read=ceilings.measure_bandwidth(device))
        return rates

    yield "bandwidth", bandwidth
    yield "under way", lambda: under_way(device)
    yield "latency", lambda: latency(device)


def under_way(device: torch.device) -> Iterator[dict[str, Any]]:
    """Bytes a second of programs that each wait for their 8 KB before they ask for more, by kilobytes a
    multiprocessor."""
    found: dict[str, Any] = {"read": ceilings.measure_bandwidth(device)}
    if device.type != "cuda":
        yield found
        return
    from tests.gpu.check import probes

    processors = torch.cuda.get_device_properties(device).multi_processor_count
    data = torch.zeros(1 << 28, dtype=torch.int32, device=device)
    for kilobytes, each in UNDER_WAY.items():
        out = torch.empty(each * processors, dtype=torch.int32, device=device)
        turns = len(data) // (len(out) * probes.PIECE)
        run = partial(probes.launch_read, data, out, turns)
        run()
        taken = min(ceilings.seconds(run, 1) for _ in range(5))
        found[str(kilobytes)] = 4 * turns * len(out) * probes.PIECE / taken
        print(f"  {kilobytes} KB a multiprocessor: {found[str(kilobytes)] / 1e9:.0f} GB/s", flush=True)
        yield found


def latency(device: torch.device) -> Iterator[dict[str, float]]:
    """Nanoseconds of a load that has to wait for the one before, out of the level-2 cache and out of memory."""
    found: dict[str, float] = {}
    if device.type != "cuda":
        yield found
        return
    from tests.gpu.check import probes

    out = torch.empty(1, dtype=torch.int32, device=device)
    for name, (size, steps) in STEPS.items():
        lines = size // (4 * probes.LINE)
        order = torch.randperm(lines, device=device, dtype=torch.int32)
        table = torch.zeros(lines, probes.LINE, dtype=torch.int32, device=device)
        table[order.long(), 0] = order.roll(-1) * probes.LINE
        start = int(order[0]) * probes.LINE
        run = partial(probes.launch_chase, table.view(-1), out, start, steps)
        # The second walk of the small table finds all of it in the cache; in memory both have begun elsewhere.
        if name == "memory":
            probes.launch_chase(table.view(-1), out, int(order[lines // 2]) * probes.LINE, 100)
        else:
            run()
        found[name] = 1e9 * ceilings.seconds(run, 1) / steps
        yield found


def boundary(setting: Setting) -> Measures:
    """``figures``: microseconds a node of a graph."""
    device = torch.device(setting.device)
    yield "boundary", lambda: boundaries(device)
    yield "carve-out", lambda: carve_out(device)


def boundaries(device: torch.device) -> dict[str, float | None]:
    """As `ceilings.boundaries`, and of kernels that are empty."""
    found = ceilings.boundaries(device)
    if device.type == "cuda":
        from tests.gpu.check import probes

        x = torch.zeros(1, device=device)
        found["empty"] = ceilings.graph_boundary(lambda: probes.launch_nothing(x))
    return found


def carve_out(device: torch.device) -> dict[str, float | None]:
    """A kernel with 64 KB of shared memory and one without, in turn, beside each alone; and what the turn costs."""
    if device.type != "cuda":
        return dict.fromkeys(("shared", "plain", "in turn", "cost"))
    from tests.gpu.check import probes, tiny_kernel

    x, y = torch.zeros(probes.SHARED, device=device), torch.zeros(ceilings.ELEMENTS, device=device)

    def in_turn() -> None:
        probes.launch_shared(x)
        tiny_kernel.launch(y, early=False)

    shared = ceilings.graph_boundary(lambda: probes.launch_shared(x))
    small = ceilings.graph_boundary(lambda: tiny_kernel.launch(y, early=False))
    both = ceilings.graph_boundary(in_turn) / 2
    return {"shared": shared, "plain": small, "in turn": both, "cost": both - (shared + small) / 2}


class Products:
    """Products of the matrices of a layer, cut up in several ways."""

    def __init__(self, setting: Setting) -> None:
        from tests.gpu import bench_kernels

        self.dry, self.device = setting.dry, torch.device(setting.device)
        self.dtype = torch.float32 if self.dry else torch.bfloat16
        self.read = bench_kernels.read_ceiling(self.device, self.dry)
        self.case: Any = None
        self.name = ""

    def of(self, name: str) -> Any:
        """The matrix as it is served; one at a time is held."""
        from tests.gpu import bench_kernels

        if self.name != name:
            self.case = None
            shape = (16, 512) if self.dry else MATRICES[name]
            self.case = next(bench_kernels.ours(SWEPT, *shape, self.dtype, self.device, self.dry))
            self.name = name
        return self.case

    def resident(self, name: str, rows: int) -> list[Any]:
        """Cuts of resident products; none where there are no such kernels."""
        from engine.compute.layers.linear.triton import resident
        from engine.compute.layers.linear.triton.runtime import RingCut, StripCut

        layer = cast(MethodType, self.of(name).calls[0]).__self__
        if resident.cannot(layer) is not None:
            return []
        strip = resident.strip_of(layer)
        deeper = [strip._replace(ahead=ahead) for ahead in (1, 2, 4) if ahead * strip.warps <= layer.blocks]
        cuts = [strip, *deeper, StripCut(8, 16, 4, 2), StripCut(8, 16, 4, 4)]
        if name == "gate_up":
            most = resident.ring_of(layer, rows)
            pieces = range(2, 7) if rows == 1 else range(2, most.pieces + 1 if most else 2)
            cuts += [RingCut(8, 16, strip.warps, count) for count in pieces]
        return list(dict.fromkeys(cuts))

    def compile(self, rows: int, cuts: Sequence[Any]) -> None:
        """Compile what the matrix that is held needs for these cuts, several at a time: not while they are timed."""
        if self.dry:
            return
        from engine.compute.native.triton_launch import compile_all, gathering

        layer = cast(MethodType, self.case.calls[0]).__self__
        with gathering() as launches:
            for cut in cuts:
                layer.product(torch.zeros(rows, layer.in_features, dtype=self.dtype, device=self.device),
                              self.dtype, cut)  # fmt: skip
        compile_all(launches, lambda *_: None)

    def measured(self, name: str, rows: int, cuts: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """By the names of cuts, and "served"; one that does not fit is left out with its reason."""
        from tests.gpu import bench_kernels, bench_tiles

        case, found = self.of(name), dict[str, Any]()
        self.compile(rows, cuts)
        for each in (case._replace(what="served"), *(bench_tiles.cut_up(case, cut) for cut in cuts)):
            try:
                figure = next(bench_kernels.figures(each, (rows,), self.dtype, self.device, self.read))
            except Exception as error:
                found[each.what] = {"error": str(error).splitlines()[0][:200]}
            else:
                show([figure])
                found[each.what] = plain(figure)
            yield found


def one_row(setting: Setting) -> Measures:
    """``figures[matrix][cut]``, all of its forms for one row, resident ones too."""
    from engine.compute.layers.linear.triton.runtime import Tile

    cuts = [Tile(8, 16, 2), Tile(8, 16, 4), Tile(8, 16, 2, 3)][: 1 if setting.dry else None]
    products = Products(setting)
    for name in LAYER:
        yield name, lambda name=name: products.measured(name, 1, [*cuts, *products.resident(name, 1)])


def row_cuts(rows: int) -> list[Any]:
    """What may serve so many rows: tiles of planes.py for few, of gemm.py with splits for more."""
    from engine.compute.layers.linear.triton.runtime import Tile, WideTile

    if rows <= 8:
        return [Tile(8, 16, 2), Tile(8, 16, 4), Tile(8, 16, 2, 3)]
    if rows <= 16:
        return [Tile(16, 16, 2), Tile(16, 16, 4), WideTile(16, 32, 2, 4, 4), WideTile(16, 64, 4, 4, 4)]
    wide = [WideTile(32, 64, 4, 4, splits) for splits in (1, 2, 4)]
    if rows <= 32:
        return [*wide, WideTile(32, 32, 2, 4), WideTile(32, 32, 2, 4, 2)]
    return [*(WideTile(64, 64, 4, 4, splits) for splits in (1, 2, 4)), *wide]


def some_rows(setting: Setting) -> Measures:
    """``figures["N rows"][matrix][cut]``; 32 rows first, where half of the card may wait."""
    products = Products(setting)

    def rows(count: int) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        for name in ("o", "down", "qkv", "gate_up")[: 1 if setting.dry else None]:
            own = products.resident(name, count) if count <= 8 else []
            for figures in products.measured(name, count, [*row_cuts(count)[: 1 if setting.dry else None], *own]):
                found[name] = figures
                yield found

    for count in (32, 8, 64, 16)[:: 3 if setting.dry else 1]:
        yield f"{count} rows", partial(rows, count)


def attention(setting: Setting) -> Measures:
    """``figures["dense"][context][fewest keys of a split]`` and those of packed keys, in microseconds;
    ``figures["int4, a step"][context][form]``, see `bench_attention.Step`, over the fewest keys first."""
    from engine.compute.attention.triton.launch import cut_of
    from tests.gpu import bench_attention

    dry, device = setting.dry, torch.device(setting.device)
    dtype = torch.float32 if dry else torch.bfloat16

    def of(kind: str, contexts: Sequence[int], keys: Sequence[int]) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        for context in contexts:
            case = bench_attention.one_row(kind, context, dtype, device, dry)
            for least in keys:
                cut = cut_of(case.q, case.held[0], case.spec, case.batch, least=least)
                found.setdefault(str(context), {})[str(least)] = {
                    "splits": cut.splits,
                    "microseconds": bench_attention.microseconds(case.calls(cut), device),
                }
                print(f"  {kind}, {context} keys, splits of {least}: {found[str(context)][str(least)]}", flush=True)
                yield found

    def step(kind: str) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        for context in (70, 200) if dry else bench_attention.STEP_CONTEXTS:
            case = bench_attention.step(kind, context, dtype, device, dry)
            for form, run in case.forms().items():
                taken = bench_attention.microseconds([partial(run, kv) for kv in case.held], device)
                found.setdefault(str(context), {})[form] = {"microseconds": taken}
                print(f"  {kind}, a step over {context} keys, {form}: {taken:.2f} us", flush=True)
                yield found

    contexts, packed = ((70,), (70,)) if dry else (CONTEXTS, PACKED_CONTEXTS)
    first, *others = bench_attention.STEP_KINDS
    yield "dense", partial(of, "dense", contexts, KEYS[:: 2 if dry else 1])
    yield f"{first}, a step", partial(step, first)
    for kind in PACKED:
        yield kind, partial(of, kind, packed, KEYS[:1])
    for kind in others:
        yield f"{kind}, a step", partial(step, kind)


def early(setting: Setting) -> Measures:
    """``figures["producer"]``: of the replays of a chain whose kernels start early, those with another result.
    ``figures["trial"]``: why the engine starts none early; "" where it does."""
    device = torch.device(setting.device)
    yield "producer", lambda: producer(device)
    yield "trial", lambda: {"declines": launch.declines(device) or ""}


def producer(device: torch.device) -> dict[str, Any]:
    """A kernel that lets the next one in, sleeps and then writes (as in NVIDIA/cccl#5249), and one that waits for it.

    "control": how many replays were wrong where the second reads before it waits, which have to be nearly all.
    """
    none: dict[str, Any] = {"replays": 0, "wrong": None, "control": None, "absent": ""}
    if device.type != "cuda":
        return none | {"absent": "there is no GPU"}
    if reason := launch.unavailable(device):
        return none | {"absent": reason}

    def wrong(waits: bool) -> int:
        x, y = (torch.zeros(128, dtype=torch.int32, device=device) for _ in range(2))
        launch.chain(x, y, CHAINED, waits)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch.chain(x, y, CHAINED, waits)
        expected = launch.chained(CHAINED)
        count = 0
        for _ in range(REPLAYS):
            graph.replay()
            count += not bool((y == expected).all())
        return count

    return {"replays": REPLAYS, "wrong": wrong(True), "control": wrong(False), "absent": ""}


def prompts(setting: Setting) -> Measures:
    """``figures["N"]``: microseconds of a layer's products by gemm.py and by torch over dequantised weights."""
    products = Products(setting)
    counts = (4,) if setting.dry else PROMPTS

    def rows(count: int) -> Iterator[dict[str, Any]]:
        found = {"packed": 0.0, "dequantised": 0.0}
        for name in LAYER[: 1 if setting.dry else None]:
            case = products.of(name)
            layers = [cast(MethodType, call).__self__ for call in case.calls]
            x = torch.randn(count, layers[0].in_features, device=products.device).to(products.dtype)
            found["packed"] += 1e6 * _seconds([partial(_packed, layer, x) for layer in layers], products)
            found["dequantised"] += 1e6 * _seconds([partial(layer.by_blocks, x) for layer in layers], products)
        print(f"  {count} rows: {found}", flush=True)
        yield found

    for count in counts:
        yield str(count), partial(rows, count)


def _packed(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """The product with packed weights, however many rows there are."""
    from engine.compute.layers.linear.triton.runtime import wide_tile, wide_tiles
    from engine.compute.native.gpu import capability, processors

    tiles = wide_tiles(capability(layer.device))
    cut = wide_tile(len(x), layer.out_features, tiles, processors(layer.device))
    return cast(torch.Tensor, layer.product(x, x.dtype, cut))


def _seconds(calls: Sequence[Callable[[], object]], products: Products) -> float:
    """The median of a call."""
    from tests.gpu import bench_kernels

    x = torch.empty(1, device=products.device)
    replays = 1 if products.dry else 5
    return statistics.median(bench_kernels.timed([lambda _, call=call: call() for call in calls], x, replays))
