"""Static memory behind a batch: one flat piece on the host and one on the device, and the page tables.

What a step tells the device travels in one copy. Tensors of one bucket (a padded shape) lie at the same addresses at
every step, so a captured graph may keep them; every field begins at an address that 16 divides, because Triton compiles
another kernel for one that does not. Page tables stay on the device: only entries that changed travel.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from engine.base.devices import traits
from engine.cache.stores.transfer import on_device
from engine.compute.batch import power_of_two

MAX_CACHED_BUCKETS = 64
LEAST_WORDS = 1 << 15
"""64-bit words of the flat memory at first: those of 4,096 rows."""
PATCHES = 128
"""Changed entries of page tables that travel with a step; more of them (new sequences) take a copy of their own."""
FEW_CHANGES = 8
"""Entries of one table that are written by themselves: those of pages that left a window."""
_EVEN = 2
"""Words of 64 bits in 16 bytes."""

T = TypeVar("T")


class Bucket(NamedTuple):
    """Padded sizes: rows, sequences, wanted rows; whether there are ancestors."""

    T: int
    S: int
    L: int
    tree: bool


BucketPolicy = Callable[[Bucket], Bucket]


def exact(shape: Bucket) -> Bucket:
    """The shape as it is."""
    return shape


def sixteens(shape: Bucket) -> Bucket:
    """Prompts in multiples of 16 rows, which matrix units like; a twentieth more work at most."""
    return shape._replace(T=-(-shape.T // 16) * 16) if shape.T > 64 else shape


def powers_of_two(shape: Bucket) -> Bucket:
    """Every size rounded up to a power of two."""
    return Bucket(power_of_two(shape.T), power_of_two(shape.S), power_of_two(shape.L), shape.tree)


def _policy_of(device: torch.device) -> BucketPolicy:
    if traits(device).fixed_shapes:
        return powers_of_two
    return sixteens if traits(device).gpu else exact


class BatchInputs(NamedTuple, Generic[T]):
    """Views of one flat piece of memory: the tables of a batch, as the fields of a `Batch`."""

    tokens: T
    positions: T
    slots: T  # [groups, rows]
    want_logits: T
    ancestors: T  # empty where the bucket has none
    patch_places: T  # where entries of the flat page tables changed ...
    row_start: T
    kv_len: T
    patch_values: T  # ... and what they are now


class StepMemory(NamedTuple):
    """The memory of one bucket: numpy views of the host's to fill, tensors on the device to hand out."""

    bucket: Bucket
    host: BatchInputs[np.ndarray]
    device: BatchInputs[Tensor]
    words: int
    """The 64-bit words that the bucket takes from the start of the flat memory."""


class Buffers:
    """The flat memory of one runner, as the buckets that were asked for see it."""

    def __init__(self, groups: int, device: torch.device, policy: BucketPolicy | None = None) -> None:
        self._groups, self._target = groups, device
        self._policy = policy or _policy_of(device)
        self._buckets: OrderedDict[Bucket, StepMemory] = OrderedDict()
        self._on_device, self._pinned = device.type != "cpu", traits(device).pinned
        self._copied: torch.cuda.Event | None = None
        self.generation = 0
        """Grows when the flat memory moves: what keeps its addresses is then of no use."""
        self._allocate(LEAST_WORDS)

    def _allocate(self, words: int) -> None:
        self._host = torch.zeros(words, dtype=torch.int64, pin_memory=self._pinned)
        self._device = torch.zeros_like(self._host, device=self._target) if self._on_device else self._host
        self._buckets.clear()
        self.generation += 1

    def take(self, shape: Bucket, padded: bool = False) -> StepMemory:
        """The memory of the bucket that holds the shape (of the shape itself where it is ``padded`` already), ready to
        be filled."""
        if self._copied is not None:
            self._copied.synchronize()  # the last transfer has read the host's memory
        bucket = shape if padded else self._policy(shape)
        memory = self._buckets.get(bucket)
        if memory is None:
            memory = self._buckets[bucket] = self._views_of(bucket)
            if len(self._buckets) > MAX_CACHED_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(bucket)
        return memory

    def commit(self, memory: StepMemory) -> None:
        """Send the filled memory to the device."""
        if self._on_device:
            self._device[: memory.words].copy_(self._host[: memory.words], non_blocking=self._pinned)
        if self._pinned:
            self._copied = self._copied or torch.cuda.Event()
            self._copied.record()

    def _views_of(self, bucket: Bucket) -> StepMemory:
        rows, seqs, wanted, tree = bucket
        wide = [rows, rows, self._groups * _even(rows), wanted, rows * tree, PATCHES]
        narrow = [seqs + 1, seqs, PATCHES]
        words = sum(map(_even, wide)) + sum(_even(-(-size // 2)) for size in narrow)
        if words > self._host.numel():
            self._allocate(power_of_two(words))

        def views(flat: Tensor) -> BatchInputs[Tensor]:
            at, found = 0, list[Tensor]()
            for size in wide:
                found.append(flat[at : at + size])
                at += _even(size)
            for size in narrow:
                found.append(flat[at : at + _even(-(-size // 2))].view(torch.int32)[:size])
                at += _even(-(-size // 2))
            found[2] = found[2].view(self._groups, -1)[:, :rows]
            return BatchInputs(*found)

        on_host = BatchInputs(*(view.numpy() for view in views(self._host)))
        return StepMemory(bucket, on_host, views(self._device), words)


class PageTables:
    """The page numbers of a step's sequences, [groups, S, P] int32 on the device; row s serves sequence s of a step."""

    def __init__(self, groups: int, device: torch.device, pages: int = 16) -> None:
        """``pages``: those that the longest sequence may have, where that is known."""
        self._target, self._groups = device, groups
        self._width = max(16, power_of_two(pages))
        self._rows = 1
        self.generation = 0
        """Grows when the tables move."""
        self._allocate()

    def _allocate(self) -> None:
        shape = self._groups, self._rows, self._width
        self.device = torch.zeros(shape, dtype=torch.int32, device=self._target)
        # What a row of the table holds already: tables grow at the end, so a step rarely writes more than nothing.
        self._written: list[list[list[int]]] = [[[] for _ in range(self._rows)] for _ in range(self._groups)]
        self._run = [[0] * self._rows for _ in range(self._groups)]  # its first pages that are consecutive
        self._changed: dict[int, int] = {}  # entries of the flat tables
        self._host: np.ndarray | None = None
        if self._target.type == "cpu":
            self._host = self.device.view(-1).numpy()
        self.generation += 1

    def reserve(self, sequences: int, pages: int) -> None:
        """Make room; what the tables held may be gone, and is written again by :meth:`set`."""
        if sequences > self._rows or pages > self._width:
            self._rows = max(self._rows, power_of_two(sequences))
            self._width = max(self._width, power_of_two(pages))
            self._allocate()

    def set(self, group: int, sequence: int, pages: Sequence[int]) -> int:
        """Write one row; returns how many of its first pages are consecutive."""
        written = self._written[group][sequence]
        new = pages if isinstance(pages, list) else list(pages)
        if written != new:
            keep = len(written) if new[: len(written)] == written else 0
            pairs = [] if keep == len(written) else zip(written, new, strict=False)
            changed = [at for at, (old, now) in enumerate(pairs) if old != now]
            if len(changed) <= FEW_CHANGES:
                for at in changed:
                    self._put(group, sequence, at, new[at : at + 1])
                self._put(group, sequence, len(written), new[len(written) :])
            else:
                self._put(group, sequence, 0, new)
            self._written[group][sequence] = new.copy()
            run = self._run[group][sequence] if keep else 0
            self._run[group][sequence] = _run_length(new, run) if run == keep else run
        return self._run[group][sequence]

    def send(self, memory: StepMemory) -> int:
        """Put what changed into the host memory of the step; returns how many entries :meth:`apply` is to write."""
        count = len(self._changed)
        if 0 < count <= PATCHES:
            memory.host.patch_places[:count] = list(self._changed)
            memory.host.patch_values[:count] = list(self._changed.values())
        return count

    def apply(self, memory: StepMemory, count: int) -> None:
        """Write the changed entries on the device, after the memory of the step went there."""
        if not count:
            return
        places, values = memory.device.patch_places[:count], memory.device.patch_values[:count]
        if count > PATCHES:
            places = on_device(self._target, np.array(list(self._changed), dtype=np.int64))
            values = on_device(self._target, np.array(list(self._changed.values()), dtype=np.int32))
        self.device.view(-1).index_copy_(0, places, values)
        self._changed.clear()

    def _put(self, group: int, sequence: int, start: int, values: list[int]) -> None:
        place = (group * self._rows + sequence) * self._width + start
        if self._host is not None:
            self._host[place : place + len(values)] = values
        else:
            self._changed.update(zip(range(place, place + len(values)), values, strict=True))


def fill(target: np.ndarray, values: Sequence[int] | np.ndarray, padding: int = 0) -> None:
    """Write the values to the start of a one-dimensional array and the padding to the rest."""
    n = len(values)
    target[:n] = values
    if n < target.shape[0]:
        target[n:] = padding


def _even(words: int) -> int:
    return -(-words // _EVEN) * _EVEN


def _run_length(pages: list[int], known: int) -> int:
    """Number of the first pages that are consecutive, of which `known` are known to be."""
    if pages[-1] - pages[0] == len(pages) - 1 and pages == list(range(pages[0], pages[0] + len(pages))):
        return len(pages)
    length = max(known, 1)
    while length < len(pages) and pages[length] == pages[0] + length:
        length += 1
    return length
