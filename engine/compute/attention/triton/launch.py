"""Partition of an attention into programs, and the launch of its kernels."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.cache.stores.packed import CHANNEL_GROUP, PACKED_KINDS, PackedKV, value_group
from engine.compute.attention.interface import AttnSpec, NewRows
from engine.compute.attention.rotation import TableRotaryStep
from engine.compute.attention.triton.few_rows import FewRows, kernel_of
from engine.compute.batch import Batch, context_class, power_of_two, row_class
from engine.compute.native.gpu import HOPPER, capability, inlines, processors
from engine.compute.native.triton_launch import Grid, Variants

MAX_SPLITS = 64
LEAST_KEYS = 64
"""The fewest keys of a split, which is one turn of the loop over keys: each turn waits for memory once."""
LEAST_HOPPER_KEYS = 256
"""The same on Hopper, as the one that was measured had it; `python -m tests.gpu.check first` says which is faster."""
PROGRAMS = 2
"""Programs for each multiprocessor that run at the same time."""
BEFORE, MERGE_TURNS = 3, 3
"""Turns of the loop over keys that a program's chain of loads before it takes, and those that a merge takes: each waits
about as long for memory as a turn does. Estimates."""


MERGED = 16
"""The most splits that the last of them merges, all at once. An estimate, too."""
MERGED_NUMBERS = 4
"""Numbers of a split that a thread merges at once: with those of all splits 64 registers."""
TILES = 4096
"""Tiles of a launch in which one split merges, at most."""
DECODE_ROWS = 16
"""Rows times heads for each KV head that fit into the least tile: of such a sequence there is one tile."""


class TileConfig(NamedTuple):
    """Tile of one program: ``rows`` packed rows, ``keys`` at a time; the keys of a tile in ``splits`` parts."""

    rows: int
    keys: int
    splits: int
    warps: int = 4
    stages: int = 2
    general: bool = False
    """Whether `kernels.attend` serves also where there is a kernel for a few rows."""


class Columns(NamedTuple):
    """A head of `dim` channels as loads.py reads it: bits a channel, lanes of a plane, and the rest (dense only)."""

    dim: int
    bits: int
    lanes: int
    rest: int = 0

    @property
    def width(self) -> int:
        """Columns of a tile, padding included."""
        return self.lanes * (8 // self.bits if self.bits < 8 else 1) + self.rest


def columns(dim: int, bits: int) -> Columns:
    """Dense heads are cut in two where that pads them less: 576 channels are 512 and 64, 192 are 128 and 64."""
    if bits < 8:
        planes = 8 // bits
        return Columns(dim, bits, max(16 // planes, power_of_two(dim // planes)))
    whole = max(16, power_of_two(dim))
    half = whole // 2
    if bits == 8 or dim in (whole, half) or half < 16:
        return Columns(dim, bits, whole)
    rest = max(16, power_of_two(dim - half))
    return Columns(dim, bits, half, rest) if rest < half else Columns(dim, bits, whole)


def layout(kv: PackedKV) -> tuple[Columns, Columns, bool]:
    """Columns of keys and of values, and whether values are read as the first columns of the keys."""
    k, v = columns(kv.k_dim, kv.k_bits), columns(kv.v_dim, kv.v_bits)
    return k, v, kv.kind == "latent" and v.rest == 0 and v.lanes == v.dim == k.lanes


def cut_for(
    k: Columns,
    v: Columns,
    kind: str,
    packed_rows: int,
    tiles: int,
    max_keys: int,
    processors: int,
    least: int = LEAST_KEYS,
    few: FewRows | None = None,
    masked: bool = False,
) -> TileConfig:
    """``packed_rows``: rows times heads for each KV head, of one sequence where all decode, else of the batch;
    ``tiles``: how many such there are; ``least``: the fewest keys of a split; ``few``: for such a kernel; ``masked``:
    for trees that see a range of keys, whose masks leave a larger tile too few registers. Estimates from machine code,
    for a GPU to correct. There are two sizes of tiles, one for decoding and one for all else, so that few variants are
    compiled."""
    width = max(k.width, v.width)
    rows = 16 if packed_rows <= DECODE_ROWS or width > 256 else 32 if width > 128 else 64
    if masked:
        rows = min(rows, 32)
    keys = 64 if width <= 128 else 32
    if width > 256:
        keys = 16
    if kind == "kivi":
        keys = CHANNEL_GROUP
    if few is not None:
        keys = few.keys
    # Scales that are looked up for each channel would be fetched ahead into shared memory, more than there is.
    looked_up = few is None and any(side.bits < 8 and side.width != side.dim for side in (k, v))
    tiles *= -(-packed_rows // rows)
    warps = few.warps if few is not None else 8 if rows == 64 else 4
    # Where a program is one warp, as many more of them run at the same time.
    splits = splits_for(tiles, -(-max_keys // keys), -(-max_keys // least), processors * max(1, 4 // warps))
    return TileConfig(rows, keys, splits, warps, 1 if looked_up else 2)


@functools.cache
def splits_for(tiles: int, turns: int, most: int, processors: int) -> int:
    """Splits of the ``turns`` of each tile with which all are done the soonest; at most ``most``, the fewest of equals.

    Programs run in waves of as many as there are places, and the last wave may be nearly empty (as FlashInfer plans its
    decoding, flashinfer-ai/flashinfer#4904).
    """
    places = PROGRAMS * processors

    def taken(splits: int) -> int:
        waves = -(-tiles * splits // places)
        return waves * (-(-turns // splits) + BEFORE) + (MERGE_TURNS if splits > 1 else 0)

    return min(range(1, max(1, min(most, MAX_SPLITS)) + 1), key=taken)


def cut_of(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    first: Tensor | None = None,
    stop: Tensor | None = None,
    least: int = 0,
    general: bool = False,
) -> TileConfig:
    """The cut of :func:`attend` with these; ``least`` as for :func:`cut_for`, 0: as is served; ``general``: for
    `kernels.attend` also where a kernel for a few rows would serve."""
    k, v, _ = layout(kv)
    packed_rows, tiles = _packed(batch, q.shape[1] // kv.kv_heads, kv.kv_heads)
    least = least or (LEAST_HOPPER_KEYS if capability(q.device)[0] == HOPPER[0] else LEAST_KEYS)
    longest = context_class(batch.host.max_kv)
    few = None if general else few_kernel(q, kv, spec, batch, first, stop)
    masked = batch.ancestors is not None and not (first is None and stop is None and spec.window is None)
    cut = cut_for(k, v, kv.kind, packed_rows, tiles, longest, processors(q.device), least, few, masked)
    return cut._replace(general=general)


def few_kernel(
    q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, first: Tensor | None = None, stop: Tensor | None = None
) -> FewRows | None:
    """The kernel for a few rows that serves :func:`attend` with these; None: `kernels.attend` does."""
    packed_rows, _ = _packed(batch, q.shape[1] // kv.kv_heads, kv.kv_heads)
    return kernel_of(kv, spec, packed_rows, batch.ancestors is None and first is None and stop is None)


def may_merge(q: Tensor, kv: PackedKV, batch: Batch, cut: TileConfig) -> bool:
    """Return True if the last split may merge the others, of queries like q [T, H, d]: they and their rows are few."""
    packed_rows, _ = _packed(batch, q.shape[1] // kv.kv_heads, kv.kv_heads)
    return 1 < cut.splits <= MERGED and layout(kv)[1].rest == 0 and packed_rows <= DECODE_ROWS


def _packed(batch: Batch, per_kv: int, kv_heads: int) -> tuple[int, int]:
    """``packed_rows`` and ``tiles`` of :func:`cut_for`: by classes, so that a step is cut in the same way whether it is
    captured (and padded) or not."""
    rows = row_class(batch.host.T)
    return (per_kv, rows * kv_heads) if batch.host.max_rows == 1 else (rows * per_kv, kv_heads)


class LaunchPlan(NamedTuple):
    """Launch arguments for every layer of a batch whose arenas and queries have one form, computed once."""

    grid: Grid
    key: Hashable
    keywords: dict[str, Any]
    tables: tuple[Tensor | None, ...]
    numbers: tuple[float, ...]
    part: Tensor | None
    """[splits, T, H, d_v] float32 and ..."""
    part_lse: Tensor | None
    """... [splits, T, H], where keys are split."""
    real: int
    """Rows that are no padding."""
    arrived: Tensor | None = None
    """[tiles * H_kv] int32, all 0: how many splits of a tile have ended, where the last one merges."""
    few: FewRows | None = None
    """The kernel, where it is one for a few rows."""


def plan(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    group: int = 0,
    need_lse: bool = False,
    first: Tensor | None = None,
    stop: Tensor | None = None,
    cut: TileConfig | None = None,
    arrived: Tensor | None = None,
    new: NewRows | None = None,
) -> LaunchPlan:
    """The launch of :func:`attend` with these and with arenas and queries [T, H, d] of the same layout.

    ``arrived``: room for as many tiles of which the last split merges the others, where those are few.
    """
    host = batch.host
    heads, per_kv = q.shape[1], q.shape[1] // kv.kv_heads
    packed_rows, _ = _packed(batch, per_kv, kv.kv_heads)
    room = 0 if arrived is None else arrived.shape[0]
    cut = cut or cut_of(q, kv, spec, batch, first, stop)
    merged = host.S * kv.kv_heads <= room and may_merge(q, kv, batch, cut)
    search = packed_rows > DECODE_ROWS
    part = part_lse = None
    if cut.splits > 1:
        part = q.new_empty(cut.splits, host.T, heads, kv.v_dim, dtype=torch.float32)
        part_lse = q.new_empty(cut.splits, host.T, heads, dtype=torch.float32)
    tree, table = batch.ancestors is not None, batch.page_table
    bounds: tuple[Tensor | None, ...] = first, stop, batch.ancestors, batch.positions if tree else None
    strides = [*q.stride()[:2], *kv.k.stride()[:2], *kv.v.stride()[:2], table.stride(1)]
    numbers: tuple[float, ...] = spec.scale, spec.softcap or 0.0, spec.window or 0, host.S, host.T
    few = None if cut.general else few_kernel(q, kv, spec, batch, first, stop)
    if few is not None:
        strides[2:6] = (stride // 2 for stride in strides[2:4])  # of int16, of keys as of values
        bounds, numbers = (), (spec.scale, host.T)
        own = {**few.constants(kv.k_dim, q.dtype == torch.float32, inlines(q.device)), "BM": few.rows}
    else:
        own = {
            **layout_constants(kv),
            "WINDOW": spec.window is not None,
            "SOFTCAP": spec.softcap is not None,
            "TREE": tree,
            "FIRST": first is not None,
            "STOP": stop is not None,
            "SEARCH": search,
            "BM": cut.rows,
        }
    merged_rows = power_of_two(packed_rows) if merged else 1
    keywords = {
        **own,
        "GROUP": per_kv,
        "LSE": need_lse or cut.splits > 1,
        "PARTS": cut.splits > 1,
        "MERGED": MERGED if merged else 0,
        "MERGED_ROWS": merged_rows,
        "MERGED_COLUMNS": min(max(16, power_of_two(kv.v_dim)), MERGED_NUMBERS * 32 * cut.warps // merged_rows),
        "MERGED_LSE": need_lse and merged,
        "WRITES": new is not None,
        "ROTARY": 0 if new is None or new.rope is None else new.rope.width,
        "LOOKED_UP": new is not None and isinstance(new.rope, TableRotaryStep),
        "BN": cut.keys,
        "num_warps": cut.warps,
        "num_stages": cut.stages,
    }
    return LaunchPlan(
        (host.T * per_kv // cut.rows + host.S if search else host.S, kv.kv_heads, cut.splits),
        (*keywords.values(), q.dtype, tuple(strides[:-1]), None if new is None else new.form),
        keywords,
        (table[group], batch.row_start, batch.kv_len, *bounds),
        (*numbers, *strides),
        part,
        part_lse,
        host.T,
        arrived if merged else None,
        few,
    )


def layout_constants(kv: PackedKV) -> dict[str, Any]:
    """Constants by which :func:`attend` reads keys and values."""
    k, v, shared = layout(kv)
    return {
        "KIND": kv.kind if kv.kind in PACKED_KINDS else "dense",
        "K_DIM": kv.k_dim,
        "V_DIM": kv.v_dim,
        "K_BITS": k.bits,
        "V_BITS": v.bits,
        "K_GROUP": value_group(kv.k_dim),
        "V_GROUP": value_group(kv.v_dim),
        "K_LANES": k.lanes,
        "V_LANES": v.lanes,
        "K_REST": k.rest,
        "V_REST": v.rest,
        "SHARED": shared,
    }


def _new_arguments(new: NewRows | None) -> tuple[tuple[Tensor | None, ...], tuple[int, ...]]:
    """Tensors and strides of new rows; the slots stand for tables that are not read where nothing rotates."""
    if new is None:
        return (None,) * 6, (0,) * 5
    rope, strides = new.rope, (*new.k.stride()[:2], *new.v.stride()[:2])
    if rope is None:
        return (new.k, new.v, new.slots, new.slots, None, new.slots), (*strides, 0)
    if isinstance(rope, TableRotaryStep):
        return (new.k, new.v, *rope.columns, rope.positions, new.slots), (*strides, rope.table.stride(0))
    return (new.k, new.v, rope.cos, rope.sin, None, new.slots), (*strides, rope.cos.stride(0))


def run(
    plan: LaunchPlan, q: Tensor, kv: PackedKV, need_lse: bool = False, new: NewRows | None = None
) -> tuple[Tensor, Tensor | None]:
    """One layer's attention as planned."""
    from engine.compute.attention.triton import kernels

    out = q.new_empty(q.shape[0], q.shape[1], kv.v_dim)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device) if need_lse else None
    if q.shape[0] > plan.real:
        out[plan.real :] = 0
        if lse is not None:
            lse[plan.real :] = -torch.inf
    if plan.real == 0:
        return out, lse
    written = (out, lse) if plan.part is None else (plan.part, plan.part_lse)
    k_meta, v_meta = meta(kv.k_meta, kv.kind == "int4"), meta(kv.v_meta, kv.kind in ("int4", "kivi"))
    merged = (None, None, None) if plan.arrived is None else (out, lse, plan.arrived)
    tensors, strides = _new_arguments(new)
    kernel, k, v = kernels.attend, kv.k, kv.v
    if plan.few is not None:
        kernel, k, v = plan.few.kernel(), k.view(torch.int16), v.view(torch.int16)
    args = (q, k, v, k_meta, v_meta, *plan.tables, *written, *merged, *tensors, *plan.numbers, *strides)
    _variants.launch(kernel, plan.key, plan.grid, args, lambda: plan.keywords, early=True)
    if plan.part is not None and plan.arrived is None:
        merge_parts(plan.part, plan.part_lse, out, lse, plan.real)
    return out, lse


def attend(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    group: int = 0,
    need_lse: bool = False,
    first: Tensor | None = None,
    stop: Tensor | None = None,
    cut: TileConfig | None = None,
    arrived: Tensor | None = None,
    new: NewRows | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Same as `AttentionBackend.attend`, with the key ranges on the device (int32 [T] each). Of "kivi" only the body:
    `stop` must not exceed what is packed."""
    q = with_whole_heads(q)
    return run(plan(q, kv, spec, batch, group, need_lse, first, stop, cut, arrived, new), q, kv, need_lse, new)


def with_whole_heads(q: Tensor) -> Tensor:
    """Queries [T, H, d] whose heads are contiguous, and which begin where the kernels were compiled for."""
    return q if q.stride(2) == 1 and (q.is_meta or q.data_ptr() % 16 == 0) else q.contiguous().clone()


_variants = Variants()


def meta(scales: Tensor | None, pairs: bool) -> Tensor | None:
    """Scales as a kernel reads them: pairs of a scale and a minimum as one int32."""
    return scales.view(torch.int32) if pairs and scales is not None else scales


def merge_parts(part: Tensor, part_lse: Tensor | None, out: Tensor, lse: Tensor | None, rows: int) -> None:
    """The first rows of ``out [T, H, d_v]`` and ``lse`` from ``part [splits, rows, H, d_v]``."""
    from engine.compute.attention.triton import kernels

    splits, _, heads, width = part.shape

    def keywords() -> dict[str, Any]:
        columns = max(16, power_of_two(width))
        return {"V_DIM": width, "COLUMNS": columns, "MOST": MAX_SPLITS, "LSE": lse is not None, "num_warps": 4}

    args = part, part_lse, out, lse, rows, splits
    _variants.launch(kernels.combine, (width, lse is None, out.dtype), (rows, heads, 1), args, keywords, early=True)
