"""Blocks of experts for a few rows, in the interpreter: the bits of a kernel for each part, and the loop by definition.

Tensor cores sum up every output feature alike; what numpy multiplies with does not, so that dots are exact here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.compute.layers.triton.interpreted import interpreter  # isort: skip (before all that imports Triton)
from engine.compute.layers.activation import ClampedSwiGLU, Gated
from engine.compute.layers.experts import few, grouped, kernels
from engine.compute.layers.experts.few import FewExperts
from engine.compute.layers.linear.adapted import Adapted, StepAdapters
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton import experts
from engine.compute.layers.linear.triton.kernels import few_experts
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.residual import ResidualStream, add_scaled
from engine.compute.layers.triton import fused
from engine.config.feed_forward import ExpertNames, MLPConfig, MoEConfig
from tests.engine.compute.layers.triton import cases_experts
from tests.engine.compute.layers.triton.cases_experts import _Broken

HIDDEN, INNER = 96, 32
MOE = MoEConfig(8, 2, INNER, (True,))
QWEN = replace(
    MOE,
    normalised=True,
    shared_size=64,
    names=ExpertNames(shared="shared_expert", shared_gate="shared_expert_gate"),
)
WIDTHS = {"Q4_1": 128, "MXFP4": 128, **cases_experts.WIDTHS}
"""Of kinds whose blocks need other ones."""
pytestmark = [
    pytest.mark.content("engine/compute/layers/experts", "engine/compute/layers/linear/triton"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp"),  # numpy's, where silu has ended
]


@pytest.fixture(autouse=True)
def _anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are taken on a CPU too, where the interpreter runs them, and dots are summed in float64."""

    def dot(a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        exact = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64)).astype(d.data.dtype)
        return interpreter.TensorHandle(exact + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.interpreter_builder, "create_dot", dot)
    monkeypatch.setattr(experts, "machine_declines", lambda *of: None)
    monkeypatch.setattr(grouped, "declines", lambda block, dtype, device: None)
    monkeypatch.setattr(few, "_tried", {})


@pytest.fixture
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the trial, which takes long in the interpreter."""
    monkeypatch.setattr(few, "disagrees", lambda few, norm, dtype: None)


class Weights(cases_experts.Weights):
    """Of experts of one kind; ``packed``: the shared one is packed as they are."""

    def __init__(self, kind: str, packed: bool) -> None:
        super().__init__(kind)
        self.packed = packed

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Any:
        if not self.packed or "shared" not in prefix:
            return super().linear(prefix, names, sizes, in_features, bias)
        exact, self.exact = self.exact, [[]]
        layer = self._expert(0, sum(sizes), in_features, bias)
        self.exact = exact
        return layer


def block(moe: MoEConfig, kind: str = "int4 g32", packed: bool = False, hidden: int = HIDDEN) -> SparseMLP:
    config = SimpleNamespace(hidden_size=hidden, moe=moe, mlp=MLPConfig(INNER))
    return SparseMLP(cast(Any, config), cast(Any, Weights(kind, packed)), "")


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a_norm(size: int = HIDDEN) -> RMSNorm:
    return RMSNorm(1 + 0.2 * normal(size, seed=3), 1e-5, Numerics())


def of(mlp: SparseMLP) -> FewExperts:
    assert mlp.few is not None
    return mlp.few


def apart(mlp: SparseMLP, x: Tensor, norm: RMSNorm, scale: float) -> Tensor:
    """What is to be added to the stream, and has been, by one kernel for each part."""
    together = mlp.grouped
    assert together is not None
    normed = fused.add_norm(x, torch.zeros_like(x), 1.0, norm.weight, norm.eps)
    choice = together.route(together.scores(normed))
    entries = together.sort(choice.chosen, together.cut(len(x)))
    gate_up = together.gate_up.multiply(normed, entries, together.choices)
    if isinstance(together.gated, ClampedSwiGLU):
        gated = fused.gate(gate_up, "clamped", together.gated.limit, together.gated.alpha)
    else:
        assert isinstance(together.gated, Gated)
        gated = fused.gate(gate_up, cast(Any, together.gated.kind))
    sums = together.combine(together.down.multiply(gated, entries, 0), entries, choice.shares, shared_of(mlp, normed))
    add_scaled(x, sums, scale)
    return x


def shared_of(mlp: SparseMLP, x: Tensor) -> Tensor | None:
    """By the kernel of gating, where the shared expert is packed."""
    if mlp.shared is None or mlp.few is None or mlp.few.packed() is None:
        return mlp._shared(x)
    assert isinstance(mlp.few.shared, type(mlp.shared))
    layers = cast(Any, mlp.shared)
    shared = layers.down(fused.gate(layers.gate_up(x), "silu"))
    return shared if mlp.shared_gate is None else shared * torch.sigmoid(mlp.shared_gate(x))


SHAPES = {
    "softmax": MOE,
    "sigmoids in groups": replace(MOE, num_experts=20, experts_per_token=3, routing="sigmoid", choice_bias=True,
                                  normalised=True, groups=4, groups_per_token=2, share_scale=2.5),
    "normalised, shared": replace(MOE, normalised=True, shared_size=64, share_scale=1.5),
    "in groups": replace(MOE, num_experts=32, experts_per_token=4, groups=8, groups_per_token=3, shared_size=32),
    "gpt-oss": replace(MOE, num_experts=32, experts_per_token=4, routing="chosen", bias=True, swiglu_limit=1.0),
    "one expert": replace(MOE, num_experts=1, experts_per_token=1),
}  # fmt: skip


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize(("name", "rows", "packed"), [
    pytest.param("softmax", 1, False, marks=pytest.mark.always), ("sigmoids in groups", 2, False),
    ("normalised, shared", 1, False), ("normalised, shared", 2, True), ("in groups", 1, True), ("gpt-oss", 1, False),
    ("one expert", 1, False),
])  # fmt: skip
def test_the_bits_of_a_kernel_for_each_part(name: str, rows: int, packed: bool) -> None:
    moe, norm = SHAPES[name], a_norm()
    mlp, x = block(moe, packed=packed), normal(rows, HIDDEN)
    assert (of(mlp).packed() is not None) == packed
    stream = ResidualStream(x.clone())
    assert of(mlp).add_to(stream, norm, 1.0)
    assert torch.equal(stream.value(), apart(mlp, x.clone(), norm, 1.0))
    assert not torch.equal(stream.value(), x)


@pytest.mark.usefixtures("_trusted")
def test_eight_rows() -> None:
    moe = replace(MOE, num_experts=64, experts_per_token=4)
    mlp, x, norm = block(moe), normal(8, HIDDEN), a_norm()
    stream = ResidualStream(x.clone())
    assert of(mlp).add_to(stream, norm, 0.22)
    assert torch.equal(stream.value(), apart(mlp, x.clone(), norm, 0.22))


@pytest.mark.usefixtures("_trusted")
def test_in_sixteen_bits_with_a_gate_and_what_waits_to_be_added() -> None:
    """The gate's sigmoid is torch's where each part is apart, whose last bit may differ from the kernel's."""
    mlp = block(QWEN, packed=True)
    norm, x, added = a_norm(), normal(2, HIDDEN).half(), normal(2, HIDDEN, seed=2).half()
    for linear in (of(mlp).gate, mlp.shared_gate):
        assert isinstance(linear, Dense)
        linear.weight = linear.weight.half()
    found = ResidualStream(x.clone())
    found.add(added, 0.5)
    assert of(mlp).add_to(found, norm, 1.0)
    expected = apart(mlp, x + added * 0.5, norm, 1.0)
    assert found.value().dtype == torch.float16
    assert (found.value() - expected).abs().max() <= 2e-3 * expected.abs().max()


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("name", list(SHAPES))
def test_the_loop_over_experts_says_the_same(name: str) -> None:
    mlp, norm = block(SHAPES[name]), a_norm()
    x = normal(1, HIDDEN)
    stream = ResidualStream(x.clone())
    mlp.add_to(stream, norm, 1.0)
    mlp.few = mlp.grouped = None
    expected = ResidualStream(x.clone())
    mlp.add_to(expected, norm, 1.0)
    far = (stream.value() - expected.value()).abs().max()
    assert far <= 1e-5 * (expected.value() - x).abs().max()


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("kind", [pytest.param("int4 rows fp32", marks=pytest.mark.always), "int4 g32 zeros bf16",
                                  "NF4", "MXFP4", "Q4_1", pytest.param("Q4_K", marks=pytest.mark.long)])  # fmt: skip
def test_a_kind(kind: str) -> None:
    width = WIDTHS.get(kind, HIDDEN)
    inner = min(width, WIDTHS.get(kind, INNER))
    moe = replace(MOE, num_experts=3, experts_per_token=2, intermediate_size=inner, shared_size=inner)
    mlp, norm, x = block(replace(moe, bias=kind == "MXFP4"), kind, True, width), a_norm(width), normal(1, width)
    assert (of(mlp).packed() is None) == (kind == "MXFP4"), "the shared expert has no biases"
    stream = ResidualStream(x.clone())
    assert of(mlp).add_to(stream, norm, 1.0)
    assert_near(stream.value(), apart(mlp, x.clone(), norm, 1.0))


@pytest.mark.usefixtures("_trusted")
def test_more_experts_than_are_summed_at_a_time_and_blocks_than_they_have_warps() -> None:
    """Sums have another order then."""
    moe = replace(MOE, num_experts=12, experts_per_token=9, intermediate_size=96)
    mlp, norm, x = block(moe), a_norm(), normal(1, HIDDEN)
    stream = ResidualStream(x.clone())
    assert of(mlp).add_to(stream, norm, 1.0)
    assert_near(stream.value(), apart(mlp, x.clone(), norm, 1.0))


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() <= 2e-6 * expected.abs().max()


def reason(moe: MoEConfig, rows: int = 1, kind: str = "int4 g32", norm: Any = None, x: Tensor | None = None) -> str:
    return str(of(block(moe, kind)).declines(normal(rows, HIDDEN) if x is None else x, norm or a_norm()))


@pytest.mark.usefixtures("_trusted")
def test_what_declines_says_why() -> None:
    assert reason(MOE) == reason(MOE, 2) == "None"
    assert "step of 9 rows" in reason(replace(MOE, num_experts=64), 9)
    assert "several rows" in reason(MOE, 3)
    assert "not in planes" in reason(MOE, kind="dense")
    assert "not in planes" in reason(MOE, kind="int8 g32")
    assert "scales of their own" in reason(replace(MOE, expert_scales=True))
    assert "no whole tensor" in reason(MOE, x=normal(1, 2 * HIDDEN)[:, ::2])
    assert "root mean square" in reason(MOE, norm=cast(Any, SimpleNamespace(weight=torch.ones(HIDDEN))))
    mlp = block(MOE)
    of(mlp).block.router.numerics.batch_invariant = True
    assert "last bits" in str(of(mlp).declines(normal(1, HIDDEN), a_norm()))
    of(mlp).block.router.numerics.batch_invariant = False
    packed = block(MOE)
    packed.router.linear = cast(Linear, packed.gate_up[0])
    found = FewExperts(of(packed).block, None, None, lambda x: None)
    assert "is packed" in str(found.declines(normal(1, HIDDEN), a_norm()))


@pytest.mark.usefixtures("_trusted")
def test_a_shared_expert_that_an_adapter_changes_is_computed_apart() -> None:
    mlp, norm, x = block(replace(MOE, shared_size=64), packed=True), a_norm(), normal(1, HIDDEN)
    own = cast(Any, mlp.shared)
    own.down = Adapted(own.down, StepAdapters(), Numerics())
    assert of(mlp).packed() is None
    stream = ResidualStream(x.clone())
    assert of(mlp).add_to(stream, norm, 1.0)
    assert torch.equal(stream.value(), apart(mlp, x.clone(), norm, 1.0))


def test_a_block_proves_itself_once() -> None:
    for _ in range(2):
        assert of(block(QWEN, packed=True)).declines(normal(1, HIDDEN), a_norm()) is None
    assert list(few._tried.values()) == [None]


@pytest.mark.parametrize(("module", "name", "place", "said"), [
    (kernels, "judge", 6, "sums and norms"), (kernels, "judge", 8, "scores"),
    (few_experts, "multiply_chosen", 8, "gated products"), (few_experts, "multiply_chosen", 11, "choices"),
    (few_experts, "multiply_summed", 8, "sums of experts"),
])  # fmt: skip
def test_a_wrong_kernel_is_found_out_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, place: int, said: str
) -> None:
    monkeypatch.setattr(module, name, _Broken(getattr(module, name), place))
    mlp, norm, x = block(MOE), a_norm(), normal(1, HIDDEN)
    found = str(of(mlp).declines(x, norm))
    assert said in found
    assert "do not agree" in found
    stream, expected = ResidualStream(x.clone()), apart(mlp, x.clone(), norm, 1.0)
    mlp.add_to(stream, norm, 1.0)
    assert (stream.value() - expected).abs().max() <= 1e-5 * expected.abs().max()
