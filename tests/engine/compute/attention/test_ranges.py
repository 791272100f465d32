"""Every backend with ranges of keys against attention by definition; keys outside the ranges are not touched."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.compute.attention.backends import ranged_plan
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange
from engine.compute.runner.buffers import powers_of_two
from tests.engine.compute.attention.attention_cases import Case, apart, as_latents, place
from tests.engine.compute.attention.ranged_cases import cases_of
from tests.kit.examples import examples
from tests.kit.pairs import pairs

BACKENDS = [ReferenceAttention, SdpaAttention, BatchInvariantAttention]
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2e-2}
Ranges = list[tuple[int, int]]


def random_ranges(cases: list[Case], seed: int) -> list[Ranges]:
    """For each sequence one kind: all its rows alike, each its own, windows of pages, or nothing for some."""
    source = random.Random(seed)

    def one(case: Case) -> Ranges:
        kind, n = source.randrange(5), case.length
        if kind == 0:
            first = source.randrange(n)
            return [(first, source.randint(first, n))] * case.rows
        if kind == 1:
            return [(0, source.randint(0, n)) for _ in range(case.rows)]
        if kind == 2:
            return [(max(0, case.start + i - 20) // 16 * 16, n) for i in range(case.rows)]
        if kind == 3:
            return [(0, 4 if source.random() < 0.5 else 0) for _ in range(case.rows)]
        return [(source.randrange(n + 9), source.randrange(n + 9)) for _ in range(case.rows)]

    return [one(case) for case in cases]


def pictures(cases: list[Case], seed: int) -> list[Ranges]:
    """Rows in blocks that see each other, between rows that see what is before them."""
    source, found = random.Random(seed), list[Ranges]()
    for case in cases:
        first, mine = source.choice([0, source.randrange(case.length)]), list[tuple[int, int]]()
        while case.parents is None and len(mine) < case.rows:
            count = min(source.choice([1, 1, 9, 40]), case.rows - len(mine))
            mine += [(first, case.start + len(mine) + count)] * count
        found.append(mine or [(first, case.length)] * case.rows)
    return found


def key_range(ranges: list[Ranges], ahead: bool = False) -> KeyRange:
    flat = np.array([pair for part in ranges for pair in part], dtype=np.int64).reshape(-1, 2)
    return KeyRange(flat[:, 0].copy(), flat[:, 1].copy(), ahead)


def expected(cases: list[Case], spec: AttnSpec, ranges: list[Ranges], ahead: bool = False) -> tuple[Tensor, Tensor]:
    parts = [case.expected(spec, own, ahead) for case, own in zip(cases, ranges, strict=True)]
    return torch.cat([o for o, _ in parts]), torch.cat([lse for _, lse in parts])


def compare(
    backend: AttentionBackend,
    cases: list[Case],
    spec: AttnSpec,
    ranges: list[Ranges],
    seed: int,
    kind: str = "dense",
    ahead: bool = False,
) -> None:
    batch, q, kv = place(cases, seed if seed % 3 else None, powers_of_two if seed % 2 else None, kind)
    want_o, want_lse = expected(cases, spec, ranges, ahead)
    rows, tolerance, keys = want_o.shape[0], TOLERANCE[q.dtype], key_range(ranges, ahead)
    o, lse = backend.attend(q, kv, spec, batch, 0, True, keys)
    assert lse is not None
    assert apart(o[:rows], want_o) < tolerance
    assert apart(lse[:rows], want_lse) < tolerance
    assert bool((lse[rows:] == -torch.inf).all())
    alone, none = backend.attend(q, kv, spec, batch, 0, False, keys)
    assert none is None
    assert apart(alone[:rows], want_o) < tolerance
    assert not alone[rows:].any()


SHAPES = {
    "decode": [(140, 1, False)],
    "chunk": [(131, 150, False)],
    "tree": [(77, 0, True)],
    "decodes": [(5, 1, False), (20, 1, False), (21, 1, False), (10, 1, False)],
    "mixed": [(5, 1, False), (0, 33, False), (40, 5, False), (9, 1, False), (7, 1, False)],
    "mixed with trees": [(3, 0, True), (90, 70, False), (60, 1, False), (16, 0, True)],
}


def _not_native(
    backend: type[AttentionBackend], dtype: torch.dtype, shapes: list[tuple[int, int, bool]], **_: object
) -> bool:
    """Native attention has no trees, and no keys in float32."""
    return backend is NativeAttention and (dtype == torch.float32 or any(tree for _, _, tree in shapes))


@pairs(
    backend=[*BACKENDS, NativeAttention],
    dtype=[torch.float32, torch.bfloat16],
    window=[None, 20],
    shapes=SHAPES,
    without=_not_native,
)
def test_matches_the_definition(
    backend: type[AttentionBackend], dtype: torch.dtype, window: int | None, shapes: list[tuple[int, int, bool]]
) -> None:
    width = 16
    if backend is NativeAttention:
        width = 32
        reason = backend().declines(AttnProblem("cpu", dtype, AttnSpec(0.25, window), head_dims=(32, 32)))
        if reason is not None:
            pytest.skip(reason)
    cases = cases_of(shapes, dtype=dtype, width=width)
    for seed in range(12):
        compare(backend(), cases, AttnSpec(0.25, window), random_ranges(cases, seed), seed)
    for seed in range(6):
        compare(backend(), cases, AttnSpec(0.25, window), pictures(cases, seed), seed, ahead=True)


sequences = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90), st.booleans()), min_size=1, max_size=5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_batch(backend: type[AttentionBackend]) -> None:
    @examples(25)
    @given(sequences, st.none() | st.integers(1, 150), st.integers(0, 99), st.sampled_from([(4, 4), (8, 1), (6, 2)]))
    def run(shapes: list[tuple[int, int, bool]], window: int | None, seed: int, heads: tuple[int, int]) -> None:
        cases = cases_of(shapes, heads)
        compare(backend(), cases, AttnSpec(0.25, window), random_ranges(cases, seed), seed)
        compare(backend(), cases, AttnSpec(0.25, window), pictures(cases, seed), seed, ahead=True)

    run()


@pytest.mark.parametrize("backend", [ReferenceAttention, BatchInvariantAttention])
def test_softcap(backend: type[AttentionBackend]) -> None:
    cases = cases_of([(30, 1, False), (12, 20, False), (9, 0, True)])
    for seed in range(6):
        compare(backend(), cases, AttnSpec(2.0, 25, 1.5), random_ranges(cases, seed), seed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_latents(backend: type[AttentionBackend]) -> None:
    cases = cases_of(SHAPES["mixed with trees"], (4, 1))
    as_latents(cases, 10)
    for seed in range(6):
        compare(backend(), cases, AttnSpec(0.25), random_ranges(cases, seed), seed, "latent")


@pytest.mark.parametrize("backend", BACKENDS)
def test_open_ends(backend: type[AttentionBackend]) -> None:
    cases = cases_of([(40, 20, False), (33, 1, False)])
    batch, q, kv = place(cases, 1)
    bounds = np.array([7] * 20 + [20], dtype=np.int64)
    for keys, ranges in (
        (KeyRange(), [[(0, 99)] * 20, [(0, 99)]]),
        (KeyRange(bounds), [[(7, 99)] * 20, [(20, 99)]]),
        (KeyRange(None, bounds), [[(0, 7)] * 20, [(0, 20)]]),
    ):
        o, _ = backend().attend(q, kv, AttnSpec(0.25), batch, 0, False, keys)
        assert apart(o, expected(cases, AttnSpec(0.25), ranges)[0]) < 3e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 40])
def test_pages_outside_every_range_may_hold_anything(backend: type[AttentionBackend], rows: int) -> None:
    """They are dead: their memory belongs to somebody else by now."""
    cases = cases_of([(400, rows, False), (37, 1, False)])
    ranges = [[((300 + i) // 16 * 16, 390) for i in range(rows)], [(0, 4)]]
    batch, q, kv = place(cases, 1)
    clean, _ = backend().attend(q, kv, AttnSpec(0.25), batch, 0, False, key_range(ranges))
    for number in (torch.nan, torch.inf, 3e38):
        table = batch.page_table[0, 0]
        for page in (*table[: 300 // 16].tolist(), *table[25 : -(-(400 + rows) // 16)].tolist()):
            kv.k[page * 16 : page * 16 + 16] = number
            kv.v[page * 16 : page * 16 + 16] = number
        dirty, _ = backend().attend(q, kv, AttnSpec(0.25), batch, 0, False, key_range(ranges))
        assert torch.equal(dirty, clean)


@pytest.mark.parametrize("shape", [(300, 1, False), (260, 200, False)])
def test_long_common_ranges_are_split_off_and_merged(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, bool]
) -> None:
    monkeypatch.setattr(ranged_plan, "SPLIT_PREFIX", 64)
    cases = cases_of([shape, (3, 2, False)])
    for stop in (200, 290, 999):
        compare(SdpaAttention(), cases, AttnSpec(0.25), [[(16, stop)] * shape[1], [(0, 9)] * 2], 1)


def test_only_the_range_is_read() -> None:
    cases = cases_of([(2000, 1, False), (3000, 70, False)])
    batch, q, _ = place(cases)
    ranges = [[(1600, 2001)], [(2400 + i // 16 * 16, 2000 + 1000 + i) for i in range(70)]]
    plan = ranged_plan.make_ranged_plan(batch, AttnSpec(0.25), 0, 2, q.dtype, key_range(ranges))
    assert [source.length for source in plan.sources] == [401, 3069 - 2400]
    nothing = ranged_plan.make_ranged_plan(batch, AttnSpec(0.25), 0, 2, q.dtype, KeyRange(None, np.zeros(71, np.int64)))
    assert nothing.sources == []
    assert nothing.padded is None


def test_ranges_of_the_same_batch_do_not_share_a_plan() -> None:
    backend, (case,) = SdpaAttention(), cases_of([(90, 3, False)])
    batch, q, kv = place([case])
    for stop in (10, 50, 93):
        o, _ = backend.attend(q, kv, AttnSpec(0.25), batch, 0, False, key_range([[(0, stop)] * 3]))
        assert apart(o, expected([case], AttnSpec(0.25), [[(0, stop)] * 3])[0]) < 3e-6
    whole, _ = backend.attend(q, kv, AttnSpec(0.25), batch)
    assert apart(whole, case.expected(AttnSpec(0.25))[0]) < 3e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_invariant_bits_in_any_company(dtype: torch.dtype) -> None:
    """A row and its range alone, in any chunk, and among others."""

    @examples(25)
    @given(st.integers(1, 560), st.data())
    def run(length: int, data: st.DataObject) -> None:
        whole = Case(0, length).fill(6, 2, 24, dtype, torch.Generator().manual_seed(0))
        every = random_ranges([whole], data.draw(st.integers(0, 99)))[0]
        start = data.draw(st.integers(0, length - 1))
        stop = data.draw(st.integers(start + 1, length))
        part = Case(start, stop - start, None, whole.q[start:stop], whole.k[:stop], whole.v[:stop])
        other = Case(30, 9).fill(6, 2, 24, dtype, torch.Generator().manual_seed(1))
        spec = AttnSpec(0.2, data.draw(st.none() | st.integers(1, 300)))
        batch, q, kv = place([other, part], data.draw(st.integers(0, 99)))
        found = BatchInvariantAttention().attend(
            q, kv, spec, batch, 0, True, key_range([[(3, 20)] * 9, every[start:stop]])
        )
        batch, q, kv = place([whole])
        wanted = BatchInvariantAttention().attend(q, kv, spec, batch, 0, True, key_range([every]))
        for a, b in zip(found, wanted, strict=True):
            assert a is not None
            assert b is not None
            assert torch.equal(a[9:], b[start:stop])

    run()
