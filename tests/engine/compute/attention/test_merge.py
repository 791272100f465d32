"""The combinator: attention over a union of key sets from the attentions over each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.compute.attention.backends.reference import attend_dense
from engine.compute.attention.interface import AttnSpec, merge

SPEC = AttnSpec(scale=0.3)


def tensors(keys: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(keys)
    q, k, v = torch.randn(3, 4, 8), torch.randn(keys, 2, 8), torch.randn(keys, 2, 8)
    return 4 * q.double(), k.double(), v.double()


def part(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return attend_dense(q, k, v, SPEC, torch.ones(q.shape[0], k.shape[0], dtype=torch.bool))


@pytest.mark.parametrize("splits", [1, 2, 3, 5, 16, 61])
@pytest.mark.parametrize("backwards", [False, True])
def test_any_number_of_splits_in_any_order_is_the_whole(splits: int, backwards: bool) -> None:
    q, k, v = tensors(61)
    whole_o, whole_lse = part(q, k, v)
    pieces = [part(q, a, b) for a, b in zip(k.tensor_split(splits), v.tensor_split(splits), strict=True)]
    o, lse = torch.zeros_like(whole_o), torch.full_like(whole_lse, -torch.inf)
    for piece in reversed(pieces) if backwards else pieces:
        o, lse = merge(o, lse, *piece)
    assert (o - whole_o).abs().max() < 1e-12
    assert (lse - whole_lse).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merging_an_empty_part_changes_no_bit(dtype: torch.dtype) -> None:
    o, lse = torch.randn(5, 4, 8).to(dtype), 10 * torch.randn(5, 4)
    nothing = torch.zeros_like(o), torch.full_like(lse, -torch.inf)
    for merged in (merge(o, lse, *nothing), merge(*nothing, o, lse)):
        assert torch.equal(merged[0], o)
        assert torch.equal(merged[1], lse)


def test_two_empty_parts_are_empty() -> None:
    nothing = torch.zeros(5, 4, 8), torch.full((5, 4), -torch.inf)
    o, lse = merge(*nothing, *nothing)
    assert torch.equal(o, nothing[0])
    assert torch.equal(lse, nothing[1])


def test_a_row_that_sees_nothing_is_an_empty_part() -> None:
    q, k, v = tensors(7)
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1] = False
    o, lse = attend_dense(q, k, v, SPEC, mask)
    assert not o.isnan().any()
    assert torch.equal(o[1], torch.zeros_like(o[1]))
    assert (lse[1] == -torch.inf).all()


def test_far_apart_parts_do_not_overflow() -> None:
    o1, o2 = torch.ones(1, 1, 2), torch.full((1, 1, 2), 5.0)
    o, lse = merge(o1, torch.tensor([[500.0]]), o2, torch.tensor([[-500.0]]))
    assert torch.equal(o, o1)
    assert torch.equal(lse, torch.tensor([[500.0]]))
