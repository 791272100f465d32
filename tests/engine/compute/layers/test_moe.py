"""The mixture-of-experts block against DeepSeek-V2's of transformers, and what it promises about rows and experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV2Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

from engine.compute.layers.experts.router import Router, best
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.numerics import Numerics
from engine.config.feed_forward import MLPConfig, MoEConfig

HIDDEN, INNER, EXPERTS = 48, 24, 8
MOE = MoEConfig(EXPERTS, 3, INNER, (True,), shared_size=2 * INNER)


class Weights:
    """A `WeightSource` of seeded random weights that remembers them by name."""

    device = torch.device("cpu")

    def __init__(self, dtype: torch.dtype = torch.float32, invariant: bool = False) -> None:
        self.dtype, self.numerics = dtype, Numerics(invariant)
        self.generator = torch.Generator().manual_seed(4)
        self.tensors: dict[str, Tensor] = {}

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        parts = [torch.randn(size, in_features, generator=self.generator) * 0.3 for size in sizes]
        self.tensors |= {f"{prefix}{name}.weight": part for name, part in zip(names, parts, strict=True)}
        added = torch.randn(sum(sizes), generator=self.generator).to(self.dtype) if bias else None
        return Dense(torch.cat(parts).to(self.dtype), added, self.numerics)

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> list[Linear]:
        return [self.linear(f"{prefix}{e}.", names, sizes, in_features, bias) for e in range(count)]


def block(moe: MoEConfig = MOE, **source: Any) -> tuple[SparseMLP, Weights]:
    config = SimpleNamespace(hidden_size=HIDDEN, moe=moe, mlp=MLPConfig(INNER))
    weights = Weights(**source)
    return SparseMLP(config, weights, ""), weights  # type: ignore[arg-type]


def rows(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(9)).to(dtype)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@torch.no_grad()
@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize(
    ("moe", "options"),
    [
        (MOE, {"topk_method": "greedy"}),
        (replace(MOE, share_scale=2.5), {"routed_scaling_factor": 2.5}),
        (
            replace(MOE, groups=4, groups_per_token=2, share_scale=16.0),
            {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 16.0},
        ),
        (
            replace(MOE, groups=2, groups_per_token=1, experts_per_token=4),
            {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1, "num_experts_per_tok": 4},
        ),
    ],
    ids=["greedy", "scaled", "two groups of four", "one group of two, all of it"],
)
def test_deepseek_v2s_block(moe: MoEConfig, options: dict[str, Any], invariant: bool) -> None:
    ours, weights = block(moe, invariant=invariant)
    values = {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, "n_routed_experts": EXPERTS,
              "num_experts_per_tok": 3, "n_shared_experts": 2, "num_attention_heads": 4} | options  # fmt: skip
    config = DeepseekV2Config(**values)
    config._experts_implementation = "eager"
    theirs = DeepseekV2Moe(config)
    tensors = weights.tensors
    for expert in range(EXPERTS):
        gate, up, down = (tensors[f"experts.{expert}.{name}_proj.weight"] for name in ("gate", "up", "down"))
        theirs.experts.gate_up_proj[expert] = torch.cat((gate, up))
        theirs.experts.down_proj[expert] = down
    theirs.gate.weight.copy_(tensors["gate.weight"])
    for name in ("gate_proj", "up_proj", "down_proj"):
        getattr(theirs.shared_experts, name).weight.copy_(tensors[f"shared_experts.{name}.weight"])
    x = rows(33)
    expected = theirs(x[None])[0]
    found = ours.forward(x)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_shares_are_normalised_before_they_are_scaled() -> None:
    for moe, total in ((replace(MOE, normalised=True, share_scale=3.0), 3.0), (replace(MOE, routing="chosen"), 1.0)):
        _, shares = block(moe)[0].router.route(rows(7))
        assert torch.allclose(shares.sum(1), torch.full((7,), total))
    assert bool((block(MOE)[0].router.route(rows(7))[1].sum(1) < 0.999).all())


class Counted:
    """A layer that remembers how many rows each call had."""

    def __init__(self, layer: Linear) -> None:
        self.layer, self.calls = layer, list[int]()

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(x.shape[0])
        return self.layer(x)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_only_chosen_experts_run_each_once_for_all_its_rows(count: int) -> None:
    ours, _ = block()
    ours.gate_up = [Counted(layer) for layer in ours.gate_up]  # type: ignore[misc]
    ours.down = [Counted(layer) for layer in ours.down]  # type: ignore[misc]
    x = rows(count)
    chosen, _ = ours.router.route(x)
    ours.forward(x)
    asked = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
    expected = [[times] if times else [] for times in asked]
    assert sum(asked) == 3 * count
    for layers in (ours.gate_up, ours.down):
        assert [layer.calls for layer in layers] == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "moe",
    [
        replace(MOE, groups=4, groups_per_token=2, share_scale=1.5),
        replace(MOE, normalised=True, shared_size=0),
        replace(MOE, routing="chosen", bias=True, swiglu_limit=1.0, shared_size=0),
    ],
    ids=["groups and shared", "normalised", "gpt-oss"],
)
def test_a_rows_bits_do_not_depend_on_its_neighbours(moe: MoEConfig, dtype: torch.dtype) -> None:
    ours, _ = block(moe, dtype=dtype, invariant=True)
    x = rows(37, dtype)
    whole = ours.forward(x)
    assert whole.dtype == dtype
    for row in range(37):
        assert torch.equal(ours.forward(x[row : row + 1])[0], whole[row])
    for cut in (1, 5, 8, 20):
        assert torch.equal(torch.cat([ours.forward(part) for part in x.split(cut)]), whole)
    turned = torch.randperm(37, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ours.forward(x[turned]), whole[turned])


def test_no_rows_ask_nobody() -> None:
    for invariant in (False, True):
        assert block(invariant=invariant)[0].forward(rows(0)).shape == (0, HIDDEN)


def test_of_equal_scores_the_first_are_taken() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    assert best(scores, 2).tolist() == [[1, 2], [0, 1]]


def test_an_expert_outside_the_best_groups_has_no_share() -> None:
    """Not even where all others in those groups have come to 0 in float32."""
    router = block(replace(MOE, groups=4, groups_per_token=2))[0].router
    scores = torch.tensor([[8.0, -200.0, 10.0, -200.0, 9.0, -200.0, -200.0, -200.0]])
    router.linear = SimpleNamespace(forward_float32=lambda x: scores)  # type: ignore[assignment]
    chosen, shares = router.route(rows(1))
    assert chosen.tolist() == [[2, 4, 3]]
    assert shares[0, 2] == 0
    torch.testing.assert_close(shares[0, :2], scores.softmax(1)[0, [2, 4]], rtol=1e-6, atol=0)


def test_a_packed_router_is_not_rounded() -> None:
    """bitsandbytes packs routers like any layer: then its own float32 product is taken."""

    class Packed:
        def forward_float32(self, x: Tensor) -> Tensor:
            return x.float()[:, :EXPERTS]

    router: Router = block()[0].router
    router.linear = Packed()  # type: ignore[assignment]
    x = rows(5, torch.bfloat16)
    chosen, shares = router.route(x)
    expected = x.float()[:, :EXPERTS].softmax(1).topk(3)
    assert torch.equal(chosen, expected.indices)
    torch.testing.assert_close(shares, expected.values, rtol=1e-6, atol=0)


def test_what_is_held() -> None:
    ours, _ = block()
    names = [name for name, _ in ours.linears()]
    assert names[0] == "router"
    assert names[-2:] == ["shared.gate_up", "shared.down"]
    assert names[1:-2] == [f"experts.{e}.{part}" for e in range(EXPERTS) for part in ("gate_up", "down")]
    held = sum(linear.storage_size() for _, linear in ours.linears())
    assert held == 4 * HIDDEN * (EXPERTS + 3 * INNER * (EXPERTS + 2))
