"""Products that ask for weights first: their kernels' own source over NumPy, beside the definition; what declines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton.experimental.gluon")

from engine.compute.layers.linear.base import Surroundings
from engine.compute.layers.linear.triton import plane_layer, resident
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.linear.triton.runtime import RingCut, StripCut
from engine.compute.layers.numerics import Numerics
from engine.compute.native import triton_launch
from tests.engine.compute.layers.triton import gluon_on_numpy
from tests.gpu import kernel_kinds
from tests.gpu.kernel_kinds import KINDS

pytestmark = pytest.mark.content("engine/compute/layers/linear/triton")
SUMS = 3e-5
"""Share of the largest value by which float32 sums may be off: float16's codes are 1,024 too large on the way."""
CPU, META = torch.device("cpu"), torch.device("meta")
SERVED = ("int4 g128", "int4 g128 zeros", "int4 g64", "int4 g64 zeros", "int4 rows fp32", "int4 g64 zeros bf16")
kernel_kinds.KINDS["int4 g64 zeros bf16"] = kernel_kinds.Affine(64, False, torch.bfloat16)


@pytest.fixture(autouse=True)
def _as_on_a_gpu() -> Iterator[None]:
    """PTX is inlined, and there are three multiprocessors."""
    with (
        mock.patch.object(plane_layer, "inlines", return_value=True),
        mock.patch.object(resident, "processors", return_value=3),
    ):
        yield


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(kind: str, outputs: int, blocks: int, dtype: torch.dtype = torch.float16) -> tuple[PlaneLinear, Tensor]:
    """A layer with so many blocks of planes to an output feature, and its weights in float64."""
    plane = KINDS[kind](16, 1024, dtype, META, Numerics()).layer.program_inputs
    layer, weight = KINDS[kind](outputs, blocks * plane, dtype, CPU, Numerics())
    assert isinstance(layer, PlaneLinear)
    assert layer.blocks == blocks
    layer.bias = torch.linspace(-1, 1, outputs).to(dtype)
    return layer, weight.double()


def computed(
    layer: PlaneLinear, x: Tensor, cut: StripCut | RingCut, around: Surroundings = resident.NONE, late: bool = True,
    dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """What the kernel computes, in the dtype of x if no other is asked for."""
    out = around.stream
    if out is None:
        features = layer.out_features // (2 if around.gating else 1)
        out = torch.full((len(x), features), torch.nan, dtype=dtype or x.dtype)
    with triton_launch.gathering() as launches:
        resident.launch(layer, x, out, cut, around)
    gluon_on_numpy.run(launches[0], late)
    return out


def near(found: Tensor, expected: Tensor, share: float) -> None:
    assert (found.double() - expected).abs().max() <= share * expected.abs().max()
    assert expected.any()


def product(layer: PlaneLinear, weight: Tensor, x: Tensor) -> Tensor:
    assert layer.bias is not None
    return x.double() @ weight.t() + layer.bias.double()


@pytest.mark.always("kind")
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kind", SERVED)
def test_every_packing_that_is_served(kind: str, rows: int) -> None:
    """Four warps, which have three turns and in the last one no block for half of them."""
    layer, weight = made(kind, 32, 10)
    x, cut = normal(rows, layer.in_features).half(), resident.strip_of(layer)
    assert (cut.warps, layer.form.plane in resident.PLANES) == (4, True)
    near(computed(layer, x, cut, dtype=torch.float32), product(layer, weight, x), SUMS)


MATRICES = {"qkv": (96, 4096), "o": (64, 4096), "gate_up": (448, 4096), "down": (64, 14336)}
"""Of an 8B, with a 64th of the output features."""


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("name", MATRICES)
def test_the_matrices_of_a_layer(name: str, rows: int) -> None:
    outputs, inputs = MATRICES[name]
    layer, weight = made("int4 g128", outputs, inputs // 512, torch.bfloat16)
    x = normal(rows, inputs).bfloat16()
    cut = resident.cut_of(layer, rows) or resident.strip_of(layer)
    assert isinstance(cut, RingCut if name == "gate_up" else StripCut)
    near(computed(layer, x, cut, dtype=torch.float32), product(layer, weight, x), SUMS)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("blocks", "pieces"), [(8, 4), (8, 2), (12, 3), (12, 5)])
@pytest.mark.parametrize("rows", [1, 6])
def test_programs_that_take_strip_after_strip(rows: int, blocks: int, pieces: int, late: bool) -> None:
    """Eleven strips for three programs, whose copies come as soon as they are asked for or as late as they may."""
    layer, weight = made("int4 g64 zeros", 11 * 16, blocks)
    x, cut = normal(rows, layer.in_features).half(), RingCut(8, 16, 8 if blocks == 8 else 4, pieces)
    found = computed(layer, x, cut, late=late, dtype=torch.float32)
    near(found, product(layer, weight, x), SUMS)


@pytest.mark.parametrize("cut", [StripCut(8, 16, 4, 2), RingCut(8, 16, 4, 3)])
@pytest.mark.parametrize("kind", ["int4 g128", "int4 g64 zeros"])
def test_what_surrounds_a_product(kind: str, cut: StripCut | RingCut) -> None:
    """In the order of roundings in which kernels of their own compute it."""
    layer, weight = made(kind, 96, 6)
    x, norm, stream = normal(1, layer.in_features).half(), 1 + 0.2 * normal(layer.in_features, seed=3), normal(1, 96)
    share = (x.double().square().mean() + 1e-5).rsqrt()
    normed = (x.float() * share.float() * norm).half()

    def gated(x: Tensor) -> Tensor:
        gate, up = product(layer, weight, x).half().chunk(2, -1)
        return torch.nn.functional.silu(gate.float()).half().double() * up.double()

    near(computed(layer, x, cut, Surroundings(norm, 1e-5)), product(layer, weight, normed), 1e-3)
    halves = (x.float() * share.float() * norm.half()).half()
    near(computed(layer, x, cut, Surroundings(norm.half(), 1e-5, "silu")), gated(halves), 2e-3)
    near(computed(layer, x, cut, Surroundings(stream=stream.half(), by=0.25)),
         stream.half().double() + 0.25 * product(layer, weight, x), 1e-3)  # fmt: skip
    some = normal(5, layer.in_features).half()
    near(computed(layer, some, cut, Surroundings(gating="silu")), gated(some), 2e-3)


def test_inputs_that_end_within_a_block() -> None:
    """Groups of 128, of which the last block has three."""
    layer, weight = KINDS["int4 g128"](32, 3968, torch.float16, CPU, Numerics())
    assert isinstance(layer, PlaneLinear)
    assert (layer.form.plane, layer.blocks) == (128, 8)
    for rows in (1, 3):
        x = normal(rows, 3968).half()
        found = computed(layer, x, resident.strip_of(layer), dtype=torch.float32)
        near(found, x.double() @ weight.double().t(), SUMS)


def planned(outputs: int, inputs: int, kind: str = "int4 g128") -> PlaneLinear:
    """On device "meta", which stands for an H200; without contents, which would take long to pack."""
    layer = KINDS[kind](16, 1024, torch.bfloat16, META, Numerics()).layer
    assert isinstance(layer, PlaneLinear)
    layer.out_features, layer.in_features, layer.blocks = outputs, inputs, -(-inputs // layer.program_inputs)
    layer.words = torch.empty(outputs, layer.blocks * layer.form.plane, dtype=torch.int16, device=META)
    layer.numerics.resident = True
    return layer


def test_matrices_are_cut_where_it_gains_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H200, a 5090 and an A100."""
    monkeypatch.setattr(resident, "processors", lambda _: 132)
    sizes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    qkv, o, up, down = (planned(*size) for size in sizes)
    assert [resident.cut_of(layer, 1) for layer in (qkv, o)] == [None, None]
    assert resident.strip_of(o) == StripCut(8, 16, 8, 1)
    assert resident.cut_of(down, 1) == StripCut(8, 16, 8, 2)
    assert resident.cut_of(up, 1) == resident.cut_of(up, 8) == RingCut(8, 16, 8, 4)
    monkeypatch.setattr(resident, "capability", lambda _: (12, 0))
    assert resident.cut_of(up, 1) == RingCut(8, 16, 8, 2)
    assert resident.cut_of(up, 8) is None, "eight rows of x leave no room"
    monkeypatch.setattr(resident, "capability", lambda _: (8, 0))
    assert resident.cut_of(up, 8) == RingCut(8, 16, 8, 2)
    assert resident.warps(10) == 4, "with eight warps six of sixteen would have nothing to do"


def test_reasons_to_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "disagrees", lambda *_: None)
    layer, x = planned(64, 14336), torch.empty(1, 14336, dtype=torch.bfloat16, device="meta")

    def said(layer: PlaneLinear, x: Tensor = x) -> str:
        return str(resident.declines(layer, x))

    assert resident.declines(layer, x) is None
    assert "no product of 9 rows" in said(layer, x.expand(9, -1))
    assert "no whole strips" in said(planned(72, 14336))
    assert "cannot be cut up" in said(planned(64, 512))
    assert "cannot be cut up" in said(planned(64, 65536))
    for kind in ("NF4", "NF4 nested", "Q4_K", "Q4_1", "IQ4_NL", "MXFP4"):
        assert "more instructions" in said(planned(64, 14336, kind))
    assert "too many scales" in said(planned(64, 14336, "int4 g32"))
    assert "as well" in said(planned(32, 4096))
    monkeypatch.setattr(resident, "capability", lambda _: (12, 0))
    assert resident.declines(planned(28672, 4096), x) is None
    assert "no room for 2 rows" in said(planned(28672, 4096), x.expand(2, -1))
    layer.numerics.batch_invariant = True
    assert "how many rows" in said(layer)
    layer.numerics.batch_invariant = layer.numerics.resident = False
    assert "switched off" in said(layer)
    assert "NVIDIA" in str(resident.unavailable(CPU))
    monkeypatch.setattr(resident, "capability", lambda _: (7, 5))
    assert "older than compute capability 8.0" in str(resident.unavailable(META))
    monkeypatch.undo()
    resident._no_gluon.cache_clear()
    with mock.patch.dict("sys.modules", {"engine.compute.layers.linear.triton.kernels.resident": None}):
        monkeypatch.delattr("engine.compute.layers.linear.triton.kernels.resident", raising=False)
        assert "has no Gluon" in str(resident.unavailable(META))
    resident._no_gluon.cache_clear()


def test_a_layer_takes_them_where_they_are_on_and_its_own_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "disagrees", lambda *_: None)
    monkeypatch.setattr("engine.compute.layers.linear.triton.surrounded.disagrees", lambda *_: None)
    layer = planned(64, 14336)
    one, many = (torch.empty(rows, 14336, dtype=torch.bfloat16, device="meta") for rows in (1, 9))

    def kernel(call: Any) -> str:
        with triton_launch.gathering() as launches:
            call()
        return str(launches[0].kernel.fn.__name__)

    def names() -> list[str]:
        stream = Surroundings(stream=torch.empty(1, 64, dtype=torch.bfloat16, device="meta"))
        calls = [lambda: layer(one), lambda: layer(many), lambda: layer.forward_within(one, stream)]
        return [kernel(call) for call in calls]

    assert names() == ["strip", "multiply", "strip"]
    layer.numerics.resident = False
    assert names() == ["multiply", "multiply", "multiply_fused"]


def test_a_wrong_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "_tried", {})
    layer, weight = made("int4 g128", 32, 8)
    expected = product(layer, weight, normal(1, layer.in_features))
    monkeypatch.setattr("engine.compute.layers.linear.triton.surrounded.apart", lambda *_: expected)
    monkeypatch.setattr(resident, "multiply", lambda *_: expected * 1.001)
    assert resident.disagrees(layer, 1, torch.float16, resident.NONE) is None
    monkeypatch.setattr(resident, "multiply", lambda *_: expected * 1.02)
    assert resident.disagrees(layer, 1, torch.float16, resident.NONE) is None, "it is tried once"
    assert "does not agree" in str(resident.disagrees(layer, 5, torch.float16, resident.NONE))
