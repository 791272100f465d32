"""Parts that merge: windows beside sinks, packed beside recent keys, any split, several memories."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.cache.policies import WindowWithSinks
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import PackedKV, Placement
from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttentionBackend, AttnSpec, KeyRange, merge
from engine.compute.attention.parts import AttentionPart, parts_of
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import RowViews, SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.runner.runner import Runner
from tests.engine.compute.attention.attention_cases import Case, apart, place
from tests.engine.compute.attention.ranged_cases import cases_of

BACKENDS = [ReferenceAttention, SdpaAttention, BatchInvariantAttention]
WINDOW = WindowWithSinks(64, 4)


def only(backend: AttentionBackend) -> AttentionDispatcher:
    """The combinator over one backend, in the mode in which that one serves."""
    return AttentionDispatcher(Numerics(isinstance(backend, BatchInvariantAttention)), [backend])


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """x [N, H, d] rotated to positions [N] with angles in x's own precision, by definition, pair by pair."""
    half = x.shape[-1] // 2
    angle = positions.to(x.dtype)[:, None] * 100.0 ** -(torch.arange(half, dtype=x.dtype) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def streaming(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, sinks: int) -> Tensor:
    """StreamingLLM for the last row of unrotated q, k, v [N, H, d]: positions are places in the cache (section 3.2).

    The cache holds the first tokens and a window that begins with a page; the query is the last of it.
    """
    n = k.shape[0]
    first = max(0, n - window) // 16 * 16
    kept = [*range(sinks), *range(first, n)] if first else list(range(n))
    at = torch.arange(len(kept))
    rotated = turned(k[kept], at)
    query = turned(q[-1:], at[-1:])[0]
    scores = torch.einsum("hd,nhd->hn", query, rotated) * scale
    return torch.einsum("hn,nhd->hd", scores.softmax(-1), v[kept])


def windowed(
    whole: Case, start: int, backend: AttentionBackend, policy: WindowWithSinks = WINDOW
) -> tuple[Tensor, Tensor]:
    """o and lse of the rows from `start` on, of a case whose q and k are not rotated yet."""
    index = torch.arange(start, whole.length)
    case = Case(start, whole.length - start, None, turned(whole.q[start:], index))
    case.k, case.v = turned(whole.k, torch.arange(whole.length)), whole.v
    batch, q, kv = place([case], 3)
    first, sinks, at = policy.sights(index.numpy())
    batch = replace(batch, views=RowViews(first, sinks, torch.from_numpy(at)))
    sink_q = turned(whole.q[start:], torch.from_numpy(at))
    o, lse = only(backend).attend(q, kv, AttnSpec(0.3), batch, 0, True, None, sink_q)
    assert lse is not None
    return o, lse


@pytest.mark.parametrize(
    ("backend", "dtype", "tolerance"),
    [
        (ReferenceAttention, torch.float64, 1e-12),
        (ReferenceAttention, torch.float32, 1e-5),
        (SdpaAttention, torch.float32, 1e-5),
        (BatchInvariantAttention, torch.float32, 1e-5),
    ],
)
def test_two_parts_are_positions_within_the_cache(
    backend: type[AttentionBackend], dtype: torch.dtype, tolerance: float
) -> None:
    """Window keys with the query at its true position, sinks with the query at its place in the cache: the paper."""
    whole = Case(0, 200).fill(4, 4, 16, dtype, torch.Generator().manual_seed(0))
    for start in (0, 61, 199):
        o, _ = windowed(whole, start, backend())
        for row, t in enumerate(range(start, 200)):
            wanted = streaming(whole.q[: t + 1], whole.k[: t + 1], whole.v[: t + 1], 0.3, 64, 4)
            assert (o[row] - wanted).abs().max() < tolerance


def test_the_position_of_the_query_matters() -> None:
    """With the sinks seen from the true position the result is another: the test above can fail."""
    whole = Case(0, 200).fill(4, 4, 16, torch.float64, torch.Generator().manual_seed(0))
    case = Case(199, 1, None, turned(whole.q[199:], torch.tensor([199])))
    case.k, case.v = turned(whole.k, torch.arange(200)), whole.v
    batch, q, kv = place([case])
    batch = replace(batch, views=RowViews(np.array([128]), np.array([4]), torch.tensor([75])))
    o, _ = AttentionDispatcher().attend(q, kv, AttnSpec(0.3), batch, sink_q=q)
    assert (o[0] - streaming(whole.q, whole.k, whole.v, 0.3, 64, 4)).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_keeps_its_bits_however_it_is_cut(dtype: torch.dtype) -> None:
    whole = Case(0, 260).fill(6, 2, 24, torch.float32, torch.Generator().manual_seed(0))
    index = torch.arange(260)
    q, k = turned(whole.q, index).to(dtype), turned(whole.k, index).to(dtype)
    first, sinks, at = WINDOW.sights(index.numpy())
    sink_q = turned(whole.q, torch.from_numpy(at)).to(dtype)

    def rows(start: int, stop: int) -> Tensor:
        case = Case(start, stop - start, None, q[start:stop], k[:stop], whole.v[:stop].to(dtype))
        batch, some, kv = place([case], start)
        views = RowViews(first[start:stop], sinks[start:stop], torch.from_numpy(at[start:stop]))
        attention = AttentionDispatcher(Numerics(batch_invariant=True))
        o, lse = attention.attend(
            some, kv, AttnSpec(0.2), replace(batch, views=views), 0, True, sink_q=sink_q[start:stop]
        )
        assert lse is not None
        return torch.cat((o.float(), lse[..., None]), -1)

    want = rows(0, 260)
    for size in (1, 7, 64):
        assert torch.equal(torch.cat([rows(a, min(a + size, 260)) for a in range(0, 260, size)]), want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [None, 8, 100])
def test_a_native_window_stays(backend: type[AttentionBackend], window: int | None) -> None:
    """A row sees what both its layer's window and the policy leave."""
    (case,) = cases_of([(0, 220, False)])
    batch, q, kv = place([case], 1)
    index = np.arange(220)
    first, sinks, at = WINDOW.sights(index)
    batch = replace(batch, views=RowViews(first, sinks, torch.from_numpy(at)))
    o, _ = only(backend()).attend(q, kv, AttnSpec(0.25, window), batch, sink_q=q)
    mask = case.mask(window)
    for row in range(220):
        for key in range(220):
            mask[row, key] &= bool(key >= first[row] or key < sinks[row])
    case.mask = lambda window, ranges=None, ahead=False: mask  # type: ignore[method-assign]
    assert apart(o, case.expected(AttnSpec(0.25, window))[0]) < 3e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("sinks", [False, True])
def test_packed_and_recent_keys_merge(backend: type[AttentionBackend], rows: int, sinks: bool) -> None:
    """Keys before B(t) from the main arenas, the others from the recent ones under the pages of group 1."""
    (case,) = cases_of([(250, rows, False)])
    n = case.length
    body, recent = (DenseKVStore([(2, 16)], 40, torch.float32) for _ in range(2))
    pages = [list(range(3, 3 + 19)), list(range(20, 20 + 19))]
    until = np.maximum(0, np.arange(250, n) + 1 - 128) // 32 * 32
    for store, table, keep in (
        (body, pages[0], range(int(until.max()))),
        (recent, pages[1], range(int(until.min()), n)),
    ):
        slots = torch.tensor([table[i // 16] * 16 + i % 16 for i in keep])
        store.write(0, case.k[keep.start : keep.stop], case.v[keep.start : keep.stop], Placement(slots[None], [-1]))
        store.view(0).k[: 3 * 16] = torch.nan
    kv = body.view(0)._replace(recent=recent.view(0))

    class TwoGroups:
        num_groups = 2

    made = Runner(TwoGroups(), body, None).batch([SequenceRows([0] * rows, 250, pages[0], 0, None, (pages[1],))])  # type: ignore[arg-type]
    views = RowViews(packed_until=until)
    mask = case.mask(None)
    if sinks:
        first, count, at = WindowWithSinks(96).sights(np.arange(250, n))
        views = RowViews(first, count, torch.from_numpy(at), until)
        key = torch.arange(n)
        mask &= (key >= torch.from_numpy(first)[:, None]) | (key < torch.from_numpy(count)[:, None])
    case.mask = lambda window, ranges=None, ahead=False: mask  # type: ignore[method-assign]
    attention = only(backend())
    want_o, want_lse = case.expected(AttnSpec(0.25))
    o, lse = attention.attend(case.q, kv, AttnSpec(0.25), replace(made, views=views), 0, True, None, case.q)
    assert lse is not None
    assert apart(o, want_o) < 3e-6
    assert apart(lse, want_lse) < 3e-6


def test_parts_without_keys_are_left_out() -> None:
    none, some = np.zeros(3, np.int64), np.array([0, 16, 32])
    assert parts_of(None, None, False) == [AttentionPart(False, False, None)]
    assert [part.sinks for part in parts_of(RowViews(some, none), None, False)] == [False]
    assert [part.sinks for part in parts_of(RowViews(some, some // 8), None, False)] == [False, True]
    assert [part.recent for part in parts_of(RowViews(packed_until=none), None, True)] == [True]
    assert [part.recent for part in parts_of(RowViews(packed_until=some), None, True)] == [False, True]
    assert len(parts_of(RowViews(some), KeyRange(None, none), False)) == 1


def test_pictures_are_seen_ahead_in_the_layers_that_say_so() -> None:
    until, packed = np.array([3, 3, 3]), np.array([0, 0, 2])
    for ahead, window, sees in (("all", None, True), ("all", 8, True), ("sliding", None, False), ("sliding", 8, True)):
        (part,) = parts_of(RowViews(until=until, ahead=ahead), None, False, window)  # type: ignore[arg-type]
        assert part.keys == (KeyRange(None, until, True) if sees else None)
    body, recent = parts_of(RowViews(packed_until=packed, until=until, ahead="all"), None, True)
    assert (body.keys, recent.keys) != (None, None)
    assert body.keys is not None
    assert recent.keys is not None
    assert (body.keys.stop, recent.keys.first, recent.keys.stop) == (pytest.approx(packed), packed, until)
    (only,) = parts_of(RowViews(until=until, ahead="all"), KeyRange(stop=packed), False)
    assert only.keys is not None
    assert only.keys.stop == pytest.approx(packed)


def split_ranges(stop: np.ndarray, parts: int) -> list[KeyRange]:
    """The keys [0, stop) of each row [T] in so many consecutive ranges of whole pages; some may be empty.

    Attention over each, merged, is attention over all of them, whatever their number (flash decoding's split of keys).
    """
    pages = -(-stop // PAGE_SIZE)
    cuts = [np.minimum(pages * part // parts * PAGE_SIZE, stop) for part in range(parts + 1)]
    return [KeyRange(first, last) for first, last in pairwise(cuts)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_number_of_splits_is_the_whole(backend: type[AttentionBackend]) -> None:
    cases = cases_of([(300, 1, False), (120, 40, False), (2, 1, False)])
    batch, q, kv = place(cases, 2)
    stop = np.concatenate([np.arange(case.start, case.length) + 1 for case in cases])
    want = backend().attend(q, kv, AttnSpec(0.25), batch, 0, True)
    assert want[1] is not None
    for parts in range(1, 17):
        ranges = split_ranges(stop, parts)
        assert len(ranges) == parts
        found = [backend().attend(q, kv, AttnSpec(0.25), batch, 0, True, keys) for keys in ranges]
        o, lse = torch.zeros_like(want[0]), torch.full_like(want[1], -torch.inf)
        for more, more_lse in found:
            assert more_lse is not None
            o, lse = merge(o, lse, more, more_lse)
        assert (o - want[0]).abs().max() < 3e-6
        assert (lse - want[1]).abs().max() < 3e-6


def test_ranges_intersect() -> None:
    a, b = np.array([3, 9]), np.array([5, 2])
    both = KeyRange(a, None).within(KeyRange(b, a))
    assert both.first is not None
    assert both.stop is not None
    assert (both.first.tolist(), both.stop.tolist()) == ([5, 9], [3, 9])
    assert KeyRange().within(KeyRange()) == KeyRange()


def test_the_views_of_a_packed_arena_are_needed() -> None:
    batch, q, kv = place(cases_of([(9, 1, False)]))
    with pytest.raises(AssertionError, match="whoever packs"):
        AttentionDispatcher().attend(q, kv._replace(recent=PackedKV(kv.k, kv.v)), AttnSpec(0.25), batch)
