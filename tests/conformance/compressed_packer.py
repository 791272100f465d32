"""Matrices packed by compressed-tensors' own package."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.conformance.packed_support import Parts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme


def pack_older(values: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """As pack_to_int32 of compressed-tensors 0.10 does: words of 32 // bits whole codes, the rest of a word empty."""
    rows = values.movedim(dim, 1).int() + 2 ** (bits - 1)
    words = [
        sum(int(code) << bits * place for place, code in enumerate(row[first : first + 32 // bits]))
        for row in rows.tolist()
        for first in range(0, len(row), 32 // bits)
    ]
    packed = torch.tensor(words, dtype=torch.int64).to(torch.int32).view(len(rows), -1)
    return packed.movedim(1, dim).contiguous()


def quantise(
    weight: torch.Tensor, bits: int, group: int, symmetric: bool, scales: torch.dtype, older: bool = False
) -> Parts:
    """Packed and unpacked by the package; the scales and zero-points are ours to choose."""
    outputs, inputs = weight.shape
    size = group if group > 0 else inputs
    grouped = weight.reshape(outputs, inputs // size, size)
    half = 2 ** (bits - 1)
    if symmetric:
        scale = (grouped.abs().amax(2) / (half - 0.5)).to(scales)
        zero = torch.zeros(scale.shape, dtype=torch.int8)
    else:
        low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
        scale = ((high - low) / (2 * half - 1)).to(scales)
        zero = (-half - low / scale.float()).round().clamp(-half, half - 1).to(torch.int8)
    scheme = QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(
            num_bits=bits,
            strategy="group" if group > 0 else "channel",
            group_size=group if group > 0 else None,
            symmetric=symmetric,
        ),
    )
    # In float32 throughout, so that the package rounds nothing on the way.
    state = {"weight": weight, "weight_scale": scale.float(), "weight_zero_point": zero}
    packed = PackedQuantizationCompressor.compress(state, scheme)
    stands_for = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    if older:
        codes = unpack_from_int32(packed["weight_packed"], bits, weight.shape)
        packed["weight_packed"] = pack_older(codes, bits, 1)
        if not symmetric:
            packed["weight_zero_point"] = pack_older(zero, bits, 0)
    return packed | {"weight_scale": scale}, stands_for
