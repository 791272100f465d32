"""Blocks of experts on a GPU: together against one by one, without a wait, and in a CUDA graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.residual import ResidualStream
from engine.config.feed_forward import MoEConfig
from tests.gpu.gpu_support import DEVICE, FAMILIES, NO_GPU, Weights, relative

if DEVICE.type != "cuda" or not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
pytest.importorskip("triton")

QWEN = MoEConfig(128, 8, 768, (True,), normalised=True)
SHAPES = {
    "qwen 3": QWEN,
    "deepseek": replace(QWEN, num_experts=64, experts_per_token=6, groups=8, groups_per_token=3, shared_size=512),
    "deepseek v3": replace(QWEN, num_experts=256, routing="sigmoid", choice_bias=True, groups=8, groups_per_token=4,
                           share_scale=2.5, shared_size=512),
    "gpt-oss": replace(QWEN, num_experts=32, experts_per_token=4, routing="chosen", bias=True, swiglu_limit=7.0),
    "mixtral": replace(QWEN, num_experts=8, experts_per_token=2),
}  # fmt: skip


def block(moe: MoEConfig, dtype: torch.dtype, packed: bool, invariant: bool = False) -> SparseMLP:
    config = replace(FAMILIES["MixtralForCausalLM"], hidden_size=1024, moe=moe)
    mlp = SparseMLP(config, Weights(DEVICE, dtype, Numerics(invariant), packed), "")
    assert mlp.grouped is not None, mlp.gate_up[0].declined
    return mlp


def rows(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(count, 1024, generator=torch.Generator().manual_seed(count)).to(DEVICE, dtype)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SHAPES)
def test_together_they_say_what_each_says(name: str, dtype: torch.dtype, packed: bool) -> None:
    with torch.inference_mode():
        mlp = block(SHAPES[name], dtype, packed)
        together = mlp.grouped
        assert together is not None
        for count in (1, 5, 33, 300, 2048):
            x = rows(count, dtype)
            found, mlp.grouped = mlp.forward(x), None
            expected, mlp.grouped = mlp.forward(x), together
            chosen, _ = mlp.router.route(x)
            same = (together.route(together.scores(x)).chosen == chosen.sort(1).values).all(1)
            assert float(same.float().mean()) >= 0.98, "near-ties alone may fall otherwise"
            assert relative(found[same], expected[same].double().cpu()) < 0.02


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SHAPES)
def test_few_rows_by_three_kernels(name: str, dtype: torch.dtype, count: int) -> None:
    """Against the same block with its rows sorted, norm and addition apart, where the same experts are chosen."""
    with torch.inference_mode():
        mlp, x = block(SHAPES[name], dtype, packed=True), rows(count, dtype)
        few, together = mlp.few, mlp.grouped
        assert few is not None
        assert together is not None
        norm = RMSNorm(1 + 0.1 * rows(1, dtype)[0], 1e-5, Numerics())
        if (reason := few.declines(x, norm)) is not None:
            assert reason == "several rows would ask the same experts"
            return
        judged = few.judge(x, None, 1.0, norm)
        same = (few.choose(judged).chosen == together.route(together.scores(norm.forward(x))).chosen).all(1)
        assert float(same.float().mean()) >= 0.5, "near-ties alone may fall otherwise"
        streams = []
        for each in (few, None):
            mlp.few = each
            stream = ResidualStream(x.clone())
            stream.add(x, 0.5)
            mlp.add_to(stream, norm, 0.7)
            streams.append(stream.value())
        assert relative(streams[0][same], streams[1][same].double().cpu()) < 0.02


@pytest.mark.parametrize("packed", [False, True])
def test_a_rows_bits_do_not_depend_on_its_neighbours(packed: bool) -> None:
    with torch.inference_mode():
        mlp, x = block(QWEN, torch.bfloat16, packed, invariant=True), rows(70, torch.bfloat16)
        whole = mlp.forward(x)
        for part in (slice(0, 1), slice(7, 40), slice(69, 70)):
            assert torch.equal(mlp.forward(x[part]), whole[part])


@pytest.mark.parametrize("count", [1, 8, 600])
def test_a_graph_of_a_block_serves_other_choices(count: int) -> None:
    with torch.inference_mode():
        mlp, x = block(QWEN, torch.bfloat16, packed=True), rows(count, torch.bfloat16)
        mlp.forward(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = mlp.forward(x)
        for turn in range(3):
            x.copy_(rows(count + turn, torch.bfloat16)[:count])
            graph.replay()
            assert torch.equal(out, mlp.forward(x))
