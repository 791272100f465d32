"""Interface of attention backends, and the one function that merges two attentions.

Attention over a set of keys gives (o, lse): the output and the log of the sum of the exponentiated scores. Attention
over the union of two sets follows from the two results alone, so split keys, cached plus new keys, and windows plus
sinks are all merges.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV
from engine.cache.stores.store import KVStore
from engine.compute.attention.rotation import RotaryStep, TableRotaryStep
from engine.compute.batch import Batch, HostShape


class AttnSpec(NamedTuple):
    """Attention parameters of one layer.

    scale multiplies q·k. A window of w lets a query at index i see the keys with i - w < index <= i. A softcap c
    replaces a scaled score x by c * tanh(x / c).
    """

    scale: float
    window: int | None = None
    softcap: float | None = None


class KeyRange(NamedTuple):
    """Keys that each real row of a batch may see, [T] int64 on the host: first <= index < stop in its own sequence.

    `first` None is 0, `stop` None the end of the sequence. Causality, a tree's ancestors and the window hold besides.
    As for a window, a new row of a tree counts as the key at root + depth. `ahead`: of a chained row `stop` alone says
    how far it sees, which may be past its own key.
    """

    first: np.ndarray | None = None
    stop: np.ndarray | None = None
    ahead: bool = False

    def within(self, other: KeyRange) -> KeyRange:
        """The keys that are in both."""
        first = _one_of(np.maximum, self.first, other.first)
        return KeyRange(first, _one_of(np.minimum, self.stop, other.stop), self.ahead or other.ahead)

    def of_rows(self, rows: slice) -> KeyRange:
        """The ranges of some rows."""
        first, stop = (None if bound is None else bound[rows] for bound in (self.first, self.stop))
        return KeyRange(first, stop, self.ahead)

    def of_chain(self, index: np.ndarray, window: int | None) -> tuple[np.ndarray, np.ndarray]:
        """`first` and `stop` of the keys that chained rows with these indices [T] see in it, in a window if any."""
        first = np.zeros_like(index) if window is None else np.maximum(0, index + 1 - window)
        first = first if self.first is None else np.maximum(first, self.first)
        if self.stop is None:
            return first, index + 1
        return first, self.stop if self.ahead else np.minimum(index + 1, self.stop)


def _one_of(choose: np.ufunc, a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(choose(a, b))


class AttnProblem(NamedTuple):
    """Traits of a call by which a backend accepts or declines it."""

    device: str  # a name of `engine.base.devices.TRAITS`
    dtype: torch.dtype
    spec: AttnSpec
    kind: str = "dense"  # of PackedKV
    tree: bool = False  # the batch has ancestors
    batch_invariant: bool = False
    head_dims: tuple[int, int] = (64, 64)  # of keys and of values
    heads_per_kv: int = 4  # query heads that read the same keys
    kv_dtype: torch.dtype | None = None  # of keys and values that are not packed; None: that of the queries
    shared: bool = False  # asks whether keys that sequences share are worth a call of their own
    ahead: bool = False  # rows see keys after their own (`KeyRange.ahead`)


class NewRows(NamedTuple):
    """Keys and values of a step whose sequences have one row each, not yet written; neither are keys and queries
    rotated."""

    k: Tensor
    """[T, H_kv, d_k]; heads may lie apart, their channels not."""
    v: Tensor
    rope: RotaryStep | None
    """None: nothing rotates."""
    slots: Tensor
    """[T] int64, where they go."""

    @property
    def form(self) -> Hashable:
        """The part of them that decides a launch."""
        turns = None
        if isinstance(self.rope, TableRotaryStep):
            turns = self.rope.width, 0
        elif self.rope is not None:
            turns = self.rope.width, self.rope.cos.stride(0)
        aligned = all(x.is_meta or x.data_ptr() % 16 == 0 for x in (self.k, self.v))
        return self.k.stride(), self.v.stride(), turns, aligned


class AttentionBackend(Protocol):
    """One way to compute attention over paged keys."""

    name: str
    captures: bool
    """True if its calls over a frozen batch can be captured."""

    def declines(self, problem: AttnProblem) -> str | None:
        """Reason this backend cannot serve the problem; None if it can."""

    def attend(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
        keys: KeyRange | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend q [T, H, d_k] to the keys of each row's own sequence, this step's keys included (already written).

        Returns o [T, H, d_v] in the dtype of q, zero for padding rows, and lse [T, H] float32, float64 for float64
        queries (None unless asked for). Query head h reads KV head h // (H / H_kv). `keys` leaves out keys; a row
        without any gives (0, -inf), and keys that no row sees do not matter, whatever numbers they are.
        """

    def attend_new(
        self,
        q: Tensor,
        new: NewRows,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
    ) -> tuple[Tensor, Tensor | None] | None:
        """Same as :meth:`attend`, of queries that are not rotated yet and rows that are not written: it does both.

        None where it does not, as most backends never do, and nothing was done.
        """
        return None


class ModelAttention(Protocol):
    """The attention that a model's layers call: a backend, or what combines the calls of backends by `batch.views`."""

    uncaptured: str
    """Reason the calls since it was last emptied cannot be captured; "" if they can."""

    def shares_keys(self, host: HostShape) -> bool:
        """Return True if keys that sequences of this step share would be read once for all of them."""

    def attend(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
        keys: KeyRange | None = None,
        sink_q: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Same as `AttentionBackend.attend`. `sink_q` is q rotated to `batch.views.sink_positions` where set."""

    def attend_new(
        self,
        store: KVStore,
        layer: int,
        qk: Tensor,
        heads: int,
        v: Tensor,
        rope: RotaryStep | None,
        spec: AttnSpec,
        batch: Batch,
        need_lse: bool = False,
    ) -> tuple[Tensor, Tensor | None] | None:
        """`writing.write_rotated` and :meth:`attend` by one kernel; None where there is none, and nothing was done."""


def merge(o1: Tensor, lse1: Tensor, o2: Tensor, lse2: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over two disjoint sets of keys from those over each (Milakov and Gimelshein 2018; FlashAttention).

    o [..., d] and lse [...]; an empty part is (0, -inf), and two empty parts give (0, -inf). Computes in the dtype of
    lse and returns o in the dtype of o1.
    """
    top = torch.maximum(lse1, lse2)
    base = torch.where(top == -torch.inf, torch.zeros_like(top), top)  # keeps -inf - -inf out of both parts
    w1, w2 = torch.exp(lse1 - base), torch.exp(lse2 - base)
    total = w1 + w2
    share = torch.where(total == 0, torch.ones_like(total), total)
    o = o1.to(lse1.dtype) * (w1 / share).unsqueeze(-1) + o2.to(lse1.dtype) * (w2 / share).unsqueeze(-1)
    return o.to(o1.dtype), base + torch.log(total)
