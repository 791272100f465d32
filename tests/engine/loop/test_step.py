from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from engine.decoding.speculation.base import NO_DRAFT
from engine.loop.step import SliceResult, seen


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [((), [3, 4]), ((0, 1), [3, 4, 5, 6]), ((1, 3), [3, 4, 6, 8]), ((0, 2), [3, 4, 5, 7])],
    ids=["nothing accepted", "a chain", "a branch", "a branch of the first"],
)
def test_heads_are_given_the_rows_that_became_part_of_the_text(nodes: tuple[int, ...], rows: list[int]) -> None:
    """Two rows of the slice from row 3 on, then those of its tree; others before and behind."""
    request = object()
    piece = cast(Any, SimpleNamespace(sequence=request, rows=2))
    result = SliceResult(piece, NO_DRAFT, 3, 7, None, None, nodes)
    hidden = {1: torch.arange(20.0).reshape(10, 2), 5: -torch.arange(10.0)[:, None]}
    (given,) = seen([result], hidden)
    assert (given.request, given.start) == (request, 7)
    assert {layer: states.tolist() for layer, states in given.hidden.items()} == {
        layer: states[rows].tolist() for layer, states in hidden.items()
    }
