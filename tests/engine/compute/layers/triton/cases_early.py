"""Kernels that start early, in the interpreter: the bits of those that do not.

What is fetched is written down, because a wrong address could be one that nobody may read. Waiting is nothing here:
test_early.py and the trial on the GPU are for that.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.compute.layers.triton.interpreted import interpreter  # isort: skip (before all that imports Triton)
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.triton import launch, trial
from engine.compute.attention.triton.launch import TileConfig
from engine.compute.layers.linear.base import Surroundings
from engine.compute.layers.linear.triton import surrounded
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.linear.triton.runtime import Tile
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.triton import fused
from engine.compute.native import early_kernels, triton_launch
from tests.engine.compute.attention.triton.cases_interpreted import cases_of, placed
from tests.gpu.kernel_kinds import KINDS

CPU = torch.device("cpu")
OUTPUTS, INPUTS = 64, 768
PIECE: int = early_kernels.PIECE.value
pytestmark = [
    pytest.mark.content("engine/compute/layers/linear/triton", "engine/compute/layers/triton/fused_kernels.py",
                        "engine/compute/attention/triton"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp"),
]  # fmt: skip
Piece = tuple[int, int]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Piece]:
    """Address and size of all that kernels have fetched, by programs of many threads; they let in and wait."""
    pieces: list[Piece] = []
    options = triton_launch._placed

    def without_option(*args: Any) -> Any:
        key, last, more = options(*args)
        return key, last, {name: value for name, value in more.items() if name != "launch_pdl"}

    def assembled(asm: str, constraints: str, values: list[Any], types: list[Any], pure: bool, pack: int) -> Any:
        numbers = [value.data for value in values]
        if "prefetch" in asm and len(numbers) == 4:
            first, stride, count, size = (int(value.item()) for value in numbers)
            pieces.extend((first + place * stride, size) for place in range(max(0, count)))
        else:
            places, size = np.broadcast_arrays(*numbers)
            pieces.extend((int(place), int(each)) for place, each in zip(places.flat, size.flat, strict=True))
        made = interpreter.TensorHandle(np.zeros(numbers[0].shape, np.int32), interpreter.tl.int32)
        return SimpleNamespace(get_result=lambda place: made)

    for name in ("gdc_wait", "gdc_launch_dependents"):
        monkeypatch.setattr(early_kernels, name, lambda: None)
    monkeypatch.setattr(triton_launch, "_placed", without_option)
    monkeypatch.setattr(interpreter.interpreter_builder, "create_inline_asm", assembled)
    return pieces


def within(pieces: list[Piece], tensors: list[Tensor]) -> list[int]:
    """Bytes of each of the tensors that were fetched; all lie within one, at multiples of 16."""
    found = [0] * len(tensors)
    for place, size in pieces:
        assert place % 16 == size % 16 == 0
        owner = [i for i, x in enumerate(tensors) if x.data_ptr() <= place and place + size <= x.data_ptr() + x.nbytes]
        assert owner, "nobody's"
        found[owner[0]] += size
    return found


def both(run: Callable[[], Tensor], ahead: Tensor, room: int = 1 << 20) -> None:
    """The same bits, launched early as the second of a step and not."""
    expected = run().clone()
    with triton_launch.early([None, None, ahead], room):
        fused.gate(torch.zeros(1, 2048), "silu")  # the first of a step
        found = run()
    assert torch.equal(found, expected)
    assert expected.any()


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(name: str, outputs: int = OUTPUTS) -> PlaneLinear:
    layer = KINDS[name](outputs, INPUTS, torch.float32, CPU, Numerics()).layer
    assert isinstance(layer, PlaneLinear)
    return layer


def turn_of(layer: PlaneLinear) -> int:
    """Bytes of words that the programs of a product of a few rows read in their first turn."""
    cut = layer.cut(1)
    assert isinstance(cut, Tile)
    return layer.out_features * min(cut.slices, layer.blocks) * 2 * layer.form.plane


@pytest.mark.parametrize("name", [pytest.param("int4 g128", marks=pytest.mark.always), "int4 rows fp32", "MXFP4",
                                  "NF4 nested"])  # fmt: skip
def test_products_fetch_their_first_turn_and_what_comes_next(name: str, fetched: list[Piece]) -> None:
    layer, ahead = made(name), torch.zeros(9, PIECE // 2, dtype=torch.int16)
    x, norm = normal(1, INPUTS), 1 + 0.2 * normal(INPUTS, seed=3)
    stream = normal(1, OUTPUTS, seed=2)
    scales = layer.tensors()[1]
    assert scales is not None
    forms = {
        "all": lambda: surrounded.multiply(layer, x, Surroundings(norm, 1e-5, "silu")),
        "norm": lambda: surrounded.multiply(layer, x, Surroundings(norm, 1e-5)),
        "addition": lambda: surrounded.multiply(layer, x, Surroundings(stream=stream.clone())),
        "alone": lambda: layer.forward(x),
    }
    for form, run in forms.items() if name == "int4 g128" else [("all", forms["all"])]:
        fetched.clear()
        both(run, ahead)
        words, own, following, of_norm = within(fetched, [layer.words, scales, ahead, norm])
        assert (words, own, following) == (turn_of(layer), scales.nbytes, ahead.nbytes)
        assert of_norm == (norm.nbytes if form in ("all", "norm") else 0)


@pytest.mark.parametrize("outputs", [26, 34, 40])
def test_what_ends_within_a_program_is_fetched_no_further(outputs: int, fetched: list[Piece]) -> None:
    layer, ahead = made("int4 g128", outputs), torch.zeros(PIECE, dtype=torch.int16)
    scales = layer.tensors()[1]
    assert scales is not None
    for gating in ("", "silu"):
        fetched.clear()
        both(
            lambda gating=gating: surrounded.multiply(layer, normal(3, INPUTS), Surroundings(gating=gating)),
            ahead,
            5000,
        )
        words, _, following = within(fetched, [layer.words, scales, ahead])
        assert words >= turn_of(layer), "ups may be fetched with the gates before them, too"
        assert following == PIECE, "no more than there is room for"


@pytest.mark.always
def test_what_lies_between_products(fetched: list[Piece]) -> None:
    x, weight, ahead = normal(3, 256), normal(256, seed=3), torch.zeros(4, PIECE, dtype=torch.int16)
    both(lambda: fused.add_norm(x.clone(), x, 1.0, weight, 1e-5), ahead)
    assert within(fetched, [ahead]) == [ahead.nbytes]
    both(lambda: fused.gate(normal(3, 2560), "gelu"), ahead)
    assert within(fetched, [ahead]) == [2 * ahead.nbytes]


@pytest.mark.parametrize(
    ("kind", "softcap"),
    [pytest.param("dense", None, marks=pytest.mark.always), ("int8", 50.0), ("int8", None), ("int4", None)],
)
def test_attention_fetches_old_keys_and_values(kind: str, softcap: float | None, fetched: list[Piece]) -> None:
    """Without a cap int8 and int4 have kernels of their own, which fetch what comes next and no codes."""
    batch, q, kv = placed(cases_of([(5, 1, False), (70, 1, False), (0, 1, False)]), kind)
    ahead, arrived = torch.zeros(4, PIECE, dtype=torch.int16), trial.arrivals(CPU)
    spec = AttnSpec(0.125, softcap=softcap)
    both(lambda: launch.attend(q, kv, spec, batch, cut=TileConfig(16, 32, 3), arrived=arrived)[0], ahead)
    keys, values, following = within(fetched, [kv.k, kv.v, ahead])
    assert following == ahead.nbytes
    assert (keys > 0) == (values > 0) == (kind == "dense")
    assert not arrived.any()


def test_merges(fetched: list[Piece]) -> None:
    part, lse, ahead = normal(3, 2, 4, 32), normal(3, 2, 4, seed=2), torch.zeros(4, PIECE, dtype=torch.int16)
    out = torch.empty(2, 4, 32)

    def run() -> Tensor:
        launch.merge_parts(part, lse, out, None, 2)
        return out

    both(run, ahead)
    assert within(fetched, [ahead]) == [ahead.nbytes]
