"""A mixture of experts in native code: next to its definition in torch, and to the same experts one after the other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from engine.compute.layers.activation import Gated
from engine.compute.layers.experts.router import SCORED_ROWS, Router
from engine.compute.layers.linear.native import FEW_ROWS, NativeLinear
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.numerics import Numerics
from engine.config.feed_forward import ExpertNames, MLPConfig, MoEConfig
from tests.engine.compute.native.instruction_sets import each_kernel
from tests.gpu.gpu_support import CPU, Weights

HIDDEN, INNER, EXPERTS, CHOICES = 128, 192, 10, 3
SOME_ROWS = 30
"""Of which more than FEW_ROWS ask some experts, and fewer ask others."""
MOE = MoEConfig(EXPERTS, CHOICES, INNER, (True,), normalised=True)
PLAIN = replace(MOE, names=ExpertNames(experts=("up_proj", "down_proj")))
BLOCKS = {
    "silu": (MOE, "silu"),
    "shared": (replace(MOE, shared_size=64, names=ExpertNames(shared_gate="gate_of_shared")), "gelu_tanh"),
    "clamped": (replace(MOE, bias=True, swiglu_limit=7.0, routing="chosen"), "silu"),
    "plain": (PLAIN, "relu2"),
}
ROUTERS = {
    "all": MOE,
    "not normalised": replace(MOE, normalised=False, share_scale=2.5),
    "chosen": replace(MOE, routing="chosen", bias=True),
    "sigmoid": replace(MOE, routing="sigmoid", choice_bias=True, share_scale=1.5, groups=5, groups_per_token=2),
    "groups": replace(MOE, groups=2, groups_per_token=1, expert_scales=True),
    "many": replace(MOE, num_experts=70, experts_per_token=20),
}

pytestmark = each_kernel


def block(name: str, dtype: torch.dtype, numerics: Numerics) -> SparseMLP:
    moe, activation = BLOCKS[name]
    config = SimpleNamespace(hidden_size=HIDDEN, moe=moe, mlp=MLPConfig(INNER, activation=cast(Any, activation)))
    return SparseMLP(cast(Any, config), cast(Any, Weights(CPU, dtype, numerics, packed=True)), "")


def rows(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(9)).to(dtype)


def native(mlp: SparseMLP) -> Any:
    assert mlp.native is not None
    return mlp.native


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_give_what_they_give_one_after_the_other(name: str, dtype: torch.dtype, kernel: torch.dtype) -> None:
    numerics = Numerics(quantises=True)
    mlp, x = block(name, dtype, numerics), rows(SOME_ROWS, dtype)
    assert native(mlp).declined is None
    assert not mlp.waits
    for layer in cast(list[NativeLinear], [mlp.gate_up[1], mlp.gate_up[4], *mlp.down[3:]]):
        layer.refined = (torch.arange(layer.in_features // 32) % 2).to(torch.uint8)
    for bits, refines in ((8, False), (8, True), (16, False), (32, False)):
        numerics.activations, numerics.refines = bits, refines
        for count in (1, 2, FEW_ROWS, SOME_ROWS):
            compare(mlp, x[:count])
    numerics.activations, numerics.refines, numerics.batch_invariant = 8, True, True
    compare(mlp, x)


@pytest.mark.parametrize(("dtype", "bits", "count"), [(torch.float32, 32, 1700), (torch.bfloat16, 8, 3400)])
def test_rows_that_take_too_much_memory_at_once(dtype: torch.dtype, bits: int, count: int, kernel: torch.dtype) -> None:
    assert count * CHOICES * (2 * HIDDEN + 3 * INNER) * dtype.itemsize > 16 << 20, "MOST_BYTES of experts.c"
    numerics = Numerics(quantises=True)
    numerics.activations = bits
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        compare(block("shared", dtype, numerics), rows(count, dtype))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_groups_of_any_input_features(dtype: torch.dtype, kernel: torch.dtype) -> None:
    mlp, generator = block("clamped", dtype, Numerics(quantises=True)), torch.Generator().manual_seed(3)
    for layer in cast(list[NativeLinear], [*mlp.gate_up[1:], *mlp.down]):
        layer.order = torch.randperm(layer.in_features, dtype=torch.int32, generator=generator)
    for count in (1, SOME_ROWS):
        compare(mlp, rows(count, dtype))


def compare(mlp: SparseMLP, x: Tensor) -> None:
    """All experts at once and one after the other."""
    together = native(mlp)
    assert together.serves(x)
    found, mlp.native = mlp.forward(x), None
    expected, mlp.native = mlp.forward(x), together
    assert torch.equal(found, expected)


def test_what_is_not_served(kernel: torch.dtype) -> None:
    numerics = Numerics()
    mlp, x = block("silu", torch.float32, numerics), rows(1)
    assert not native(mlp).serves(x[:0])
    seen = []
    numerics.observer = lambda linear, given: seen.append(linear)
    assert not native(mlp).serves(x[:1])
    mlp.forward(x[:1])
    assert len(seen) == 1 + 2 * CHOICES
    numerics.observer = None
    assert native(mlp).serves(x[:1])
    unlike = block("silu", torch.float32, numerics)
    native(unlike).gated = Gated("gelu", numerics)
    assert native(unlike).declined == "it has no such gating"
    assert unlike.waits


def router(moe: MoEConfig, invariant: bool = False) -> Router:
    source = Weights(CPU, torch.float32, Numerics(invariant), packed=False)
    return Router(moe, HIDDEN, cast(Any, source), "")


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("count", [1, SCORED_ROWS, SCORED_ROWS + 5])
def test_routers_choose_what_torch_does(name: str, count: int, kernel: torch.dtype) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        chooses, x = router(ROUTERS[name]), rows(count, dtype)
        chosen, shares = chooses.route(x)
        expected = chooses.choose(chooses.scores(x))
        assert torch.equal(chosen, expected[0])
        torch.testing.assert_close(shares, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("invariant", [False, True])
def test_a_row_is_routed_as_if_alone(invariant: bool, kernel: torch.dtype) -> None:
    chooses, x = router(MOE, invariant), rows(3 * SCORED_ROWS if invariant else SCORED_ROWS)
    whole = chooses.route(x)
    for row in range(len(x)):
        for found, expected in zip(chooses.route(x[row : row + 1]), whole, strict=True):
            assert torch.equal(found[0], expected[row])


def test_equal_scores_and_scores_that_are_no_numbers(kernel: torch.dtype) -> None:
    chooses = router(replace(MOE, groups=5, groups_per_token=3))
    scores = torch.zeros(4, EXPERTS)
    scores[1, 3:6], scores[2], scores[3, 4] = 2.0, torch.nan, torch.nan
    chooses.linear = SimpleNamespace(forward_float32=lambda x: scores)  # type: ignore[assignment]
    chosen, shares = chooses.route(rows(4))
    assert chosen[:2].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.allclose(shares[:2], torch.tensor(1 / 3))
    for row in (2, 3):  # shares are no numbers, but the experts are some, and different ones
        assert len(set(chosen[row].tolist())) == CHOICES
        assert 0 <= int(chosen[row].min()) <= int(chosen[row].max()) < EXPERTS
        assert bool(shares[row].isnan().all())
