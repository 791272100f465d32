"""The same bits for a query row, however a prompt was cut, whatever stood beside it, wherever its pages lie."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.interface import AttnSpec
from engine.compute.runner.buffers import powers_of_two
from tests.engine.compute.attention.attention_cases import Case, place
from tests.kit.examples import examples

DTYPES = [torch.float32, torch.bfloat16]


def sequence(length: int, dtype: torch.dtype, seed: int = 0, heads: tuple[int, int] = (6, 2)) -> Case:
    return Case(0, length).fill(*heads, 24, dtype, torch.Generator().manual_seed(seed))


def rows_of(whole: Case, start: int, stop: int) -> Case:
    """The rows [start, stop) of a sequence, what is before them in the cache."""
    return Case(start, stop - start, None, whole.q[start:stop], whole.k[:stop], whole.v[:stop])


def attend(cases: list[Case], spec: AttnSpec, seed: int | None) -> list[Tensor]:
    """o and lse of each case, side by side [rows, H, d + 1]."""
    batch, q, kv = place(cases, seed, powers_of_two if seed is not None and seed % 2 else None)
    o, lse = BatchInvariantAttention().attend(q, kv, spec, batch, need_lse=True)
    assert lse is not None
    both = torch.cat([o.float(), lse.unsqueeze(-1)], dim=-1)
    return list(both[: batch.host.T].split([case.rows for case in cases]))


def chunked(whole: Case, size: int, spec: AttnSpec) -> Tensor:
    cuts = range(0, whole.length, size)
    parts = [attend([rows_of(whole, a, min(a + size, whole.length))], spec, a or None)[0] for a in cuts]
    return torch.cat(parts)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("window", [None, 50])
def test_chunks_of_any_size(dtype: torch.dtype, size: int, window: int | None) -> None:
    whole = sequence(290, dtype)
    spec = AttnSpec(0.2, window)
    assert torch.equal(chunked(whole, size, spec), attend([whole], spec, None)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_alone_or_among_eight(dtype: torch.dtype) -> None:
    spec = AttnSpec(0.2)
    wholes = [sequence(length, dtype, seed=length) for length in (3, 290, 16, 40, 257, 64, 100, 9)]
    starts = (0, 289, 15, 0, 256, 30, 99, 4)
    cases = [rows_of(whole, start, whole.length) for whole, start in zip(wholes, starts, strict=True)]
    together = attend(cases, spec, 5)
    for case, among in zip(cases, together, strict=True):
        assert torch.equal(attend([case], spec, None)[0], among)
        assert torch.equal(attend([case], spec, 8)[0], among)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_cut_any_company_any_pages(dtype: torch.dtype) -> None:
    @examples(25)
    @given(st.integers(1, 560), st.data())
    def run(length: int, data: st.DataObject) -> None:
        whole = sequence(length, dtype)
        spec = AttnSpec(0.2, data.draw(st.none() | st.integers(1, 300)))
        start = data.draw(st.integers(0, length - 1))
        stop = data.draw(st.integers(start + 1, length))
        others = [rows_of(sequence(n, dtype, seed=n), n // 2, n) for n in data.draw(st.lists(st.integers(2, 99)))[:3]]
        at = data.draw(st.integers(0, len(others)))
        cases = [*others[:at], rows_of(whole, start, stop), *others[at:]]
        got = attend(cases, spec, data.draw(st.integers(0, 99)))[at]
        assert torch.equal(got, attend([whole], spec, None)[0][start:stop])

    run()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tree_row_is_the_end_of_its_chain(dtype: torch.dtype) -> None:
    parents = (-1, 0, 0, 1, 2, 2, 4)
    paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 2, 5], [0, 2, 4, 6]]
    prefix = 253  # so that paths cross from one tile of keys to the next
    tree = Case(prefix, 7, parents).fill(6, 2, 24, dtype, torch.Generator().manual_seed(1))
    for spec in (AttnSpec(0.2), AttnSpec(0.2, 30)):
        among = attend([tree], spec, 3)[0]
        for row, path in enumerate(paths):
            slots = [*range(prefix), *(prefix + j for j in path)]
            chain = Case(prefix + len(path) - 1, 1, None, tree.q[row : row + 1], tree.k[slots], tree.v[slots])
            assert torch.equal(attend([chain], spec, None)[0][0], among[row])


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [(32, 8), (9, 3), (16, 16), (8, 1)])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_shapes_of_real_models(dtype: torch.dtype, heads: tuple[int, int], size: int) -> None:
    whole = Case(0, 300).fill(*heads, 64, dtype, torch.Generator().manual_seed(2))
    assert torch.equal(chunked(whole, size, AttnSpec(0.125)), attend([whole], AttnSpec(0.125), None)[0])
