"""compressed-tensors' layout "pack-quantized" (llm-compressor), 2 to 8 bits.

``weight_packed int32 [N, ceil(K b / 32)]`` holds the codes of each row as one stream of bits, the lowest first, raised
by 2^(b - 1) so that they are not negative; ``weight_scale [N, groups]``; ``weight_zero_point int32
[ceil(N b / 32), groups]`` zero-points raised and packed likewise along N, absent where all are 0; ``weight_shape`` N
and K; ``weight_g_idx int32 [K]`` the group of every input feature, in older files. (compressed_tensors
compressors/pack_quantized.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.groups import choose_packing, grouped, stated_order
from engine.checkpoints.layouts import Packed
from engine.checkpoints.tensors import FLOATING, MISMATCH, Tensors
from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.coded import unpack, word_count
from engine.models.base import Quantisation


class CompressedWeights:
    """One packed module (an :class:`engine.layers.linear.coded.CodedWeights`); its tensors are views of the file."""

    def __init__(
        self,
        name: str,
        packed: Tensor,
        scale: Tensor,
        zero_point: Tensor | None,
        g_idx: Tensor | None,
        in_features: int,
        group_size: int,
        bits: int,
    ) -> None:
        """Raises :class:`CheckpointError` for a g_idx that names no group."""
        self.in_features, self.out_features = in_features, packed.shape[0]
        self.bits, self.group_size = bits, group_size
        self._packed, self._scale, self._zero_point = packed, scale, zero_point
        self.group_of = stated_order(f"{name}.weight_g_idx", g_idx, scale.shape[1], group_size)

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``, which need not be multiples of anything."""
        scales = self._scale[start:stop].t().contiguous()
        if self._zero_point is None:
            zeros = torch.full(scales.shape, 1 << (self.bits - 1), dtype=torch.uint8)
        else:
            first = start // 32 * 32
            words = self._zero_point[first * self.bits // 32 : word_count(stop, self.bits)]
            zeros = unpack(words, self.bits, stop - first)[start - first :].t().contiguous()
        return AffineColumns(self._packed[start:stop].t().contiguous(), scales, zeros)


def packed(
    tensors: Tensors, quantisation: Quantisation, name: str, out_features: int, in_features: int
) -> Packed | None:
    """The module, checked against the headers; None where it is not packed."""
    weight, scale, zero_point, shape, g_idx = (
        f"{name}.weight_{part}" for part in ("packed", "scale", "zero_point", "shape", "g_idx")
    )
    if not tensors.has(weight):
        return None
    words, groups = (tensors.shape(tensor)[-1:] or (0,) for tensor in (weight, scale))
    bits, size = choose_packing(weight, quantisation.packings, in_features, words[0], groups[0])
    count = -(-in_features // size)
    tensors.check(weight, (out_features, word_count(in_features, bits)), (torch.int32,), packed=True)
    tensors.check(scale, (out_features, count), FLOATING, packed=True)
    asymmetric, ordered = tensors.has(zero_point), tensors.has(g_idx)
    if asymmetric:
        tensors.check(zero_point, (word_count(out_features, bits), count), (torch.int32,), packed=True)
    if ordered:
        tensors.check(g_idx, (in_features,), (torch.int32, torch.int64), packed=True)
    if tensors.has(shape):
        _check_shape(tensors, shape, [out_features, in_features])

    def read() -> CompressedWeights:
        views = (tensors.view(zero_point) if asymmetric else None, tensors.view(g_idx) if ordered else None)
        return CompressedWeights(name, tensors.view(weight), tensors.view(scale), *views, in_features, size, bits)

    act_order = quantisation.act_order and ordered
    return grouped(read, in_features, bits, size, tensors.dtype(scale), not asymmetric, act_order)


def _check_shape(tensors: Tensors, name: str, expected: list[int]) -> None:
    tensors.check(name, (2,), (torch.int64, torch.int32), packed=True)
    raw = bytearray(tensors.small(name, 16))
    found = torch.frombuffer(raw, dtype=tensors.dtype(name)).tolist()
    if found != expected:
        raise CheckpointError(f"{name} says {found} where the configuration implies {expected}. {MISMATCH}")
