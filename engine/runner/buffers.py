"""Static memory behind a batch: fixed tensors for each bucket of shapes, filled in place.

A bucket is a padded shape. Its tensors never move, so a captured graph may keep their addresses. On a CPU a shape is
its own bucket; on CUDA sizes round up to powers of two. Host and device copies are one flat piece of memory each, so
that a step costs one transfer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from engine.batch import power_of_two
from engine.devices import traits

MAX_CACHED_BUCKETS = 64

T = TypeVar("T")


class Bucket(NamedTuple):
    """Padded sizes: rows, sequences, wanted rows, pages of the longest sequence; whether there are ancestors."""

    T: int
    S: int
    L: int
    P: int
    tree: bool


BucketPolicy = Callable[[Bucket], Bucket]


def exact(shape: Bucket) -> Bucket:
    """The shape as it is, but for the width of the page table, which would otherwise change every 16 tokens."""
    return shape._replace(P=max(16, power_of_two(shape.P)))


def powers_of_two(shape: Bucket) -> Bucket:
    """Every size rounded up to a power of two."""
    rows, seqs, wanted, width, tree = shape
    return Bucket(power_of_two(rows), power_of_two(seqs), power_of_two(wanted), max(16, power_of_two(width)), tree)


class BatchInputs(NamedTuple, Generic[T]):
    """Views of one flat piece of memory: the tables of a batch, as the fields of :class:`engine.batch.Batch`."""

    tokens: T
    positions: T
    slots: T  # [groups, rows]
    want_logits: T
    ancestors: T  # empty where the bucket has none
    row_start: T
    kv_len: T
    page_table: T


class BucketBuffers:
    """Memory of one bucket: numpy views of the host's to fill, tensors on the device to hand out."""

    def __init__(self, bucket: Bucket, groups: int, device: torch.device) -> None:
        self.bucket = bucket
        self._groups = groups
        rows, seqs, wanted, width, tree = bucket
        n64 = rows * (2 + groups + tree) + wanted
        n32 = 2 * seqs + 1 + groups * seqs * width
        words = n64 + (n32 + 1) // 2
        self._on_device, self._pinned = device.type != "cpu", traits(device).pinned
        self._host_memory = torch.zeros(words, dtype=torch.int64, pin_memory=self._pinned)
        self._device_memory = (
            torch.zeros(words, dtype=torch.int64, device=device) if self._on_device else self._host_memory
        )
        self._copied: torch.cuda.Event | None = None
        self.device = self._views(self._device_memory, n64)
        self.host = BatchInputs(*(view.numpy() for view in self._views(self._host_memory, n64)))
        # What each row of the page table holds already: tables grow at the end, so a step rarely writes more than
        # nothing.
        self._written: list[list[list[int]]] = [[[] for _ in range(seqs)] for _ in range(groups)]
        self._run = [[0] * seqs for _ in range(groups)]  # and how many of its first pages are consecutive

    def _views(self, flat: Tensor, wide: int) -> BatchInputs[Tensor]:
        """``wide`` words of 64 bits come first, then those of 32."""
        rows, seqs, wanted, width, tree = self.bucket
        groups = self._groups
        tokens, positions, slots, want_logits, ancestors = flat[:wide].split(
            [rows, rows, groups * rows, wanted, rows * tree]
        )
        sizes = [seqs + 1, seqs, groups * seqs * width]
        row_start, kv_len, pages = flat[wide:].view(torch.int32)[: sum(sizes)].split(sizes)
        narrow = row_start, kv_len, pages.view(groups, seqs, width)
        return BatchInputs(tokens, positions, slots.view(groups, rows), want_logits, ancestors, *narrow)

    def begin(self) -> None:
        """Wait until the last transfer has read the host memory, before it is filled again."""
        if self._copied is not None:
            self._copied.synchronize()

    def commit(self) -> None:
        """Send the filled memory to the device."""
        if self._on_device:
            self._device_memory.copy_(self._host_memory, non_blocking=self._pinned)
        if self._pinned:
            self._copied = self._copied or torch.cuda.Event()
            self._copied.record()

    def set_pages(self, group: int, sequence: int, pages: Sequence[int]) -> int:
        """Write one row of the page table; returns how many of its first pages are consecutive."""
        written = self._written[group][sequence]
        new = pages if isinstance(pages, list) else list(pages)
        if written != new:
            keep = len(written) if new[: len(written)] == written else 0
            self.host.page_table[group, sequence, keep : len(new)] = new[keep:]
            self._written[group][sequence] = new.copy()
            run = self._run[group][sequence] if keep else 0
            self._run[group][sequence] = _run_length(new, run) if run == keep else run
        return self._run[group][sequence]

    def clear_pages_from(self, sequence: int) -> None:
        """Point the rows of the page table that no sequence uses at page 0."""
        for group, rows in enumerate(self._written):
            for s in range(sequence, len(rows)):
                if rows[s]:
                    self.host.page_table[group, s] = 0
                    rows[s] = []
                    self._run[group][s] = 0


class Buffers:
    """The buckets of one runner, made when first used; the least recently used ones are given up."""

    def __init__(self, groups: int, device: torch.device, policy: BucketPolicy | None = None) -> None:
        self._groups, self._target = groups, device
        self._policy = policy or (powers_of_two if traits(device).fixed_shapes else exact)
        self._buckets: OrderedDict[Bucket, BucketBuffers] = OrderedDict()

    def take(self, shape: Bucket) -> BucketBuffers:
        """The memory of the bucket that holds the shape, ready to be filled."""
        bucket = self._policy(shape)
        buffers = self._buckets.get(bucket)
        if buffers is None:
            buffers = self._buckets[bucket] = BucketBuffers(bucket, self._groups, self._target)
            if len(self._buckets) > MAX_CACHED_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(bucket)
        buffers.begin()
        return buffers


def fill(target: np.ndarray, values: Sequence[int] | np.ndarray, padding: int = 0) -> None:
    """Write the values to the start of a one-dimensional array and the padding to the rest."""
    n = len(values)
    target[:n] = values
    if n < target.shape[0]:
        target[n:] = padding


def _run_length(pages: list[int], known: int) -> int:
    """How many of the first pages are consecutive, of which `known` are known to be."""
    if pages[-1] - pages[0] == len(pages) - 1 and pages == list(range(pages[0], pages[0] + len(pages))):
        return len(pages)
    length = max(known, 1)
    while length < len(pages) and pages[length] == pages[0] + length:
        length += 1
    return length
