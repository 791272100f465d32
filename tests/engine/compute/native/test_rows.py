"""What native code does row by row between products, on every set of instructions, next to its formula."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional as F

from engine.cache.stores.packed import PackedKV
from engine.compute.attention.rotation import RotaryStep, rotate
from engine.compute.native.library import GATINGS, NativeLibrary, find_with
from tests.engine.compute.native.instruction_sets import at_hand

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
LIMIT, ALPHA = 7.0, 1.702


@pytest.fixture(params=at_hand())
def library(request: pytest.FixtureRequest) -> NativeLibrary:
    found = find_with(request.param).library
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def close(found: torch.Tensor, exact: torch.Tensor) -> None:
    rounding = 1e-6 if found.dtype == torch.float32 else 2**-8
    torch.testing.assert_close(found.double(), exact, rtol=2 * rounding, atol=rounding)


def gated(kind: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """In float64."""
    if kind == "clamped":
        gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT) + 1
        return gate * torch.sigmoid(ALPHA * gate) * up
    return (F.silu(gate) if kind == "silu" else F.gelu(gate, approximate="tanh")) * up


@DTYPES
@pytest.mark.parametrize("kind", GATINGS)
@pytest.mark.parametrize("rows", [1, 3, 300])
def test_gates(library: NativeLibrary, kind: str, rows: int, dtype: torch.dtype) -> None:
    x = (4 * torch.randn(rows, 2 * 1040)).to(dtype)
    x[0, :6] = torch.tensor([0, -0.0, 90, -90, 1e-30, -200])
    found = library.gate(x, kind, LIMIT, ALPHA)
    assert found is not None
    assert found.dtype == dtype
    close(found, gated(kind, *x.double().chunk(2, -1)))
    alone = library.gate(x[-1:], kind, LIMIT, ALPHA)
    assert alone is not None
    assert torch.equal(alone, found[-1:])


def test_gates_pass_on_what_is_no_number(library: NativeLibrary) -> None:
    x = torch.zeros(1, 64)
    x[0, 3], x[0, 4], x[0, 40] = torch.nan, torch.inf, torch.nan
    found = library.gate(x, "silu")
    assert found is not None
    assert found[0].isnan().tolist() == [i in (3, 4, 8) for i in range(32)]  # infinity times 0 is none either


def test_gates_it_has_not(library: NativeLibrary) -> None:
    assert library.gate(torch.zeros(2, 64), "relu") is None
    assert library.gate(torch.zeros(2, 48), "silu") is None
    assert library.gate(torch.zeros(2, 64).double(), "silu") is None
    assert library.gate(torch.zeros(64, 4).t()[:, :32], "silu") is None


@DTYPES
@pytest.mark.parametrize(("width", "turned"), [(64, 64), (128, 128), (96, 64), (80, 32)])
@pytest.mark.parametrize("rows", [1, 5, 700])
def test_rotations(library: NativeLibrary, rows: int, width: int, turned: int, dtype: torch.dtype) -> None:
    fused = torch.randn(rows, 9, width).to(dtype)
    heads = fused[:, :7]  # as queries and keys lie in front of values
    cos, sin = torch.randn(2, rows, 1, turned).to(dtype).unbind()
    found = library.rotate(heads, cos, sin)
    assert found is not None
    if dtype == torch.float32:
        assert torch.equal(found, rotate(heads, RotaryStep(cos, sin)))
    exact = rotate(heads.double(), RotaryStep(cos.double(), sin.double()))
    rounding = 1e-6 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=rounding)
    assert torch.equal(rotate(heads, RotaryStep(cos, sin, library)), found)


def test_rotations_it_has_not(library: NativeLibrary) -> None:
    x, angles = torch.randn(3, 2, 40), torch.randn(3, 1, 40)
    assert library.rotate(x, angles, angles) is None
    assert library.rotate(x.double(), angles.double(), angles.double()) is None
    assert library.rotate(torch.randn(3, 2, 64).transpose(0, 1), *torch.randn(2, 2, 1, 64)) is None


@DTYPES
@pytest.mark.parametrize("rows", [5, 1000])
def test_norms_add_first(library: NativeLibrary, rows: int, dtype: torch.dtype) -> None:
    x, added, weight = (torch.randn(*shape).to(dtype) for shape in ((rows, 272), (rows, 272), (272,)))
    total = x.double() + 0.5 * added.double()
    found = library.norm(x, weight, 1e-5, added, 0.5)
    close(x, total)
    exact = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    close(found, exact)


@DTYPES
@pytest.mark.parametrize("rows", [1, 300])
def test_norms_of_heads_have_a_weight_each(library: NativeLibrary, rows: int, dtype: torch.dtype) -> None:
    x, weight = torch.randn(rows, 5, 64).to(dtype), torch.randn(5, 64)
    exact = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    close(library.norm(x, weight, 1e-5), exact)


@DTYPES
def test_keys_and_values_are_stored_as_they_are(library: NativeLibrary, dtype: torch.dtype) -> None:
    qkv = torch.randn(5, 8, 32, dtype=dtype)
    _, k, v = qkv.split((4, 2, 2), 1)
    slots = torch.tensor([17, 3, 40, 0, 41])
    kv = PackedKV(torch.zeros(48, 2, 32, dtype=dtype), torch.zeros(48, 2, 32, dtype=dtype))
    assert library.store_rows(k, v, kv, slots)
    for rows, arena in ((k, kv.k), (v, kv.v)):
        assert torch.equal(arena[slots], rows)
        assert not arena[[each for each in range(48) if each not in slots]].any()
    assert not library.store_rows(k.to(torch.float16), v, kv, slots), "they would have to be rounded"
    assert not library.store_rows(k.transpose(0, 1), v, kv, slots)
    assert not library.store_rows(k, v[..., :16], kv, slots)
