"""Blocks of experts that are computed together, in the interpreter in float32, against the definition and the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.compute.batch import SequenceRows, row_class
from engine.compute.layers.experts import grouped, kernels
from engine.compute.layers.experts.router import Router
from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import Declined, Linear, Target
from engine.compute.layers.linear.dense import Concatenated, Dense
from engine.compute.layers.linear.triton import experts, ggml, int4
from engine.compute.layers.linear.triton.experts import PATH, ExpertStack, stacked, tile_count
from engine.compute.layers.linear.triton.kernels import planes
from engine.compute.layers.linear.triton.runtime import FIXED, Tile
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.numerics import Numerics
from engine.compute.native import triton_launch
from engine.config.feed_forward import MLPConfig, MoEConfig
from engine.formats import source as checkpoint_source
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours
from tests.conformance.expert_models import save_gpt_oss, save_gptq
from tests.conformance.gptq_packer import Packing
from tests.gpu.kernel_kinds import KINDS

CPU, FLOAT = torch.device("cpu"), torch.float32
PRETENDED = cast(torch.device, SimpleNamespace(type="cuda"))
HIDDEN, INNER = 96, 64
WIDTHS = {"NF4": 128, "Q4_K": 256, "Q6_K": 256, "IQ2_XXS": 256}
"""Of kinds whose blocks need other ones."""
MOE = MoEConfig(8, 2, INNER, (True,))
pytestmark = pytest.mark.content("engine/compute/layers/experts", "engine/compute/layers/linear/triton")


@pytest.fixture(autouse=True)
def _anywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are taken on a CPU too, where the interpreter runs them."""
    monkeypatch.setattr(experts, "machine_declines", lambda *of: None)
    grouped._tried.clear()
    yield
    grouped._tried.clear()


@pytest.fixture
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the trial, which takes long in the interpreter."""
    monkeypatch.setattr(grouped, "declines", lambda block, dtype, device: None)


class Weights:
    """A `WeightSource` of experts of one kind, no two of them alike; ``exact`` has each matrix by the definition."""

    device, dtype = CPU, FLOAT

    def __init__(self, kind: str, invariant: bool = False) -> None:
        self.kind, self.numerics = kind, Numerics(invariant)
        self.generator = torch.Generator().manual_seed(5)
        self.exact: list[list[tuple[Tensor, Tensor | None]]] = []

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Dense:
        weight = torch.randn(sum(sizes), in_features, generator=self.generator) * in_features**-0.5
        return Dense(weight, self._bias(sum(sizes), bias), self.numerics)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.generator) * 0.2

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        self.exact.append([])
        layers = (self._expert(e, sum(sizes), in_features, bias) for e in range(count))
        return stacked(layers, count, Target(FLOAT, PRETENDED, self.numerics))

    def _bias(self, size: int, bias: bool) -> Tensor | None:
        return torch.randn(size, generator=self.generator) if bias else None

    def _expert(self, expert: int, outputs: int, inputs: int, bias: bool) -> Linear:
        if self.kind == "dense":
            layer: Any = self.linear("", ("",), [outputs], inputs, bias)
            self.exact[-1].append((layer.weight.clone(), layer.bias))
            return cast(Linear, layer)
        layer, weight = KINDS[self.kind](outputs, inputs, FLOAT, CPU, self.numerics)
        # Another order of output features makes another expert.
        for name in ("words", "scales", "offsets", "codes", "zeros", "data"):
            held = getattr(layer, name, None)
            if held is not None:
                held.copy_(held.roll(expert, 0 if name in ("words", "codes", "data") else 1))
        layer.bias = self._bias(outputs, bias)
        self.exact[-1].append((weight.roll(expert, 0), layer.bias))
        return layer


def block(
    moe: MoEConfig, kind: str = "int4 g32", invariant: bool = False, activation: str = "silu"
) -> tuple[SparseMLP, Weights]:
    config = SimpleNamespace(
        hidden_size=WIDTHS.get(kind, HIDDEN),
        moe=moe,
        mlp=MLPConfig(INNER, activation=activation),
    )
    source = Weights(kind, invariant)
    return SparseMLP(cast(Any, config), cast(Any, source), ""), source


def rows(count: int, width: int = HIDDEN) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(count))


def by_definition(mlp: SparseMLP, source: Weights, x: Tensor) -> Tensor:
    chosen, shares = mlp.router.route(x)
    out = torch.zeros(x.shape, dtype=torch.float64)
    gate_up, down = ([(w.double(), 0 if b is None else b.double()) for w, b in part] for part in source.exact)
    for row in range(len(x)):
        for expert, share in zip(chosen[row].tolist(), shares[row].tolist(), strict=True):
            (w, b), (v, c) = gate_up[expert], down[expert]
            out[row] += share * (v @ mlp.gated((w @ x[row].double() + b)[None])[0] + c)
    return out if mlp.shared is None else out + mlp.shared.forward(x).double()


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert (found.double() - expected).abs().max() <= 1e-5 * expected.abs().max()


SHAPES = {
    "8": MOE,
    "12, sigmoids in groups": replace(MOE, num_experts=12, experts_per_token=3, routing="sigmoid", choice_bias=True,
                                      normalised=True, groups=3, groups_per_token=2, share_scale=2.5),
    "8, sigmoids as they are": replace(MOE, routing="sigmoid", experts_per_token=3),
    "8, chosen with a bias": replace(MOE, choice_bias=True, normalised=True),
    "8, normalised, shared": replace(MOE, normalised=True, shared_size=48, share_scale=1.5),
    "32 in groups": replace(MOE, num_experts=32, experts_per_token=4, groups=8, groups_per_token=3, shared_size=32),
    "128": replace(MOE, num_experts=128, experts_per_token=8, normalised=True),
    "gpt-oss": replace(MOE, num_experts=32, experts_per_token=4, routing="chosen", bias=True, swiglu_limit=1.0),
}  # fmt: skip


MARKS = {(name, count): pytest.mark.long for name in ("32 in groups", "128", "gpt-oss") for count in (5, 70)}
MARKS[("8", 70)] = pytest.mark.always


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize(
    ("name", "count"),
    [pytest.param(name, count, marks=MARKS.get((name, count), ())) for name in SHAPES for count in (1, 5, 70)],
)
def test_a_block(name: str, count: int) -> None:
    moe = SHAPES[name]
    mlp, source = block(moe)
    assert mlp.grouped is not None
    x = rows(count)
    assert len(mlp.router.route(x)[0].unique()) < moe.num_experts or count == 70, "some experts get no rows"
    assert_near(mlp.forward(x), by_definition(mlp, source, x))


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=pytest.mark.always) for kind in
                                    ("dense", "int4 rows fp32", "int8 rows", "MXFP4 raw")),
                                  "int4 g32 zeros bf16", "NF4", "int8 g32", "MXFP4", "Q4_1",
                                  *(pytest.param(kind, marks=pytest.mark.long) for kind in ("Q4_K", "Q6_K", "IQ2_XXS"))
                                  ])  # fmt: skip
def test_a_kind(kind: str) -> None:
    inner = max(INNER, WIDTHS.get(kind, 0))
    mlp, source = block(replace(MOE, bias=kind == "MXFP4", intermediate_size=inner), kind)
    assert mlp.grouped is not None, mlp.gate_up[0].declined
    x = rows(3, WIDTHS.get(kind, HIDDEN))
    assert_near(mlp.forward(x), by_definition(mlp, source, x))


@pytest.mark.usefixtures("_trusted")
def test_the_loop_says_the_same() -> None:
    for moe in (MOE, SHAPES["8, normalised, shared"]):
        mlp, _ = block(moe)
        x = rows(5)
        together, mlp.grouped = mlp.forward(x), None
        assert (mlp.forward(x) - together).abs().max() <= 2e-6 * together.abs().max()
    assert block(MOE)[0].forward(rows(0)).shape == (0, HIDDEN)


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("kind", ["int4 g32", "dense"])
def test_a_rows_bits_do_not_depend_on_its_neighbours(kind: str) -> None:
    mlp, _ = block(replace(MOE, shared_size=32), kind, invariant=True)
    x = rows(21)
    whole = mlp.forward(x)
    for part in (slice(0, 1), slice(7, 8), slice(3, 20)):
        assert torch.equal(mlp.forward(x[part]), whole[part])
    turned = torch.randperm(21, generator=torch.Generator().manual_seed(1))
    assert torch.equal(mlp.forward(x[turned]), whole[turned])


class _Asked(TorchDispatchMode):
    """Writes down operators with the shapes of their tensors, and refuses those that read a tensor's contents."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "unique", "_unique2", "masked_select"), name
        self.nodes.append((name, [tuple(arg.shape) if isinstance(arg, Tensor) else str(arg) for arg in args]))
        return function(*args, **(kwargs or {}))


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("count", [1, 6])
def test_what_is_launched_does_not_depend_on_the_choice(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    traces = []
    launched = triton_launch.Variants.launch

    def launch(
        self: Any, kernel: Any, key: Any, grid: Any, args: Any, keywords: Callable[[], dict[str, Any]], *more: Any,
        **early: Any,
    ) -> None:  # fmt: skip
        shapes = [tuple(arg.shape) if isinstance(arg, Tensor) else arg for arg in args]
        asked.nodes.append((kernel.fn.__name__, key, grid, shapes, sorted(keywords().items())))
        with _disable_current_modes():
            launched(self, kernel, key, grid, args, keywords, *more, **early)

    mlp, _ = block(replace(MOE, shared_size=32), "dense")
    x = rows(count)
    mlp.forward(x)  # what is worked out once
    monkeypatch.setattr(triton_launch.Variants, "launch", launch)
    monkeypatch.setattr(Tensor, "tolist", None)
    for given in (x, x[:1].expand(count, HIDDEN).contiguous(), -x):
        with _Asked() as asked:
            mlp.forward(given)
        traces.append(asked.nodes)
    assert traces[0] == traces[1] == traces[2]
    assert [node[0] for node in traces[0] if node[0] in ("score", "route", "sort", "multiply_sorted", "combine")] == [
        "score", "route", "sort", "multiply_sorted", "multiply_sorted", "combine"
    ]  # fmt: skip


# --- the kernels around the products ------------------------------------------------------------------------------


class _Nothing(list[None]):
    """Experts without contents."""

    def wide(self) -> tuple[()]:
        return ()


def around(router: Router, experts: int) -> grouped.GroupedExperts:
    """A block that is only asked for what lies around its products."""
    stack = cast(Any, _Nothing([None] * experts))
    return grouped.GroupedExperts(router, stack, stack, cast(Any, None))


ROUTINGS = {
    "all": MOE,
    "normalised and scaled": replace(MOE, normalised=True, share_scale=2.5),
    "chosen": replace(MOE, routing="chosen", experts_per_token=3),
    "groups of five": replace(MOE, num_experts=20, groups=4, groups_per_token=2, experts_per_token=6, share_scale=16.0),
    "one group": replace(MOE, groups=4, groups_per_token=1, experts_per_token=2),
    "sigmoids": replace(MOE, routing="sigmoid", experts_per_token=3, share_scale=1.5),
    "sigmoids with a bias": replace(MOE, routing="sigmoid", choice_bias=True, normalised=True),
    "sigmoids in groups of five": replace(MOE, num_experts=20, groups=4, groups_per_token=2, experts_per_token=6,
                                          routing="sigmoid", choice_bias=True, normalised=True, share_scale=2.5),
    "all with a bias": replace(MOE, choice_bias=True, normalised=True),
    "more than a warp": replace(MOE, num_experts=300, experts_per_token=7),
    "one expert": replace(MOE, num_experts=1, experts_per_token=1),
}  # fmt: skip


@pytest.mark.always
@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("name", ROUTINGS)
def test_experts_are_chosen_as_by_the_definition(name: str) -> None:
    moe = ROUTINGS[name]
    scores = torch.randn(12, moe.num_experts, generator=torch.Generator().manual_seed(2))
    scores[1], scores[2, 1::2], scores[3, : moe.num_experts // 2] = 0.0, -0.0, 5.0  # equals
    scores[4] = -200.0 * torch.arange(moe.num_experts)  # most shares are 0
    if moe.routing == "chosen":
        scores[5, :-4], scores[6, -1] = float("-inf"), float("nan")
    router = Router(moe, HIDDEN, cast(Any, Weights("dense")), "")
    chosen, shares = router.choose(scores)
    found = around(router, moe.num_experts).route(scores)
    order = chosen.argsort(1)
    assert torch.equal(found.chosen.long(), chosen.gather(1, order))
    assert torch.allclose(found.shares, shares.gather(1, order), rtol=1e-5, atol=1e-9, equal_nan=True)


@pytest.mark.always
@pytest.mark.parametrize("cut", [Tile(8, 16, 2), FIXED])
@pytest.mark.parametrize(("count", "choices", "number"), [(1, 4, 6), (40, 2, 40), (3, 1, 1), (700, 2, 33)])
def test_rows_are_sorted_by_expert(count: int, choices: int, number: int, cut: Tile) -> None:
    generator = torch.Generator().manual_seed(count)
    asked = torch.rand(count, number, generator=generator).argsort(1)[:, :choices]
    asked[: count // 2, 0] = number // 2  # many ask the same one
    router = SimpleNamespace(moe=replace(MOE, experts_per_token=choices, num_experts=number))
    found = around(cast(Any, router), number).sort(asked.int(), cut)
    order = asked.flatten().argsort(stable=True)
    assert torch.equal(found.entries.long(), order)
    assert torch.equal(found.entries.long()[found.places.flatten().long()], torch.arange(count * choices))
    covered: list[int] = []
    for expert, start, stop, _ in found.tiles.tolist():
        if expert < 0:
            assert start == stop == 0
            continue
        run = range(start, min(stop, start + cut.rows))
        assert run
        assert set(asked.flatten()[order[list(run)]].tolist()) == {expert}
        covered += run
    assert covered == list(range(count * choices))


def test_there_are_tiles_for_the_worst_case() -> None:
    for entries, number, size in [(8, 128, 8), (16, 4, 8), (17, 4, 8), (1000, 3, 16), (9, 1, 8)]:
        most = min(number, entries)
        # All but one are asked once, or as often as leaves one row for a tile of its own.
        each = [1 + size * ((entries - most) // most // size)] * most
        each[0] += entries - sum(each)
        assert sum(-(-rows // size) for rows in each) <= tile_count(entries, number, size) <= most + entries // size
    assert tile_count(8, 128, 8) == 8


# --- what is held -------------------------------------------------------------------------------------------------


def test_experts_are_views_of_one_tensor() -> None:
    target, source = Target(FLOAT, PRETENDED, Numerics()), Weights("int4 g64 zeros")
    source.exact.append([])
    apart = [source._expert(e, 64, 128, True) for e in range(4)]
    size, exact = sum(layer.storage_size() for layer in apart), [layer.dequantised(FLOAT) for layer in apart]
    stack = stacked(iter(apart), 4, target)
    assert isinstance(stack, ExpertStack)
    assert [layer.path for layer in stack] == [PATH] * 4
    assert [layer.declined for layer in stack] == [[]] * 4
    storages = {}
    for layer in cast(Any, stack):
        for name in ("words", "scales", "offsets", "bias"):
            storage = getattr(layer, name).untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    assert len(storages) == 4
    assert sum(storages.values()) == sum(layer.storage_size() for layer in stack) == size
    assert all(torch.equal(layer.dequantised(FLOAT), weight) for layer, weight in zip(stack, exact, strict=True))


def test_the_next_expert_is_read_when_the_one_before_is_in_its_place() -> None:
    source = Weights("int4 g64")
    source.exact.append([])
    made: list[Any] = []

    def one_by_one() -> Iterator[Linear]:
        for expert in range(3):
            if made:
                assert made[-1].words.untyped_storage().nbytes() == 3 * made[-1].words.nbytes
            made.append(source._expert(expert, 64, 128, False))
            yield made[-1]

    assert len(stacked(one_by_one(), 3, Target(FLOAT, PRETENDED, Numerics()))) == 3


def reason(layers: Sequence[Linear], target: Target | None = None) -> str:
    made = stacked(layers, len(layers), target or Target(FLOAT, PRETENDED, Numerics()))
    assert isinstance(made, list)
    (declined,) = {layer.declined[0] for layer in made}
    assert declined.path == PATH
    return declined.reason


def test_what_keeps_its_loop_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(kind: str, outputs: int = 32) -> Any:
        return KINDS[kind](outputs, 128, FLOAT, CPU, Numerics()).layer

    weight = torch.randn(32, 128)
    assert "magnitudes" in reason([made("NF4 nested"), made("NF4 nested")])
    ordered = made("int4 g32")
    ordered.order = torch.arange(128)
    assert "not runs" in reason([ordered])
    assert "layers that use" in reason([Concatenated([made("int4 g32"), made("int4 g32")])])
    assert "another dtype" in reason([Dense(weight, None, Numerics())], Target(torch.float16, PRETENDED, Numerics()))
    mixed = [made("int4 g32"), made("int4 g32"), made("int4 g32 zeros bf16")]
    exact = [layer.dequantised(FLOAT) for layer in mixed]
    assert "alike" in reason(mixed)
    assert [layer.words.untyped_storage().nbytes() == layer.words.nbytes for layer in mixed] == [True] * 3
    assert all(torch.equal(layer.dequantised(FLOAT), each) for layer, each in zip(mixed, exact, strict=True))
    monkeypatch.setattr(experts, "machine_declines", lambda *of: "Triton is not installed")
    assert reason([Dense(weight, None, Numerics())]) == "Triton is not installed"
    for target in (Target(FLOAT, CPU, Numerics()), Target(FLOAT, PRETENDED, Numerics(), native=False)):
        (layer,) = stacked([Dense(weight, None, Numerics())], 1, target)
        assert (layer.declined, layer.path) == ([], "torch linear")


def test_one_layer_that_cannot_leaves_the_other_its_loop() -> None:
    class Half(Weights):
        def _expert(self, expert: int, outputs: int, inputs: int, bias: bool) -> Linear:
            self.kind = "NF4 nested" if inputs == INNER else "NF4"
            return super()._expert(expert, outputs, inputs, bias)

    width = WIDTHS["NF4"]
    config = SimpleNamespace(hidden_size=width, moe=MOE, mlp=MLPConfig(INNER))
    mlp = SparseMLP(cast(Any, config), cast(Any, Half("NF4")), "")
    assert mlp.grouped is None
    assert [layer.declined for layer in mlp.gate_up] == [
        [Declined(PATH, "an expert's other layer has no such kernel")]
    ] * 8
    assert {layer.path for layer in mlp.gate_up} == {"Triton kernel"}
    assert mlp.forward(rows(3, width)).shape == (3, width)


# --- the trial ----------------------------------------------------------------------------------------------------


class _Broken:
    """A kernel that changes a number of its result."""

    def __init__(self, kernel: Any, place: int) -> None:
        self.kernel, self.place, self.fn = kernel, place, kernel.fn
        self.arg_names = kernel.arg_names

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **keywords: Any) -> None:
            self.kernel[grid](*args, **keywords)
            out = args[self.place].view(-1)
            out[-1] = out[0] + 1

        return launch


SMALL = replace(MOE, num_experts=4, intermediate_size=32)


@pytest.mark.parametrize("kind", ["dense", "int4 g32", "int8 g32"])
def test_a_block_proves_itself_once(kind: str) -> None:
    for _ in range(2):
        assert block(SMALL, kind)[0].grouped is not None
    assert list(grouped._tried.values()) == [None]


@pytest.mark.parametrize(("name", "place", "said"), [
    ("score", 3, "scores of experts"),
    ("route", 2, "choice of experts"), ("route", 3, "shares"), ("sort", 1, "order of rows"), ("combine", 4, "sum"),
])  # fmt: skip
def test_a_wrong_kernel_is_found_out_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch, name: str, place: int, said: str
) -> None:
    monkeypatch.setattr(kernels, name, _Broken(getattr(kernels, name), place))
    mlp, source = block(SMALL, "dense")
    assert mlp.grouped is None
    (declined,) = {layer.declined[0] for _, layer in mlp.linears() if layer.declined}
    assert (declined.path, said in declined.reason, "not agree" in declined.reason) == (PATH, True, True)
    x = rows(5)
    assert_near(mlp.forward(x), by_definition(mlp, source, x))


def test_a_wrong_product_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "multiply_sorted", _Broken(planes.multiply_sorted, 8))
    mlp, _ = block(SMALL)
    assert mlp.grouped is None
    assert "products" in mlp.gate_up[0].declined[0].reason


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("kind", ["dense", "int4 g32"])
def test_every_tile_of_a_step_is_tried(kind: str) -> None:
    together = block(SMALL, kind)[0].grouped
    assert together is not None
    usual = {together.cut(rows) for rows in range(1, 2000)}
    together.router.numerics.batch_invariant = True
    invariant = {together.cut(rows) for rows in range(1, 2000)}
    assert invariant == {FIXED}
    assert usual | invariant == set(together.cuts())


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize(("experts", "choices"), [(4, 2), (8, 2), (32, 4)])
def test_a_padded_step_is_cut_as_one_that_is_not(experts: int, choices: int) -> None:
    together = block(replace(SMALL, num_experts=experts, experts_per_token=choices), "dense")[0].grouped
    assert together is not None
    for rows in range(1, 65):
        assert together.cut(rows) == together.cut(row_class(rows)), rows


# --- checkpoints --------------------------------------------------------------------------------------------------


@pytest.fixture
def _loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are chosen as for a GPU, and stay on the CPU."""
    monkeypatch.setattr(choose, "machine_declines", lambda *of: None)
    for module in (int4, ggml):
        monkeypatch.setattr(module, "_disagrees", lambda *of: None)
    for kind, paths in choose._PATHS.items():
        monkeypatch.setitem(choose._PATHS, kind, tuple(replace(p, device="") for p in paths if p.device != "cpu"))

    def pretending(layers: Any, count: int, target: Target) -> Sequence[Linear]:
        return stacked(layers, count, target._replace(device=PRETENDED))

    monkeypatch.setattr(checkpoint_source, "stacked", pretending)


@torch.inference_mode()
@pytest.mark.usefixtures("_loaded", "_trusted")
@pytest.mark.parametrize("name", ["gpt-oss", "Mixtral", "Qwen3Moe"])
def test_a_checkpoint(name: str, tmp_path: Path) -> None:
    reference = save_gpt_oss(tmp_path) if name == "gpt-oss" else save_gptq(tmp_path, name, Packing())
    ours = Ours(tmp_path)
    blocks = [layer.mlp for layer in cast(Any, ours.model).layers if isinstance(layer.mlp, SparseMLP)]
    assert blocks
    assert all(mlp.grouped is not None for mlp in blocks)
    tokens = [3, 40, 77, 9]
    expected = reference(torch.tensor([tokens])).logits[0]
    found = ours.runner.forward([SequenceRows(tokens, 0, ours.pages(0), 4)]).logits
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    planned = open_checkpoint(tmp_path, need_tokenizer=False).planned(FLOAT)
    traits = [
        [(n, one.path, one.declined, one.storage_size()) for n, one in model.linears()]
        for model in (planned, ours.model)
    ]
    assert traits[0] == traits[1]
    assert {path for n, path, *_ in traits[0] if ".experts." in n} == {PATH}


@pytest.mark.usefixtures("_loaded", "_trusted")
def test_an_order_of_their_own_is_declined(tmp_path: Path) -> None:
    save_gptq(tmp_path, "Mixtral", Packing(symmetric=False, act_order=True))
    for model in (Ours(tmp_path).model, open_checkpoint(tmp_path, need_tokenizer=False).planned(FLOAT)):
        found = {one.declined[0] for name, one in model.linears() if ".experts." in name}
        assert found == {Declined(PATH, "its groups are not runs of input features")}
