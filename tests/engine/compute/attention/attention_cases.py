"""Sequences with known keys and values, placed on pages in any order, and attention by definition in float64."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV, Placement
from engine.cache.stores.store import DenseKVStore, KVStore, LatentKVStore
from engine.cache.techniques.quest.store import QuestStore
from engine.compute.attention.interface import AttnSpec
from engine.compute.batch import Batch, SequenceRows
from engine.compute.runner.buffers import BucketPolicy
from engine.compute.runner.runner import Runner

torch.set_num_threads(1)
TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


class OneGroup:
    num_groups = 1


@dataclass
class Case:
    """One sequence: `start` tokens in the cache, `rows` new ones (a tree if `parents`), with their keys and values."""

    start: int
    rows: int
    parents: Sequence[int] | None = None
    q: Tensor = field(default_factory=lambda: torch.empty(0))
    k: Tensor = field(default_factory=lambda: torch.empty(0))
    v: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def length(self) -> int:
        return self.start + self.rows

    def fill(
        self,
        heads: int,
        kv_heads: int,
        width: int,
        dtype: torch.dtype,
        generator: torch.Generator,
        v_width: int | None = None,
    ) -> Case:
        self.q = torch.randn(self.rows, heads, width, generator=generator).to(dtype)
        self.k = torch.randn(self.length, kv_heads, width, generator=generator).to(dtype)
        self.v = torch.randn(self.length, kv_heads, v_width or width, generator=generator).to(dtype)
        return self

    def mask(self, window: int | None, ranges: Sequence[tuple[int, int]] | None = None, ahead: bool = False) -> Tensor:
        """Which keys each new row sees, by definition: the prefix and its path from the root, within the window.

        And of those only the places [first, stop), where each row has a range. `ahead`: in a chain the range alone says
        how far a row sees.
        """
        seen = torch.zeros(self.rows, self.length, dtype=torch.bool)
        for row in range(self.rows):
            path, at = [], row
            while at >= 0:
                path.append(at)
                at = self.parents[at] if self.parents is not None else at - 1
            visible = [*range(self.start), *(self.start + j for j in reversed(path))]
            kept = visible if window is None else visible[-window:]
            if ahead and self.parents is None:
                visible = list(range(self.length))
                kept = visible[visible.index(kept[0]) :]
            if ranges is not None:
                first, stop = ranges[row]
                kept = [key for place, key in enumerate(visible) if key in kept and first <= place < stop]
            seen[row, kept] = True
        return seen

    def expected(
        self, spec: AttnSpec, ranges: Sequence[tuple[int, int]] | None = None, ahead: bool = False
    ) -> tuple[Tensor, Tensor]:
        """o [rows, H, d] and lse [rows, H] in float64."""
        q, k, v = self.q.double(), self.k.double(), self.v.double()
        repeat = q.shape[1] // k.shape[1]
        scores = torch.einsum("rhd,nhd->rhn", q, k.repeat_interleave(repeat, 1)) * spec.scale
        if spec.softcap is not None:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        scores = scores.masked_fill(~self.mask(spec.window, ranges, ahead)[:, None], -torch.inf)
        o = torch.einsum("rhn,nhd->rhd", scores.softmax(-1).nan_to_num(0.0), v.repeat_interleave(repeat, 1))
        return o, scores.logsumexp(-1)


def place(
    cases: Sequence[Case], seed: int | None = None, policy: BucketPolicy | None = None, kind: str = "dense"
) -> tuple[Batch, Tensor, PackedKV]:
    """The batch of the cases, its queries [T, H, d] (strided, as after a fused projection) and the filled arenas.

    Pages are consecutive if `seed` is None, else shuffled by it. `kind` is that of the arenas.
    """
    counts = [-(-case.length // 16) for case in cases]
    numbers = list(range(1, sum(counts) + 8))
    if seed is not None:
        random.Random(seed).shuffle(numbers)
    _, kv_heads, width = cases[0].k.shape
    v_dim, dtype = cases[0].v.shape[2], cases[0].k.dtype
    store: KVStore = DenseKVStore([(kv_heads, width)], len(numbers) + 1, dtype, v_head_dim=v_dim)
    if kind == "latent":
        store = LatentKVStore(1, len(numbers) + 1, v_dim, width - v_dim, dtype)
    if kind == "quest":
        store = QuestStore([(kv_heads, width)], len(numbers) + 1, dtype, bounded=[True])
    rows, at = [], 0
    for case, count in zip(cases, counts, strict=True):
        pages, at = numbers[at : at + count], at + count
        slots = torch.tensor([pages[i // 16] * 16 + i % 16 for i in range(case.length)])
        store.write(0, case.k, case.v, Placement(slots[None], [-1]))
        rows.append(SequenceRows([0] * case.rows, case.start, pages, 0, case.parents))
    batch = Runner(OneGroup(), store, None, policy=policy).batch(rows)  # type: ignore[arg-type]
    q = torch.cat([case.q for case in cases])
    fused = torch.randn(batch.tokens.shape[0], q.shape[1] + 3, width).to(q.dtype)
    fused[: q.shape[0], : q.shape[1]] = q
    kv = store.view(0)
    if kind == "wide":
        both = torch.cat((kv.v, kv.k), 2)
        kv = PackedKV(both[..., v_dim:], both[..., :v_dim], "wide")
    return batch, fused[:, : q.shape[1]], kv


def as_latents(cases: Sequence[Case], v_dim: int) -> None:
    """The cases' values become what their keys begin with."""
    for case in cases:
        case.v = case.k[..., :v_dim]


def expected(cases: Sequence[Case], spec: AttnSpec) -> tuple[Tensor, Tensor]:
    """The cases' o and lse in float64, one after the other."""
    parts = [case.expected(spec) for case in cases]
    return torch.cat([o for o, _ in parts]), torch.cat([lse for _, lse in parts])


def apart(found: Tensor, wanted: Tensor) -> float:
    """The largest difference; two -inf are none."""
    same = found.double() == wanted
    return float((found.double() - wanted).masked_fill(same, 0.0).abs().max())
