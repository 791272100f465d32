"""How many kernels a step asks of a GPU, from traces of forwards that pretend to run on one."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.gpu.pretended import CUDA, LLAMA_8B, Shape, counted, listed, pretended, shortened, traced

LAYER, STEP = 10, 330


def test_a_layer_of_llama_8b() -> None:
    layer, step = counted(LLAMA_8B)
    assert len(layer) <= LAYER, listed(layer)
    assert step <= STEP


@pytest.mark.parametrize("sequences", [((1000, 1),), ((1000, 1), (37, 1), (200, 1)), ((600, 5),), ((40, 30), (7, 1))])
def test_nothing_waits_or_copies_within_a_forward(sequences: tuple[tuple[int, int], ...]) -> None:
    trace = traced(shortened(LLAMA_8B, 2), Shape(sequences))
    assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()


def test_what_waits_copies_and_pins_would_be_noticed() -> None:
    with pretended() as trace:
        x = torch.empty(3, 4, device=CUDA)
        x.view(12).narrow(0, 2, 4).add_(1).sum().item()
        x.cpu()
        torch.empty(3).to(CUDA)
        torch.tensor([1, 2], device=CUDA)
        torch.empty(2, pin_memory=True)
        torch.empty(2).pin_memory()
    assert len(trace.waits) == 2
    assert len(trace.copies) == 2
    assert trace.pinned == 2
    assert [node.name for node in trace.nodes] == ["aten.add_", "aten.sum", "aten.to", "aten.to"]
