"""Which tokens are packed and which pages are held follow from indices alone, and what is held is what is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.pool import slots_of
from engine.cache.stores.recent import packed_until, packed_until_rows, recent_span, to_pack
from tests.kit.examples import examples

residuals = st.sampled_from([64, 96, 128])


@pytest.mark.parametrize(("index", "packed"), [(-1, 0), (0, 0), (126, 0), (158, 0), (159, 32), (190, 32), (191, 64)])
def test_the_boundary_moves_by_whole_groups(index: int, packed: int) -> None:
    assert packed_until(index, 128) == packed
    assert packed_until_rows(np.array([index]), 128).tolist() == [packed]


@given(st.integers(0, 5000), residuals)
def test_a_row_keeps_its_residual(index: int, residual: int) -> None:
    recent = index + 1 - packed_until(index, residual)
    assert recent == index + 1 if index < residual else residual <= recent < residual + 32


@pytest.mark.parametrize(
    ("computed", "rows", "span"),
    [(0, 0, (0, 0)), (0, 1, (0, 1)), (200, 1, (4, 13)), (208, 0, (4, 13)), (0, 512, (0, 32))],
)
def test_spans(computed: int, rows: int, span: tuple[int, int]) -> None:
    assert recent_span(computed, rows, 128) == span


@examples(100)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 63)), min_size=1, max_size=12), residuals)
def test_any_steps_pack_every_group_from_pages_that_are_held(steps: list[tuple[int, int]], residual: int) -> None:
    """Rows are committed and drafts are not: what a row reads was packed, or is held, and is packed before it goes."""
    computed, packed = 0, 0
    for rows, draft_tokens in steps:
        stop = computed + rows + draft_tokens
        first, last = recent_span(computed, rows + draft_tokens, residual)
        group = to_pack(computed, rows + draft_tokens, residual)
        assert group.start <= packed, "no group is left out"
        assert len(group) % 32 == 0
        assert first * 16 <= group.start
        assert group.stop <= computed + rows, "drafts are not packed"
        packed = max(packed, group.stop)
        for index in range(computed, stop):
            assert packed_until(index, residual) <= packed
            assert first * 16 <= packed_until(index, residual)
        assert last * 16 >= stop > (last - 1) * 16
        computed += rows
        assert recent_span(computed, 0, residual)[0] >= first, "pages that were freed are not wanted again"


@given(st.integers(0, 400), st.integers(1, 200), residuals)
def test_a_sequence_holds_no_more_than_the_plan_counts(computed: int, rows: int, residual: int) -> None:
    first, stop = recent_span(computed, rows, residual)
    assert stop - first <= -(-(residual + 32) // 16) + 1 + -(-rows // 16)


def test_slots_of_whole_pages() -> None:
    assert slots_of([9, 4, 7, 5], range(32, 64)).tolist() == [*range(112, 128), *range(80, 96)]
    assert slots_of([9], range(0)).tolist() == []


def test_slots_of_parts_of_pages() -> None:
    assert slots_of([9, 4, 7], range(14, 33)).tolist() == [158, 159, *range(64, 80), 112]
    assert slots_of([9, 4, 7], range(17, 19)).tolist() == [65, 66]
