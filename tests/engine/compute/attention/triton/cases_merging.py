"""The merge of two attentions in the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.compute.attention import interface
from engine.compute.attention.triton import merging

CPU = torch.device("cpu")


@pytest.mark.parametrize("width", [24, 128])
def test_as_by_the_definition(width: int) -> None:
    """Empty parts among them: two of them give an empty one."""
    generator = torch.Generator().manual_seed(1)
    o1, o2 = (torch.randn(5, 3, width, generator=generator) for _ in range(2))
    lse1, lse2 = (20 * torch.randn(5, 3, generator=generator) for _ in range(2))
    lse1[0], lse2[1], lse1[2], lse2[2] = -torch.inf, -torch.inf, -torch.inf, -torch.inf
    want, want_lse = interface.merge(o1, lse1, o2, lse2)
    found, found_lse = merging.merge(o1, lse1, o2, lse2)
    assert (found - want).abs().max() < 1e-6
    assert torch.equal(found_lse.isinf(), want_lse.isinf())
    assert (found_lse - want_lse).nan_to_num(0.0).abs().max() < 1e-5
    assert not found[2].any()
    assert merging.merge(o1[:0], lse1[:0], o2[:0], lse2[:0])[0].shape == (0, 3, width)


def test_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    assert merging.compare(40, torch.float32, CPU) is None
    right = merging.merge

    def swapped(o1: Any, lse1: Any, o2: Any, lse2: Any) -> Any:
        return right(o1, lse2, o2, lse1)

    monkeypatch.setattr(merging, "merge", swapped)
    assert "merges" in str(merging.compare(40, torch.float32, CPU))


def test_what_is_left_to_torch() -> None:
    x, lse = torch.randn(2, 3, 16), torch.randn(2, 3)
    assert not merging.serves(x, lse, x, lse)
