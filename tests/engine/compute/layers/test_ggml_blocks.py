"""ggml's block types against the package that its authors publish, to the last bit."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import Tensor

from engine.compute.layers.linear.ggml_blocks import BLOCKS, Q4_K, Q8_0, dequantise
from tests.engine.compute.layers.ggml_support import rows_of

gguf = pytest.importorskip("gguf")
every_type = pytest.mark.parametrize("type", BLOCKS, ids=lambda type: BLOCKS[type].name)


def theirs(type: int, data: Tensor) -> Tensor:
    with numpy.errstate(all="ignore"):
        return torch.from_numpy(gguf.quants.dequantize(data.numpy(), gguf.GGMLQuantizationType(type)))


def bits(x: Tensor) -> Tensor:
    """The bits, which tell 0 from -0; all that is not a number counts as the same."""
    return torch.where(x.isnan(), torch.nan, x).view(torch.int32)


@every_type
def test_names_and_sizes_are_ggmls(type: int) -> None:
    kind = gguf.GGMLQuantizationType(type)
    assert BLOCKS[type].name == kind.name
    assert (BLOCKS[type].weights, BLOCKS[type].bytes) == gguf.GGML_QUANT_SIZES[kind]


@every_type
@pytest.mark.parametrize("scale", [None, 0.01])
def test_random_blocks_have_the_packages_bits(type: int, scale: float | None) -> None:
    for seed in range(3):
        data = rows_of(type, 37, 1024, seed, scale)
        found = dequantise(type, data)
        assert found.shape == (37, 1024)
        assert found.dtype == torch.float32
        assert bool(found.isfinite().all())
        assert torch.equal(bits(found), bits(theirs(type, data)))


@every_type
@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF])
def test_extreme_bytes(type: int, byte: int) -> None:
    """Scales that are not numbers included: whatever a file holds, nothing is raised."""
    data = torch.full((2, 2 * BLOCKS[type].bytes), byte, dtype=torch.uint8)
    assert torch.equal(bits(dequantise(type, data)), bits(theirs(type, data)))
    finite = rows_of(type, 1, 256)
    finite.view(-1, BLOCKS[type].bytes)[:, 2:-2] = byte
    assert torch.equal(bits(dequantise(type, finite)), bits(theirs(type, finite)))


@every_type
def test_rows_that_are_not_contiguous_and_a_given_result(type: int) -> None:
    data = rows_of(type, 9, 512)
    wide = torch.cat((data, data), 1)[:, : data.shape[1]]
    out = torch.full((9, 512), torch.nan)
    assert dequantise(type, wide, out) is out
    assert torch.equal(out, dequantise(type, data))
    assert dequantise(type, data[:0]).shape == (0, 512)


def test_part_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="not a whole number of Q4_K blocks"):
        dequantise(Q4_K, torch.zeros(1, 143, dtype=torch.uint8))
    with pytest.raises(ValueError, match="not a whole number of Q8_0 blocks"):
        BLOCKS[Q8_0].row_bytes(33)
    with pytest.raises(KeyError):
        dequantise(0, torch.zeros(1, 4, dtype=torch.uint8))
