"""Keys that several sequences of a step share, read once for all their rows.

A made-up sequence for each shared prefix has all those rows; attention over it merges with attention over each row's
own keys (Juravsky et al. 2024, Hydragen, arXiv 2402.05099; FlashInfer's cascade attention).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.transfer import on_device
from engine.compute.attention.interface import KeyRange
from engine.compute.batch import Batch, HostShape

LEAST_PAGES = 16
LEAST_SAVED = 48
"""Pages of a prefix, and pages that are not read again, which are worth a second call and a merge.

Measured with torch's kernels on two cores, 32 heads on 8 of 64: two sequences with 1024 shared keys gain nothing, four
with 256 gain a seventh, eight with 1024 run twice as fast.
"""
MOST_ROWS = 16
"""Rows of a sequence: more read their keys once for all of them as it is."""


class Cluster(NamedTuple):
    """Sequences that begin with the same pages."""

    members: Sequence[int]
    pages: int


class Shared(NamedTuple):
    """The shared part of a batch and the rest."""

    batch: Batch
    """A sequence for each cluster, with all its rows; its pages are in group 0."""
    rows: Tensor
    """[R] int64: the indices of these rows in the step."""
    keys: KeyRange
    """The shared keys, which the rows of `batch` see."""
    own: KeyRange
    """The other keys, which the rows of the step see in addition."""
    saved: int
    """Reads of keys saved in each layer, because shared keys are read once instead of once for each sequence."""


def find_shared(batch: Batch, group: int) -> Shared | None:
    """The prefixes that are worth reading once. Reads only the host mirror, so it does not wait for the device."""
    clusters = list(clusters_of(batch.host, group))
    if not clusters:
        return None
    host, device = batch.host, batch.page_table.device
    rows: list[int] = []
    starts, lengths, tables, stop = [0], list[int](), list[list[int]](), list[int]()
    first = np.zeros(host.T, dtype=np.int64)
    for members, pages in clusters:
        shared = pages * PAGE_SIZE
        for s in members:
            rows += range(host.row_start[s], host.row_start[s + 1])
            first[host.row_start[s] : host.row_start[s + 1]] = shared
        count = len(rows) - starts[-1]
        starts.append(len(rows))
        lengths.append(shared + count)
        stop += [shared] * count
        tables.append([*host.pages[group][members[0]][:pages], *[0] * -(-count // PAGE_SIZE)])
    spans = zip(pairwise(starts), lengths, strict=True)
    index = [place for (begin, end), length in spans for place in range(length - end + begin, length)]
    width = max(len(table) for table in tables)
    made = replace(
        batch,
        tokens=on_device(device, index),
        positions=on_device(device, index),
        row_start=on_device(device, starts).int(),
        kv_len=on_device(device, lengths).int(),
        page_table=on_device(device, np.array([[*table, *[0] * (width - len(table))] for table in tables]))[None].int(),
        ancestors=None,
        want_logits=batch.want_logits[:0],
        host=replace(
            host,
            T=len(rows),
            S=len(clusters),
            L=0,
            row_start=starts,
            kv_len=lengths,
            pages=[tables],
            first_page=[[-1] * len(clusters)],
            max_rows=max(end - begin for begin, end in pairwise(starts)),
            max_kv=max(lengths),
            trees=(),
        ),
    )
    saved = sum((len(cluster.members) - 1) * cluster.pages * PAGE_SIZE for cluster in clusters)
    return Shared(made, on_device(device, rows), KeyRange(None, np.array(stop)), KeyRange(first), saved)


def clusters_of(host: HostShape, group: int) -> Iterator[Cluster]:
    """The sequences of a step that begin with the same pages, where that is worth a second call."""
    if host.S < 2 or host.max_kv <= LEAST_PAGES * PAGE_SIZE:
        return
    whole: dict[int, int] = {}
    """Pages of each sequence that lie before all its new rows."""
    for s in range(host.S):
        count = host.row_start[s + 1] - host.row_start[s]
        before = (host.kv_len[s] - count) // PAGE_SIZE
        if count <= MOST_ROWS and before >= LEAST_PAGES:
            whole[s] = before
    yield from _split(host.pages[group], whole, list(whole), 0)


def _split(pages: Sequence[Sequence[int]], whole: dict[int, int], members: list[int], depth: int) -> Iterator[Cluster]:
    """Members that agree in their first `depth` pages: together if they share enough, else apart where they part."""
    apart: defaultdict[int, list[int]] = defaultdict(list)
    for s in members:
        if whole[s] > depth and pages[s][depth]:  # page 0 is nobody's
            apart[pages[s][depth]].append(s)
    for together in apart.values():
        if len(together) > 1:
            common = _common(pages, whole, together)
            if common >= LEAST_PAGES and (len(together) - 1) * common >= LEAST_SAVED:
                yield Cluster(together, common)
            else:
                yield from _split(pages, whole, together, common)


def _common(pages: Sequence[Sequence[int]], whole: dict[int, int], members: Sequence[int]) -> int:
    """First pages that all members share."""
    model, common = list(pages[members[0]]), min(whole[s] for s in members)
    for s in members[1:]:
        if list(pages[s][:common]) != model[:common]:
            common = next(i for i in range(common) if pages[s][i] != model[i])
    return common
