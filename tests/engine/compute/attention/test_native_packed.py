"""The native attention over packed kinds against what their codes stand for, computed in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.stores.packed import CHANNEL_GROUP
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.interface import AttnSpec, KeyRange
from engine.compute.native.library import find
from tests.engine.compute.attention.attention_cases import TREE, Case
from tests.engine.compute.attention.packed_cases import KINDS, expected_within, place_packed
from tests.engine.compute.native.instruction_sets import at_hand
from tests.kit.examples import examples
from tests.kit.pairs import pairs

pytestmark = pytest.mark.usefixtures("each_set")
Shapes = list[tuple[int, int]]


def cases_of(shapes: Shapes, heads: tuple[int, int] = (4, 2), width: int = 64) -> list[Case]:
    """Queries in bfloat16 for an even number of sequences, in float32 for an odd one."""
    generator = torch.Generator().manual_seed(len(shapes))
    dtype = torch.float32 if len(shapes) % 2 else torch.bfloat16
    return [Case(start, rows).fill(*heads, width, dtype, generator) for start, rows in shapes]


def packed_range(cases: list[Case], kind: str) -> KeyRange:
    """The keys that a row of kind "kivi" may find packed: whole groups before it."""
    if kind != "kivi":
        return KeyRange()
    index = [i + 1 for case in cases for i in range(case.start, case.length)]
    return KeyRange(None, np.array(index, dtype=np.int64) // CHANNEL_GROUP * CHANNEL_GROUP)


def compare(
    cases: list[Case],
    kind: tuple[str, int, int],
    spec: AttnSpec,
    seed: int | None = None,
    keys: KeyRange | None = None,
) -> None:
    batch, q, kv = place_packed(cases, *kind, seed)
    keys = packed_range(cases, kind[0]) if keys is None else packed_range(cases, kind[0]).within(keys)
    want, want_lse = expected_within(cases, spec, keys)
    o, lse = NativeAttention().attend(q, kv, spec, batch, need_lse=True, keys=keys)
    assert lse is not None
    assert (o.dtype, tuple(o.shape), tuple(lse.shape)) == (q.dtype, tuple(q.shape), tuple(q.shape[:2]))
    some = want_lse != -torch.inf
    assert torch.equal(lse == -torch.inf, ~some)
    assert bool(((lse.double() - want_lse)[some].abs() <= 2e-5 * want_lse[some].abs() + 2e-5).all())
    # float32 up to the end, and there one rounding where the result is bfloat16.
    rounding = 2**-8 if o.dtype == torch.bfloat16 else 1e-5
    assert bool(((o.double() - want).abs() <= want.abs() * rounding + 1e-4).all())
    assert not o[~some].any()


@pairs(each_set=at_hand(), kind=KINDS, window=[None, 1, 40, 129], indirect=["each_set"])
def test_matches_what_the_codes_stand_for(kind: tuple[str, int, int], window: int | None) -> None:
    few: Shapes = [(5, 1), (40, 3), (257, 1), (60, 16)]
    for shapes in ([(0, 1)], [(31, 1)], [(127, 1)], [(128, 3)], [(1100, 1)], few, [(90, 70)], [(0, 33), *few]):
        for seed in (None, 1):
            compare(cases_of(shapes), kind, AttnSpec(0.125, window), seed)


@pairs(
    each_set=at_hand(), kind=[kind for kind in KINDS if kind[0] != "kivi"], window=[None, 3, 90], indirect=["each_set"]
)
def test_trees(kind: tuple[str, int, int], window: int | None) -> None:
    """(Of kind "kivi" the rows of a step are in another store.)"""
    generator = torch.Generator().manual_seed(2)
    for start in (0, 30, 120, 509):
        tree = Case(start, len(TREE), TREE).fill(4, 2, 64, torch.float32, generator)
        compare([tree, *cases_of([(50, 3)])], kind, AttnSpec(0.125, window), 1)


@pairs(each_set=at_hand(), kind=KINDS, width=[32, 64, 96, 128, 160, 256], indirect=["each_set"])
def test_any_grouping_and_width_of_heads(kind: tuple[str, int, int], width: int) -> None:
    for heads in ((1, 1), (4, 4), (6, 3), (6, 2), (4, 1), (5, 1), (6, 1), (14, 2), (8, 1), (40, 2)):
        compare(cases_of([(150, 1), (62, 4)], heads, width), kind, AttnSpec(width**-0.5), 1)
        compare(cases_of([(50, 18)], heads, width), kind, AttnSpec(width**-0.5), 1)


@examples(30)
@given(st.sampled_from(KINDS), st.data())
def test_any_range(kind: tuple[str, int, int], data: st.DataObject) -> None:
    counts = st.integers(1, 4) | st.integers(17, 40)
    shapes = data.draw(st.lists(st.tuples(st.integers(0, 600), counts), min_size=1, max_size=4))
    cases = cases_of(shapes)
    rows = sum(case.rows for case in cases)
    ends = st.none() | st.lists(st.integers(0, 640), min_size=rows, max_size=rows).map(np.array)
    keys = KeyRange(data.draw(ends), data.draw(ends))
    window, cap = data.draw(st.none() | st.integers(1, 300)), data.draw(st.none() | st.sampled_from([0.4, 2.0, 50.0]))
    compare(cases, kind, AttnSpec(0.125, window, cap), data.draw(st.integers(0, 9)), keys)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_row_keeps_its_bits_in_any_company_and_with_any_threads(kind: tuple[str, int, int]) -> None:
    spec = AttnSpec(0.09, softcap=3.0 if kind[1] == 4 else None)
    before = torch.get_num_threads()
    cases = cases_of([(3000, 1), (300, 4), (63, 1)], (8, 2), 128)
    batch, q, kv = place_packed(cases, *kind, 1)
    keys = packed_range(cases, kind[0])
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(NativeAttention().attend(q, kv, spec, batch, need_lse=True, keys=keys))
        for row in range(6):  # the others see nothing
            alone = KeyRange(np.where(np.arange(6) == row, 0, 5000), keys.stop)
            o, lse = NativeAttention().attend(q, kv, spec, batch, need_lse=True, keys=alone)
            assert lse is not None
            assert torch.equal(o[row], results[0][0][row])
            assert torch.equal(lse[row], results[0][1][row])
    finally:
        torch.set_num_threads(before)
    for o, lse in results[1:]:
        assert torch.equal(o, results[0][0])
        assert torch.equal(lse, results[0][1])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("width", [32, 64, 96, 128, 224, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_pages_are_unpacked_with_one_rounding(kind: tuple[str, int, int], width: int, dtype: torch.dtype) -> None:
    library = find().library
    assert library is not None
    cases = cases_of([(95, 1), (150, 10)], (6, 3), width)
    batch, _, kv = place_packed(cases, *kind, 1)
    for s, case in enumerate(cases):
        pages = torch.tensor(batch.host.pages[0][s], dtype=torch.int32)
        slots = len(pages) * 16
        assert slots == case.length
        k, v = (torch.full((slots, 3, width), torch.inf, dtype=dtype) for _ in "kv")
        library.unpack_pages(kv, pages, k, v)
        rounding = 2**-8 if dtype == torch.bfloat16 else 2**-23
        for unpacked, want in ((k, case.k), (v, case.v)):
            assert bool(((unpacked.double() - want).abs() <= want.abs() * rounding + 1e-6).all())
