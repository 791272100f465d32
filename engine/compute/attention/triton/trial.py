"""The proof, before attention is given to the kernels, that they compute it on this device: no wrong one may run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.codecs import pack_absmax
from engine.cache.stores.packed import BYTE_KINDS, CHANNEL_GROUP, PackedKV, Placement, value_group
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.interface import AttnSpec, KeyRange, NewRows
from engine.compute.attention.rotation import RotaryStep, TableRotaryStep
from engine.compute.attention.triton import few_rows, launch, pack
from engine.compute.batch import Batch, HostShape
from engine.compute.native.proof import tried

TOLERANCE = 0.02
"""Share of the largest value by which 16 bits may differ."""
SHAPES = ([(700, 1), (37, 1)], [(40, 70), (3, 9)])
"""Tokens in the cache and new rows of each sequence: decoding, which splits keys, and prompts."""
DECODING = [(70, 1), (37, 1), (0, 1), (150, 1), (64, 1)]
"""Of attention in parts: some see none of the keys, and one sees a block that has just begun."""
REPEATED = 3
HEADS_PER_KV = 4
TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


class AttnTraits(NamedTuple):
    """Traits of an attention that is tried."""

    kind: str
    widths: tuple[int, int]
    """Of keys and of values."""
    dtype: torch.dtype
    window: bool = False
    softcap: bool = False
    tree: bool = False
    turns: int = 0
    """Channels of each head that it rotates itself, where it writes."""
    per_kv: int = HEADS_PER_KV
    """Query heads to each KV head."""

    @property
    def spec(self) -> AttnSpec:
        """The parameters of an attention with them."""
        return AttnSpec(self.widths[0] ** -0.5, 90 if self.window else None, 2.0 if self.softcap else None)


@functools.cache
def disagrees(traits: AttnTraits, device: torch.device) -> str | None:
    """Reason not to trust such attention here; None where it agrees with the definition."""
    return tried(("attention", *traits), device, lambda: compare(traits, device))


@functools.cache
def merges_wrongly(traits: AttnTraits, device: torch.device) -> str | None:
    """Reason a kernel of its own merges the splits of such attention; None where the last of them does, as it did it
    here."""
    return tried(("merges", *traits), device, lambda: compare_merges(traits, device))


@functools.cache
def writes_wrongly(traits: AttnTraits, device: torch.device) -> str | None:
    """Reason a kernel of its own rotates and writes rows before such attention; None where attention does, as it did
    it here."""
    return tried(("writes", *traits), device, lambda: compare_writes(traits, device))


def compare(
    traits: AttnTraits,
    device: torch.device,
    shapes: Sequence[list[tuple[int, int]]] = SHAPES,
    tolerance: float = TOLERANCE,
) -> str | None:
    """Same as :func:`disagrees`, without the guard."""
    kind, widths, dtype, spec = traits.kind, traits.widths, traits.dtype, traits.spec
    few, generator = few_rows.named(kind, widths[0]), torch.Generator().manual_seed(1)
    more = few is not None and few.rows < launch.DECODE_ROWS
    for bits in ((4, 4), (2, 2)) if kind == "kivi" else ((16, 16),):
        for sequences, is_tree in [
            *((shape, False) for shape in shapes),
            # More rows than a kernel for a few has, which the other one serves with its tile for decoding.
            *([([(300, max(1, launch.DECODE_ROWS // traits.per_kv))], False)] if more else []),
            *([([(50, len(TREE))], True)] if traits.tree else []),
        ]:
            batch = batch_of(sequences, is_tree)
            kv = arenas(kind, widths, bits, batch, dtype, generator)
            exact = kv if kv.k_meta is not None else kv._replace(k=kv.k.float(), v=kv.v.float())
            heads = traits.per_kv * kv.kv_heads
            q = torch.randn(batch.host.T, heads, widths[0], generator=generator).to(dtype)
            for stop in [None, _packed_stop(batch)][kind == "kivi" :]:
                keys = None if stop is None else KeyRange(None, stop.numpy())
                expected, lse = ReferenceAttention().attend(q.float(), exact, spec, batch, 0, True, keys)
                there = None if stop is None else stop.to(device)
                placed = q.to(device), on(kv, device), spec, batch_on(batch, device), 0
                cut = launch.cut_of(placed[0], kv, spec, batch, None, there)
                # In parts, whole, and as layers without sinks ask for it: each is another variant.
                for splits, need_lse in product((max(2, cut.splits), 1), (True, False)):
                    found, found_lse = launch.attend(*placed, need_lse, None, there, cut._replace(splits=splits))
                    if far(found, expected, tolerance) or (need_lse and far(found_lse, lse, tolerance)):
                        return f"its result over the kind {kind} does not agree with the definition here"
    return None


def compare_merges(traits: AttnTraits, device: torch.device) -> str | None:
    """Reason a few merges by the last split are wrong; None where they agree with those of a kernel, each time."""
    kind, widths, dtype, spec = traits.kind, traits.widths, traits.dtype, traits.spec
    generator = torch.Generator().manual_seed(1)
    for sequences in (DECODING, [(70, 2)]):
        batch = batch_of(sequences)
        kv = on(arenas(kind, widths, (4, 4) if kind == "kivi" else (16, 16), batch, dtype, generator), device)
        q = torch.randn(batch.host.T, traits.per_kv * kv.kv_heads, widths[0], generator=generator).to(device, dtype)
        there, arrived, stops = batch_on(batch, device), arrivals(device), [None, _packed_stop(batch).to(device)]
        if few_rows.named(kind, widths[0]) is None:  # of these, ranges have another kernel
            stops = stops[1:] if kind == "kivi" else stops[:1]
        for stop, need_lse in product(stops, (True, False)):
            cut = launch.cut_of(q, kv, spec, there, None, stop)._replace(splits=4)
            apart = launch.attend(q, kv, spec, there, 0, need_lse, None, stop, cut)
            for _ in range(REPEATED):
                found = launch.attend(q, kv, spec, there, 0, need_lse, None, stop, cut, arrived)
                if far(found[0], apart[0].float().cpu(), TOLERANCE):
                    return f"{_MERGES} over the kind {kind} do not agree with a kernel's here"
                if apart[1] is not None and far(found[1], apart[1].cpu(), TOLERANCE):
                    return f"{_MERGES} over the kind {kind} do not agree with a kernel's here"
        if arrived.any():
            return f"{_MERGES} leave something in the counts of those that have ended"
    return None


_MERGES = "the merges of the last split"


def arrivals(device: torch.device) -> Tensor:
    """Counts for :func:`launch.plan`."""
    return torch.zeros(launch.TILES, dtype=torch.int32, device=device)


def compare_writes(traits: AttnTraits, device: torch.device) -> str | None:
    """Reason a few steps of attention that rotates and writes are wrong; None where they leave what a kernel of its own
    leaves, bit for bit, and see the same."""
    kind, widths, dtype, spec = traits.kind, traits.widths, traits.dtype, traits.spec
    turns, per_kv = traits.turns, traits.per_kv
    generator = torch.Generator().manual_seed(1)
    batch = batch_of(DECODING)
    arena = arenas(kind, widths, (16, 16), batch, dtype, generator)
    qk = torch.randn(batch.host.T, (per_kv + 1) * arena.kv_heads, widths[0], generator=generator).to(device, dtype)
    v = torch.randn(batch.host.T, arena.kv_heads, widths[1], generator=generator).to(device, dtype)
    table = torch.randn(batch.host.T, 2, turns, generator=generator).to(device, dtype)
    looked_up = TableRotaryStep(table, torch.arange(batch.host.T - 1, -1, -1, device=device)) if turns else None
    rows = None if looked_up is None else RotaryStep(looked_up.cos, looked_up.sin)
    last = batch.kv_len.long() - 1
    pages = batch.page_table[0].long().gather(1, last[:, None] // PAGE_SIZE)[:, 0]
    slots = (pages * PAGE_SIZE + last % PAGE_SIZE).to(device)
    q, k = qk.split((per_kv * arena.kv_heads, arena.kv_heads), 1)
    there = batch_on(batch, device)
    for splits, arrived, rope in ((4, arrivals(device), looked_up), (4, None, rows), (1, None, looked_up)):
        kept, own = (_copy(on(arena, device)) for _ in range(2))
        cut = launch.cut_of(q, kept, spec, there)._replace(splits=splits)
        turned = pack.write(q, k, v, rope, slots, kept)
        apart = launch.attend(turned, kept, spec, there, 0, False, None, None, cut)[0]
        new = NewRows(k, v, rope, slots)
        found = launch.attend(q, own, spec, there, 0, False, None, None, cut, arrived, new)[0]
        for one, other in zip(_tensors(own), _tensors(kept), strict=True):
            if not torch.equal(one.view(torch.uint8), other.view(torch.uint8)):
                return f"what attention over the kind {kind} writes is not what a kernel of its own writes here"
        if far(found, apart.float().cpu(), TOLERANCE):
            return f"attention over the kind {kind} that writes does not agree with that which does not here"
    return None


def _tensors(kv: PackedKV) -> list[Tensor]:
    return [tensor for tensor in (kv.k, kv.v, kv.k_meta, kv.v_meta) if tensor is not None]


def _copy(kv: PackedKV) -> PackedKV:
    k_meta, v_meta = (None if meta is None else meta.clone() for meta in (kv.k_meta, kv.v_meta))
    return kv._replace(k=kv.k.clone(), v=kv.v.clone(), k_meta=k_meta, v_meta=v_meta)


def _packed_stop(batch: Batch) -> Tensor:
    """Whole groups of 32 before each row's last 32 tokens: a range that kivi's arenas have."""
    return ((batch.positions - 32).clamp(min=0) // CHANNEL_GROUP * CHANNEL_GROUP).int()


def far(found: Tensor | None, expected: Tensor | None, share: float) -> bool:
    """NaN counts as far; what is infinite must be so in both."""
    assert found is not None
    assert expected is not None
    found = found.float().cpu()
    if not torch.equal(found.isinf(), expected.isinf()):
        return True
    difference = torch.where(expected.isinf(), 0.0, found - expected)
    scale = torch.where(expected.isinf(), 0.0, expected).abs().max()
    return not bool(difference.abs().max() <= share * scale)


def batch_of(sequences: Sequence[tuple[int, int]], tree: bool = False, seed: int = 2) -> Batch:
    """The batch of sequences (tokens in the cache, new rows) on shuffled pages, on the CPU; as trees all are TREE."""
    starts, lengths = [0], [start + rows for start, rows in sequences]
    for _, rows in sequences:
        starts.append(starts[-1] + rows)
    counts = [-(-length // PAGE_SIZE) for length in lengths]
    # In pairs, as kivi's groups want the table to be.
    wide = max(16, 2 * -(-max(counts) // 2))
    numbers = torch.randperm(wide * len(sequences), generator=torch.Generator().manual_seed(seed)) + 1
    table = numbers.view(1, len(sequences), wide).int()
    depth = [0, 1, 1, 2, 2, 0, 1, 2]
    positions, ancestors = [], []
    for start, rows in sequences:
        positions += [start + (depth[i] if tree else i) for i in range(rows)]
        ancestors += [_path(i) if tree else -1 for i in range(rows)]
    host = HostShape(
        T=starts[-1],
        S=len(sequences),
        L=len(sequences),
        row_start=starts,
        kv_len=lengths,
        pages=[[row[:count] for row, count in zip(table[0].tolist(), counts, strict=True)]],
        first_page=[[-1] * len(sequences)],
        max_rows=max(rows for _, rows in sequences),
        max_kv=max(lengths),
        trees=[tree] * len(sequences) if tree else (),
    )
    return Batch(
        tokens=torch.zeros(starts[-1], dtype=torch.int64),
        positions=torch.tensor(positions),
        placement=Placement(torch.zeros(1, starts[-1], dtype=torch.int64), [-1]),
        row_start=torch.tensor(starts, dtype=torch.int32),
        kv_len=torch.tensor(lengths, dtype=torch.int32),
        page_table=table,
        ancestors=torch.tensor(ancestors) if tree else None,
        want_logits=torch.zeros(0, dtype=torch.int64),
        want_hidden=frozenset(),
        host=host,
    )


def _path(row: int) -> int:
    bits = 0
    while row >= 0:
        bits |= 1 << row
        row = TREE[row]
    return bits


def arenas(
    kind: str,
    widths: tuple[int, int],
    bits: tuple[int, int],
    batch: Batch,
    dtype: torch.dtype,
    generator: torch.Generator,
    kv_heads: int = 2,
) -> PackedKV:
    """Arenas of random numbers, or random codes with scales that make them such, for the pages of the batch.

    They are on the device of the generator.
    """
    device = generator.device
    pages = int(batch.page_table.max()) + 1
    slots = pages * PAGE_SIZE

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    def scales(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator, device=device) * 0.5 + 0.5).half()

    def codes(*shape: int) -> Tensor:
        return torch.randint(0, 256, shape, generator=generator, device=device, dtype=torch.uint8)

    if kind == "latent":
        k = normal(slots, 1, widths[0]).to(dtype)
        return PackedKV(k, k[..., : widths[1]], kind)
    if kind == "wide":
        both = normal(slots, kv_heads, 2 * widths[0]).to(dtype)
        return PackedKV(both[..., widths[0] :], both[..., : widths[1]], kind)
    if kind == "dense":
        k, v = (normal(slots, kv_heads, width).to(dtype) for width in widths)
        return PackedKV(k, v)
    if kind in BYTE_KINDS:
        packed = [pack_absmax(normal(slots, kv_heads, width), kind) for width in widths]
        return PackedKV(packed[0].codes, packed[1].codes, kind, packed[0].meta, packed[1].meta, 8, 8)
    bits = (4, 4) if kind == "int4" else bits
    k, v = (codes(slots, kv_heads, width * bit // 8) for width, bit in zip(widths, bits, strict=True))
    # The scale s and the minimum -s * top / 2 of a group make its numbers lie around 0.
    meta = []
    for width, bit in zip(widths, bits, strict=True):
        scale = scales(slots, kv_heads, width // value_group(width)) * (4 / 2**bit)
        meta.append(torch.stack((scale, scale * ((1 - 2**bit) / 2)), -1))
    if kind == "kivi":
        scale = scales(slots // PAGE_SIZE, kv_heads, widths[0]) * (4 / 2 ** bits[0])
        for s in range(batch.host.S):
            odd, even = (batch.page_table[0, s, place::2].long().to(device) for place in (1, 0))
            scale[odd] = scale[even] * ((1 - 2 ** bits[0]) / 2)
        meta[0] = scale
    return PackedKV(k, v, kind, meta[0], meta[1], *bits)


def on(kv: PackedKV, device: torch.device) -> PackedKV:
    """The arenas on a device, with values in the same layout relative to the keys."""
    if kv.kind == "latent":
        k = kv.k.to(device)
        return PackedKV(k, k[..., : kv.v_dim], kv.kind)
    k_meta, v_meta = (None if meta is None else meta.to(device) for meta in (kv.k_meta, kv.v_meta))
    return PackedKV(kv.k.to(device), kv.v.to(device), kv.kind, k_meta, v_meta, kv.k_bits, kv.v_bits)


def batch_on(batch: Batch, device: torch.device) -> Batch:
    """Copy of a batch whose tensors that the kernels read are on a device."""
    return replace(
        batch,
        tokens=batch.tokens.to(device),
        positions=batch.positions.to(device),
        row_start=batch.row_start.to(device),
        kv_len=batch.kv_len.to(device),
        page_table=batch.page_table.to(device),
        ancestors=None if batch.ancestors is None else batch.ancestors.to(device),
    )
