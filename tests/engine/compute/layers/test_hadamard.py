"""Keys mixed before they are packed: by native code of every set of instructions, and by torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cache.stores.codecs import pack_along_channels, unpack_along_channels
from engine.compute.layers.hadamard import Hadamard
from engine.compute.layers.numerics import Numerics
from engine.compute.native.library import find_with
from tests.engine.compute.native.instruction_sets import at_hand

WIDTHS = pytest.mark.parametrize("width", [16, 64, 80, 96, 128, 256])


@pytest.fixture(params=[*at_hand(), "torch"])
def made(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def mixer(made: str, width: int, invariant: bool = False) -> Hadamard:
    mixed = Hadamard(width, torch.device("cpu"), Numerics(invariant))
    mixed._library = None if made == "torch" else find_with(made).library
    assert (mixed._library is None) == (made == "torch")
    return mixed


def defined(x: Tensor) -> Tensor:
    """In float64: element (i, j) of the matrix is -1 to the number of bits that i and j share."""
    width = x.shape[-1]
    size = width & -width
    places = torch.arange(size)
    shared = sum(((places[:, None] & places) >> bit) & 1 for bit in range(size.bit_length()))
    matrix = (1.0 - 2.0 * (torch.as_tensor(shared) % 2)).double() / size**0.5
    return (x.double().unflatten(-1, (-1, size)) @ matrix).flatten(-2)


@WIDTHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_product_with_the_matrix(made: str, width: int, dtype: torch.dtype) -> None:
    x = torch.randn(37, 3, width).to(dtype)
    found = mixer(made, width)(x)
    assert found.dtype == dtype
    rounding = 1e-6 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(found.double(), defined(x), rtol=rounding, atol=4 * rounding)


@WIDTHS
def test_products_of_queries_and_keys_stay(made: str, width: int) -> None:
    q, k = torch.randn(5, 4, width), torch.randn(5, 4, width)
    mixed = mixer(made, width)
    torch.testing.assert_close((mixed(q) * mixed(k)).sum(-1), (q * k).sum(-1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mixed(mixed(q)), q)


def test_rows_do_not_know_each_other(made: str) -> None:
    x, mixed = torch.randn(300, 10, 64), mixer(made, 64, invariant=True)
    assert torch.equal(torch.cat([mixed(row) for row in x.split(1)]), mixed(x))
    view = torch.randn(20, 30, 64)[:, 7:12]  # part of what was projected together
    assert torch.equal(mixed(view), mixed(view.contiguous()))


def test_a_channel_that_stands_out_costs_the_others_no_codes() -> None:
    k = torch.randn(200, 2, 64)
    k[..., 5] *= 30

    def error(x: Tensor) -> float:
        codes, meta = pack_along_channels(x, 4)
        return float((unpack_along_channels(codes, meta, 4, torch.float32) - x).square().mean())

    mixed = mixer("torch", 64)
    assert error(mixed(k)) < error(k) / 2
