"""Places of pictures in a prompt, in steps of any size."""

from __future__ import annotations

import hashlib

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.compute.vision.interface import Picture
from engine.compute.vision.placeholders import PlaceholderSpans, is_mark

HOLD, OTHER = 7, 3


def shown(rows: int, columns: int, name: str = "") -> Picture:
    key = hashlib.sha256(f"{rows} {columns} {name}".encode()).digest()
    return Picture(torch.zeros(1), (rows, columns), rows * columns, key)


def laid_out(pictures: list[Picture], gaps: list[int], broken: bool) -> tuple[list[int], PlaceholderSpans]:
    """A prompt with pictures among text; the rows of ``broken`` ones end with a token of text."""
    ids: list[int] = []
    at: list[list[int]] = []
    for picture, gap in zip(pictures, gaps, strict=False):
        ids += [OTHER] * gap
        mine: list[int] = []
        for _ in range(picture.grid[0]):
            mine += range(len(ids), len(ids) + picture.grid[1])
            ids += [HOLD] * picture.grid[1] + [OTHER] * broken
        at.append(mine)
    return [*ids, OTHER], PlaceholderSpans(pictures, at, not broken)


@given(
    grids=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4),
    gaps=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    step=st.integers(1, 30),
    broken=st.booleans(),
)
def test_every_placeholder_gets_its_embedding_in_steps_of_any_size(
    grids: list[tuple[int, int]], gaps: list[int], step: int, broken: bool
) -> None:
    pictures = [shown(*grid, str(number)) for number, grid in enumerate(grids)]
    ids, places = laid_out(pictures, gaps, broken)
    got: dict[int, tuple[bytes, int]] = {}
    for start in range(0, len(ids), step):
        for run in places.runs(start, min(start + step, len(ids))):
            assert start <= run.first < run.first + run.end - run.begin <= start + step
            for place in range(run.begin, run.end):
                assert got.setdefault(run.first + place - run.begin, (run.picture.key, place)) is not None
    assert sorted(got) == [index for index, token in enumerate(ids) if token == HOLD]
    in_order = [(picture.key, place) for picture in pictures for place in range(picture.tokens)]
    assert [got[index] for index in sorted(got)] == in_order


@given(grids=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4), gap=st.integers(0, 3))
def test_no_position_is_larger_than_its_index(grids: list[tuple[int, int]], gap: int) -> None:
    """So tables of rotations that reach as far as the text are long enough; and rows of a step alone have the same."""
    ids, places = laid_out([shown(*grid) for grid in grids], [gap] * 4, False)
    index = torch.arange(len(ids) + 5).numpy()
    axes = places.axes(index)
    assert (axes >= 0).all()
    assert (axes <= index).all()
    assert all((places.axes(index[i : i + 1])[:, 0] == axes[:, i]).all() for i in range(len(index)))


def test_marks_are_the_picture_s_wherever_it_is() -> None:
    one, other = shown(3, 4), shown(3, 4, "other")
    ids, places = laid_out([one, other], [5, 2], False)
    marks = places.marks(ids)
    again = laid_out([other], [9], False)
    assert [mark for mark in marks if not is_mark(mark)] == [token for token in ids if token != HOLD]
    own = [mark for mark in marks if is_mark(mark)]
    assert own[12:] == [mark for mark in again[1].marks(again[0]) if is_mark(mark)]
    assert not set(own[:12]) & set(own[12:])
    assert all(-(1 << 31) <= mark < 0 for mark in own), "32 bits, as saved chats have"
