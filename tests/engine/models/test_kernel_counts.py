"""How many kernels a step asks of a GPU, from traces of forwards that pretend to run on one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.layers.moe import SparseMLP
from engine.model_config.model import MoEConfig
from tests.gpu.pretended import (
    CUDA,
    LLAMA_8B,
    QWEN3_30B,
    Node,
    Shape,
    Weights,
    counted,
    listed,
    pretended,
    shortened,
    traced,
)

LAYER, STEP, BLOCK = 10, 330, 8


def test_a_layer_of_llama_8b() -> None:
    layer, step = counted(LLAMA_8B)
    assert len(layer) <= LAYER, listed(layer)
    assert step <= STEP


@pytest.mark.parametrize("sequences", [((1000, 1),), ((1000, 1), (37, 1), (200, 1)), ((600, 5),), ((40, 30), (7, 1))])
def test_nothing_waits_or_copies_within_a_forward(sequences: tuple[tuple[int, int], ...]) -> None:
    trace = traced(shortened(LLAMA_8B, 2), Shape(sequences))
    assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()


def block_of_experts(moe: MoEConfig, rows: int) -> list[Node]:
    """What a block of experts asks of the GPU; nothing is copied or waited for."""
    with pretended() as trace:
        block = SparseMLP(replace(QWEN3_30B, moe=moe), Weights(), "")
        x = torch.empty(rows, QWEN3_30B.hidden_size, dtype=torch.bfloat16, device=CUDA)
        block.forward(x)
        trace.clear()
        block.forward(x)
        assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()
    return trace.nodes


GPT_OSS = {"routing": "chosen", "bias": True, "swiglu_limit": 7.0}


@pytest.mark.parametrize("rows", [1, 32, 2048])
@pytest.mark.parametrize("options", [{"normalised": True}, GPT_OSS], ids=["qwen 3", "gpt-oss"])
def test_a_block_has_as_many_kernels_for_any_number_of_experts(options: dict[str, Any], rows: int) -> None:
    blocks = [block_of_experts(MoEConfig(count, 4, 768, (True,), **options), rows) for count in (8, 32, 128)]
    # Which of the products is launched follows from the rows that an expert has on average.
    assert len({tuple(_role(node.name) for node in nodes) for nodes in blocks}) == 1
    assert len(blocks[0]) <= BLOCK, listed(blocks[0])


def _role(name: str) -> str:
    return "product" if name in ("triton.multiply_sorted", "triton.gemm_sorted") else name


def test_shared_experts_are_a_block_besides() -> None:
    nodes = block_of_experts(MoEConfig(64, 6, 1408, (True,), shared_size=2816, groups=8, groups_per_token=3), 1)
    assert len(nodes) <= BLOCK + 3, listed(nodes)


@pytest.mark.parametrize("sequences", [((1000, 1),), ((600, 5), (20, 1))])
def test_a_mixture_of_experts_waits_for_nothing(sequences: tuple[tuple[int, int], ...]) -> None:
    trace = traced(shortened(QWEN3_30B, 2), Shape(sequences))
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
