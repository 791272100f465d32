"""Form of latent attention for each sequence of a step: over latents, or over keys and values expanded from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import Placement
from engine.cache.stores.transfer import on_device
from engine.compute.batch import Batch
from engine.compute.layers.numerics import Numerics

if TYPE_CHECKING:
    from engine.config.attention import LatentShape


EXPANDED_BYTES = 64 << 20
"""Keys and values expanded at a time: as many heads as go in. Where not even one does, a sequence is absorbed."""


class SubBatch(NamedTuple):
    """Some sequences of a step: a batch of them alone, and their ``rows [R]`` in the step."""

    batch: Batch
    rows: Tensor


class Expansion(NamedTuple):
    """Same as :class:`SubBatch`, for a temporary arena: page p holds the tokens of ``slots[16 * p :]`` ``[N]``."""

    batch: Batch
    rows: Tensor
    slots: Tensor


class Forms(NamedTuple):
    """``absorbed`` None: no sequence; and where ``expanded`` is None, all are absorbed."""

    absorbed: SubBatch | None
    expanded: Expansion | None


def expanding_pays(shape: LatentShape, rows: int, keys: int) -> bool:
    """Return True if ``rows`` new tokens among ``keys`` cost fewer multiplications of a head in the expanded form.

    Per pair of query and key: rank + rope and rank against nope + rope and value. On the other side stands the
    projection: of every key here, of every row (query and result) in the absorbed form. One row is never worth it.
    """
    pairs = rows * (keys - rows) + rows * (rows + 1) // 2
    projection = shape.rank * (shape.nope + shape.value)
    absorbed = pairs * (2 * shape.rank + shape.rope) + rows * projection
    expanded = pairs * (shape.nope + shape.rope + shape.value) + keys * projection
    return rows > 1 and expanded < absorbed


class FormPlanner:
    """Decides once for all layers of a step; batch-invariant numerics always absorb."""

    def __init__(self, shape: LatentShape, numerics: Numerics, itemsize: int) -> None:
        """``itemsize`` is that of the model's dtype, in bytes."""
        self.shape, self.numerics = shape, numerics
        self._most = EXPANDED_BYTES // (itemsize * (shape.rank + shape.nope + 2 * shape.rope + shape.value))
        self._batch: Batch | None = None
        self._forms = Forms(None, None)

    def plan(self, batch: Batch) -> Forms:
        """Reads only the host mirror, so it does not wait for the device."""
        if batch is not self._batch:
            self._batch, self._forms = batch, self._planned(batch)
        return self._forms

    def _planned(self, batch: Batch) -> Forms:
        if self.numerics.batch_invariant:
            return Forms(None, None)
        host = batch.host
        expanded: list[int] = []
        left = self._most
        for s, keys in enumerate(host.kv_len[: host.S]):
            if keys <= left and expanding_pays(self.shape, host.row_start[s + 1] - host.row_start[s], keys):
                expanded.append(s)
                left -= keys
        if not expanded:
            return Forms(None, None)
        rest = sorted(set(range(host.S)).difference(expanded))
        return Forms(subset(batch, rest) if rest else None, expansion(batch, expanded))


def subset(batch: Batch, sequences: Sequence[int]) -> SubBatch:
    """The batch of some sequences alone, on their own pages, without padding rows and without logits."""
    assert batch.views is None, "no policy restricts latents (engine/cache/policies.py)"
    host, device = batch.host, batch.page_table.device
    spans = [(host.row_start[s], host.row_start[s + 1]) for s in sequences]
    rows = torch.cat([torch.arange(start, stop, device=device) for start, stop in spans])
    starts = [0]
    for start, stop in spans:
        starts.append(starts[-1] + stop - start)
    kv_len = [host.kv_len[s] for s in sequences]
    trees = [host.trees[s] for s in sequences] if host.trees else []
    chosen = on_device(device, list(sequences))
    made = replace(
        batch,
        tokens=batch.tokens[rows],
        positions=batch.positions[rows],
        placement=Placement(batch.placement.slots[:, rows], [-1] * len(batch.placement.first_slot)),
        row_start=on_device(device, starts).int(),
        kv_len=on_device(device, kv_len).int(),
        page_table=batch.page_table[:, chosen],
        ancestors=batch.ancestors[rows] if batch.ancestors is not None and any(trees) else None,
        want_logits=batch.want_logits[:0],
        host=replace(
            host,
            T=starts[-1],
            S=len(sequences),
            L=0,
            row_start=starts,
            kv_len=kv_len,
            pages=[[group[s] for s in sequences] for group in host.pages],
            first_page=[[group[s] for s in sequences] for group in host.first_page],
            max_rows=max(stop - start for start, stop in spans),
            max_kv=max(kv_len),
            trees=trees if any(trees) else (),
        ),
    )
    return SubBatch(made, rows)


def expansion(batch: Batch, sequences: Sequence[int]) -> Expansion:
    """The batch of some sequences on pages of a temporary arena, numbered from 0, one sequence after the other."""
    part = subset(batch, sequences)
    host, device = part.batch.host, batch.page_table.device
    counts = [-(-length // PAGE_SIZE) for length in host.kv_len]
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    taken = torch.cat([part.batch.page_table[0, i, :count] for i, count in enumerate(counts)]).long()
    slots = (taken[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE, device=device)).flatten()
    # Beyond a sequence's end a table may name any page of the arena: it is masked.
    table = on_device(device, firsts)[:, None] + torch.arange(max(counts), device=device)
    made = replace(
        part.batch,
        page_table=table.clamp_(max=sum(counts) - 1).int()[None],
        host=replace(
            host,
            pages=[[range(first, first + count) for first, count in zip(firsts, counts, strict=True)]],
            first_page=[firsts],
        ),
    )
    return Expansion(made, part.rows, slots)
