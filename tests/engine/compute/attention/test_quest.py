"""QUEST: the bound holds, a full budget is dense attention, and what is far above the rest is never missed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.stores.packed import Placement
from engine.cache.techniques.quest.store import QuestStore
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.quest import QuestAttention, Rows, choose_pages, page_scores
from engine.compute.runner.buffers import powers_of_two
from tests.engine.compute.attention.attention_cases import Case, expected, place
from tests.kit.examples import examples

HEADS, KV_HEADS, WIDTH = 6, 2, 24
SPEC = AttnSpec(0.2)


def sequence(start: int, rows: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Case:
    return Case(start, rows).fill(HEADS, KV_HEADS, WIDTH, dtype, torch.Generator().manual_seed(seed))


def part(whole: Case, start: int, stop: int) -> Case:
    """The rows [start, stop) of a sequence, what is before them in the cache."""
    return Case(start, stop - start, None, whole.q[start:stop], whole.k[:stop], whole.v[:stop])


def quest(
    cases: list[Case], pages: int, seed: int | None = None, spec: AttnSpec = SPEC, invariant: bool = False
) -> list[Tensor]:
    """o and lse of each case with a budget of so many pages, side by side [rows, H, d + 1]."""
    batch, q, kv = place(cases, seed, powers_of_two if seed is not None and seed % 2 else None, "quest")
    budgets = np.zeros(q.shape[0], np.int64)
    budgets[: batch.host.T] = pages
    o, lse = QuestAttention().attend(q, kv, spec, batch, budgets, invariant=invariant)
    assert (o.dtype, lse.dtype) == (q.dtype, torch.float32)
    return list(torch.cat((o.float(), lse[..., None]), -1).split([case.rows for case in cases]))


def by_definition(case: Case, pages: int, spec: AttnSpec = SPEC) -> Tensor:
    """The same in float64, a row and a head at a time."""
    q, k, v = case.q.double(), case.k.double(), case.v.double()
    out = torch.zeros(case.rows, HEADS, WIDTH + 1, dtype=torch.float64)
    for row in range(case.rows):
        index = case.start + row
        own = index // 16
        for head in range(HEADS):
            keys, values = k[:, head // (HEADS // KV_HEADS)], v[:, head // (HEADS // KV_HEADS)]
            scores = [
                torch.maximum(q[row, head] * page.amin(0), q[row, head] * page.amax(0)).sum()
                for page in keys[: own * 16].view(own, 16, WIDTH)
            ]
            chosen = sorted(range(own), key=lambda page: (-float(scores[page]), page))[: pages - 1]
            read = [i for page in chosen for i in range(page * 16, page * 16 + 16)] + list(range(own * 16, index + 1))
            score = keys[read] @ q[row, head] * spec.scale
            if spec.softcap is not None:
                score = spec.softcap * torch.tanh(score / spec.softcap)
            out[row, head, :-1], out[row, head, -1] = score.softmax(0) @ values[read], score.logsumexp(0)
    return out


@pytest.mark.slow
@examples(2000)
@given(st.integers(0, 2**32), st.sampled_from([torch.float32, torch.bfloat16]), st.floats(0.01, 100))
def test_no_key_scores_above_its_page(seed: int, dtype: torch.dtype, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    k = (torch.randn(32, 2, 8, generator=generator) * size).to(dtype)
    q = (torch.randn(1, 4, 8, generator=generator) + torch.randn(1, generator=generator)).to(dtype).float()
    store = QuestStore([(2, 8)], 2, dtype, bounded=[True])
    store.write(0, k, k, Placement(torch.arange(32)[None], [0]))
    bounds = store.view(0).bounds
    assert bounds is not None
    scores = page_scores(q, bounds)[0].double()  # [H, P]
    products = torch.einsum("hd,nhd->hn", q[0].double(), k.double().repeat_interleave(2, 1)).view(4, 2, 16).amax(-1)
    rounding = 1e-6 * torch.einsum("hd,nhd->hn", q[0].abs().double(), k.abs().double().repeat_interleave(2, 1)).amax()
    assert (scores >= products - rounding).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", [SPEC, AttnSpec(0.3, softcap=4.0)])
def test_chosen_pages_are_those_of_the_definition(dtype: torch.dtype, spec: AttnSpec) -> None:
    sizes = [(290, 40), (0, 1), (63, 2), (200, 1)]
    cases = [sequence(*size, dtype, seed) for seed, size in enumerate(sizes)]
    for seed in (None, 3):
        for found, case in zip(quest(cases, 4, seed, spec), cases, strict=True):
            torch.testing.assert_close(
                found.double(), by_definition(case, 4, spec), atol=2e-5 if dtype == torch.float32 else 1e-2, rtol=0.0
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_full_budget_is_dense_attention(dtype: torch.dtype) -> None:
    sizes = [(290, 40), (0, 3), (15, 1), (16, 1)]
    cases = [sequence(*size, dtype, seed) for seed, size in enumerate(sizes)]
    o, lse = expected(cases, SPEC)
    for pages in (21, 1000):
        found = torch.cat(quest(cases, pages, 5)).double()
        torch.testing.assert_close(found[..., :-1], o, atol=1e-5 if dtype == torch.float32 else 1e-2, rtol=0.0)
        torch.testing.assert_close(found[..., -1], lse, atol=1e-5, rtol=1e-5)


def test_a_needle_is_found_by_every_head() -> None:
    """One page holds the key that each head's query points at; a quarter of the pages is enough to see it."""
    for seed, needle in enumerate((3, 130, 255, 400)):
        case = sequence(511, 1, seed=seed)
        case.k *= 0.3
        for kv_head, queries in enumerate(case.q[0].view(KV_HEADS, -1, WIDTH)):
            # The shortest key whose product with each query of the group is 60.
            case.k[needle, kv_head] = torch.linalg.pinv(queries) @ torch.full((queries.shape[0],), 60.0)
        batch, q, kv = place([case], seed, kind="quest")
        assert kv.bounds is not None
        rows = Rows(0, 1, 511, 0, 8)
        chosen = choose_pages(q.float(), kv.bounds, batch.page_table[0, 0, :32].long(), rows)
        assert (chosen == needle // 16).any(-1).all()
        o, lse = case.expected(SPEC)
        found = quest([case], 8, seed)[0].double()
        torch.testing.assert_close(found[..., :-1], o, atol=0.02, rtol=0.0)
        torch.testing.assert_close(found[..., -1], lse, atol=0.02, rtol=0.0)


def test_of_equal_pages_the_earlier_are_chosen() -> None:
    case = sequence(180, 1)
    case.k[:], case.q = (4 * case.k[:1]).round(), (4 * case.q).round()  # whole numbers: sums in any order are equal
    batch, q, kv = place([case], 1, kind="quest")
    assert kv.bounds is not None
    chosen = choose_pages(q.float(), kv.bounds, batch.page_table[0, 0, :12].long(), Rows(0, 1, 180, 0, 4))
    assert chosen.tolist() == [[[0, 1, 2, 11]] * HEADS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_rows_have_the_same_bits_in_any_company(dtype: torch.dtype) -> None:
    @examples(25)
    @given(st.integers(1, 400), st.data())
    def run(length: int, data: st.DataObject) -> None:
        whole = sequence(0, length, dtype)
        pages = data.draw(st.integers(1, 9))
        start = data.draw(st.integers(max(0, length - 30), length - 1))
        stop = data.draw(st.integers(start + 1, length))
        others = [part(sequence(0, n, dtype, n), n // 2, n) for n in data.draw(st.lists(st.integers(2, 99)))[:3]]
        at = data.draw(st.integers(0, len(others)))
        cases = [*others[:at], part(whole, start, stop), *others[at:]]
        found = quest(cases, pages, data.draw(st.integers(0, 99)), invariant=True)[at]
        for row in range(start, stop):
            # Only what comes before a row may matter: here the rest was never written.
            assert torch.equal(found[row - start], quest([part(whole, row, row + 1)], pages, invariant=True)[0][0])

    run()


def test_only_rows_with_a_budget_are_attended() -> None:
    cases = [sequence(90, 5, seed=1), sequence(200, 3, seed=2)]
    batch, q, kv = place(cases, 2, kind="quest")
    budgets = np.array([0, 0, 0, 2, 3, 0, 4, 4])
    attention = QuestAttention()
    o, lse = attention.attend(q, kv, SPEC, batch, budgets)
    assert (o.shape, lse.shape) == ((4, HEADS, WIDTH), (4, HEADS))
    right = torch.cat([by_definition(cases[0], 2)[3:4], by_definition(cases[0], 3)[4:], by_definition(cases[1], 4)[1:]])
    torch.testing.assert_close(o.double(), right[..., :-1], atol=2e-5, rtol=0.0)
    o, lse = attention.attend(q, kv, SPEC, batch, np.zeros(8, np.int64))
    assert (o.shape, lse.shape) == ((0, HEADS, WIDTH), (0, HEADS))


def test_bytes_are_those_of_bounds_and_chosen_pages() -> None:
    batch, q, kv = place([sequence(499, 1, torch.bfloat16)], kind="quest")
    quest = QuestAttention()
    quest.attend(q, kv, SPEC, batch, np.array([5]))
    # 31 pages end before the row's own; every head reads five.
    assert quest.bytes_read == 31 * KV_HEADS * 2 * WIDTH * 2 + HEADS * 5 * 16 * 2 * WIDTH * 2


def test_trees_are_refused() -> None:
    tree = Case(100, 3, (-1, 0, 0)).fill(HEADS, KV_HEADS, WIDTH, torch.float32, torch.Generator())
    batch, q, kv = place([tree], kind="quest")
    with pytest.raises(ValueError, match="not for drafted trees"):
        QuestAttention().attend(q, kv, SPEC, batch, np.array([2, 2, 2]))


@pytest.mark.usefixtures("each_set")
@examples(40)
@given(
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 20)), min_size=1, max_size=5),
    st.sampled_from([(1, 1), (4, 2), (8, 1), (6, 2), (10, 2), (4, 4)]),
    st.sampled_from([32, 64, 256]),
    st.integers(1, 30),
    st.sampled_from([SPEC, AttnSpec(0.3, softcap=4.0)]),
    st.integers(0, 9),
)
def test_native_code_reads_what_torch_reads(
    shapes: list[tuple[int, int]], heads: tuple[int, int], width: int, pages: int, spec: AttnSpec, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    cases = [Case(*shape).fill(*heads, width, torch.bfloat16, generator) for shape in shapes]
    for case in cases:  # few values, so that pages tie, and sums of products that are exact
        case.q, case.k = (part.clamp(-2, 2).mul(2).round() / 2 for part in (case.q, case.k))
    batch, q, kv = place(cases, seed, kind="quest")
    budgets = np.where(np.arange(batch.host.T) % 3 == 1, 0, pages + np.arange(batch.host.T) % 2)
    q = q.float() if seed % 2 else q
    q = torch.cat((q, q[:, :1]), 1)[:, :-1] if seed % 3 else q  # queries that stand next to something else
    native, torchs = QuestAttention(), QuestAttention()
    assert native._serves(q, kv)
    torchs._library = None
    (o, lse), (right, right_lse) = (one.attend(q, kv, spec, batch, budgets) for one in (native, torchs))
    torch.testing.assert_close(lse, right_lse, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(o.float(), right.float(), atol=1e-5, rtol=2**-7)
    if all(rows == 1 for _, rows in shapes):
        assert native.bytes_read == torchs.bytes_read
