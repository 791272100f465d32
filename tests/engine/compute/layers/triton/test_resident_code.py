"""What compilers make of resident products: its results by the PTX, and registers, loads and spills by machine code."""

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
from engine.compute.layers.linear.triton.runtime import UNDER_WAY, Cut, RingCut, StripCut, tile
from engine.compute.layers.numerics import Numerics
from engine.compute.native import triton_launch
from tests.gpu import ptx
from tests.gpu.kernel_kinds import KINDS
from tests.gpu.machine_code import (
    MORE_SPILLED,
    Launch,
    asked_first,
    compiled,
    launches,
    look,
    resident_launches,
    specialised,
    under_way,
)

pytestmark = pytest.mark.content("engine/compute/layers/linear/triton")
CPU = torch.device("cpu")
GENERATIONS = [pytest.param(80, marks=pytest.mark.long), pytest.param(90, marks=pytest.mark.always),
               pytest.param(120, marks=pytest.mark.long)]  # fmt: skip
OTHERS = [sm if sm == 90 else pytest.param(sm, marks=pytest.mark.long) for sm in (80, 90, 120)]
RING = {80: RingCut(8, 16, 8, 4), 90: RingCut(8, 16, 8, 4), 120: RingCut(8, 16, 8, 2)}
"""That of 4,096 input features in groups of 128, by what shared memory a generation has."""
DOWN = StripCut(8, 16, 8, 2)


@pytest.fixture(autouse=True)
def _two_multiprocessors() -> Iterator[None]:
    with mock.patch.object(resident, "processors", return_value=2):
        yield


def on(sm: int) -> Any:
    """Inside, kernels are made for such a GPU."""
    return mock.patch.object(resident, "capability", return_value=divmod(sm, 10))


def ran(layer: PlaneLinear, x: Tensor, cut: Cut, sm: int, around: Surroundings = resident.NONE) -> Tensor:
    """What the PTX of a product computes, in float32, or in x's dtype where gates are rounded to it."""
    gates = bool(around.gating)
    out = torch.full((len(x), layer.out_features // (1 + gates)), torch.nan, dtype=x.dtype if gates else torch.float32)
    with mock.patch.object(plane_layer, "inlines", return_value=True), triton_launch.gathering() as found, on(sm):
        if isinstance(cut, StripCut | RingCut):
            resident.launch(layer, x, out, cut, around)
        else:
            layer.launch_multiply(x, out, cut)
    launch = Launch(found[0].kernel, found[0].args, found[0].keywords)
    program, (signature, _, _) = compiled(launch, sm), specialised(launch)
    args = zip(launch.args, launch.kernel.arg_names, strict=False)
    given = [value for value, name in args if signature[name] != "constexpr"]
    ptx.run(program.asm["ptx"], given, program.metadata.shared, found[0].grid[0])
    return out


def made(kind: str, outputs: int, inputs: int, rows: int) -> tuple[PlaneLinear, Tensor, Tensor]:
    """A layer, x, and their product."""
    layer, weight = KINDS[kind](outputs, inputs, torch.bfloat16, CPU, Numerics())
    assert isinstance(layer, PlaneLinear)
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(1)).bfloat16()
    return layer, x, x.double() @ weight.double().t()


def near(found: Tensor, expected: Tensor, share: float = 1e-5) -> None:
    assert expected.any()
    assert (found.double() - expected).abs().max() <= share * expected.abs().max()


@pytest.mark.parametrize("sm", OTHERS)
@pytest.mark.parametrize(
    ("kind", "inputs", "cut"),
    [
        pytest.param("int4 g128", 4096, RingCut(8, 16, 8, 3), marks=pytest.mark.always),
        ("int4 g128", 10240, StripCut(8, 16, 8, 2)),
        ("int4 g64 zeros", 2560, RingCut(8, 16, 4, 4)),
        ("int4 g64 zeros", 2560, StripCut(8, 16, 4, 2)),
    ],
)
def test_compiled_products_are_right(kind: str, inputs: int, cut: StripCut | RingCut, sm: int) -> None:
    """Of one row, and of seven, whose last one stands for the eighth: operands meet in the tensor cores as they are
    laid out, and what is asked for ahead is what is multiplied."""
    for rows in (1, 7):
        layer, x, expected = made(kind, 48, inputs, rows)
        near(ran(layer, x, cut, sm), expected)


def test_a_compiled_norm_and_gating_are_right() -> None:
    layer, x, _ = made("int4 g128", 96, 4096, 1)
    weight = KINDS["int4 g128"](96, 4096, torch.bfloat16, CPU, Numerics()).weight
    norm = (1 + 0.2 * torch.randn(4096, generator=torch.Generator().manual_seed(2))).bfloat16()
    share = (x.double().square().mean() + 1e-5).rsqrt().float()
    normed = (x.float() * share * norm.float()).bfloat16()
    gate, up = (normed.double() @ weight.double().t()).bfloat16().chunk(2, -1)
    expected = torch.nn.functional.silu(gate.float()).bfloat16().double() * up.double()
    near(ran(layer, x, RingCut(8, 16, 8, 2), 90, Surroundings(norm, 1e-5, "silu")), expected, 0.01)


@pytest.mark.long
def test_the_other_kernel_is_right_by_its_ptx_too() -> None:
    layer, x, expected = made("int4 g128", 32, 4096, 3)
    near(ran(layer, x, tile(1), 90), expected)


@pytest.mark.parametrize("sm", GENERATIONS)
def test_a_ring_leaves_room_for_the_next_kernel(sm: int) -> None:
    """96 registers, with few of them spilled, and pieces that are asked for before anything is waited for."""
    with on(sm):
        found = resident_launches("int4 g128", torch.bfloat16, RING[sm])
    for name in ("norm and gating", "eight rows, gating") if sm == 90 else ("norm and gating",):
        code = look(found[name], sm)
        assert code.registers <= 96, name
        assert code.spilled <= 16 + MORE_SPILLED, name
        assert sum(count for each, count in code.operations.items() if each.startswith(("LDL", "STL"))) <= 6
        assert 1 < code.per_weight < 2.15, "an H200 has 3.7"
        assert code.barriers <= 3
        assert (code.resident, code.shared <= resident._SHARED.get(divmod(sm, 10), resident._LEAST_SHARED)) == (1, True)
        copies, size = asked_first(found[name], code, sm, 28672)
        assert copies == (RING[sm].pieces - 1) * 8
        assert size >= resident.LEAST_UNDER_WAY > UNDER_WAY


@pytest.mark.parametrize("sm", OTHERS)
def test_strips_ask_for_more_than_the_other_kernel(sm: int) -> None:
    """The longest matrix of an 8B: what a multiprocessor has under way before x is read."""
    with on(sm):
        launch = resident_launches("int4 g128", torch.bfloat16, DOWN, 256, 14336)["addition"]
    code = look(launch, sm)
    assert (code.registers <= 128, code.resident) == (True, 2)
    assert code.spilled <= 20 + MORE_SPILLED
    assert 1 < code.per_weight < 2.5, "an H200 has 3.7"
    loads, size = asked_first(launch, code, sm, 4096)
    assert loads == DOWN.ahead * 8
    plain = launches("int4 g128", torch.bfloat16, tile(1))
    assert size > 1.8 * under_way(plain, look(plain, sm), sm, 4096)
