"""compressed-tensors' layout "pack-quantized" (llm-compressor), 2 to 8 bits.

``weight_packed int32 [N, ceil(K b / 32)]`` holds the codes of each row as one stream of bits, the lowest first, raised
by 2^(b - 1) so that they are not negative; ``weight_scale [N, groups]``; ``weight_zero_point int32
[ceil(N b / 32), groups]`` zero-points raised and packed likewise along N, absent where all are 0; ``weight_shape`` N
and K; ``weight_g_idx int32 [K]`` the group of every input feature, in older files. (compressed_tensors
compressors/pack_quantized.)

In older versions (0.10 is one) no code lies in two words: each holds 32 // b codes, and its highest bits are 0. In 2,
4 and 8 bits that is the same; in others it takes more words, which shows where K is a multiple of 32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.coded import pack, unpack, word_count
from engine.config.model import Quantisation
from engine.formats.quantised import fp4
from engine.formats.quantised.groups import choose_packing, grouped, stated_order
from engine.formats.quantised.layouts import PackedModule
from engine.formats.tensors import FLOATING, MISMATCH, Tensors


class CompressedWeights:
    """One packed module (a `CodedWeights` of layers/linear/coded.py); its tensors are views of the file."""

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
        padded: bool = False,
    ) -> None:
        """``padded``: no code lies in two words. Raises :class:`CheckpointError` for a g_idx that names no group."""
        self.in_features, self.out_features = in_features, packed.shape[0]
        self.bits, self.group_size, self._padded = bits, group_size, padded
        self._packed, self._scale, self._zero_point = packed, scale, zero_point
        self.group_of = stated_order(f"{name}.weight_g_idx", g_idx, scale.shape[1], group_size)

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``, which need not be multiples of anything."""
        scales = self._scale[start:stop].t().contiguous()
        if self._zero_point is None:
            zeros = torch.full(scales.shape, 1 << (self.bits - 1), dtype=torch.uint8)
        else:
            zeros = self._zeros(start, stop).t().contiguous()
        words = self._packed[start:stop].t().contiguous()
        if self._padded:
            words = pack(_unpadded(words, self.bits, self.in_features), self.bits)
        return AffineColumns(words, scales, zeros)

    def _zeros(self, start: int, stop: int) -> Tensor:
        """Zero-points ``[stop - start, groups]`` uint8."""
        assert self._zero_point is not None
        count, codes = (padded_count, _unpadded) if self._padded else (word_count, unpack)
        run = 32 // self.bits if self._padded else 32
        first = start // run * run
        words = self._zero_point[count(first, self.bits) : count(stop, self.bits)]
        return codes(words, self.bits, stop - first)[start - first :]


def padded_count(count: int, bits: int) -> int:
    """Words that hold ``count`` codes where none lies in two."""
    return -(-count // (32 // bits))


def _unpadded(words: Tensor, bits: int, count: int) -> Tensor:
    """Same as :func:`unpack`, where no code lies in two words."""
    per_word = 32 // bits
    out = torch.empty(len(words), per_word, words.shape[1], dtype=torch.uint8, device=words.device)
    for place in range(per_word):
        out[:, place] = (words >> bits * place) & ((1 << bits) - 1)
    return out.view(-1, words.shape[1])[:count]


def packed(
    tensors: Tensors, quantisation: Quantisation, name: str, out_features: int, in_features: int
) -> PackedModule | None:
    """The module, checked against the headers; None where it is not packed."""
    if quantisation.table:
        return fp4.packed(tensors, quantisation, name, out_features, in_features)
    weight, scale, zero_point, shape, g_idx = (
        f"{name}.weight_{part}" for part in ("packed", "scale", "zero_point", "shape", "g_idx")
    )
    if not tensors.has(weight):
        return None
    words, groups = (tensors.shape(tensor)[-1:] or (0,) for tensor in (weight, scale))
    padded = _is_padded(quantisation, in_features, words[0])
    taken = padded_count if padded else word_count
    bits, size = choose_packing(weight, quantisation.packings, in_features, words[0], groups[0], taken)
    count = -(-in_features // size)
    tensors.check(weight, (out_features, taken(in_features, bits)), (torch.int32,), packed=True)
    tensors.check(scale, (out_features, count), FLOATING, packed=True)
    asymmetric, ordered = tensors.has(zero_point), tensors.has(g_idx)
    if asymmetric:
        tensors.check(zero_point, (taken(out_features, bits), count), (torch.int32,), packed=True)
    if ordered:
        tensors.check(g_idx, (in_features,), (torch.int32, torch.int64), packed=True)
    if tensors.has(shape):
        _check_shape(tensors, shape, [out_features, in_features])

    def read() -> CompressedWeights:
        views = (tensors.view(zero_point) if asymmetric else None, tensors.view(g_idx) if ordered else None)
        codes, scales = tensors.view(weight), tensors.view(scale)
        return CompressedWeights(name, codes, scales, *views, in_features, size, bits, padded)

    act_order = quantisation.act_order and ordered
    return grouped(read, in_features, bits, size, tensors.dtype(scale), not asymmetric, act_order)


def _is_padded(quantisation: Quantisation, in_features: int, words: int) -> bool:
    """Return True if codes that take ``words`` words along K can only be those of an older version (padded words)."""
    ways = [[count(in_features, bits) for bits, _ in quantisation.packings] for count in (word_count, padded_count)]
    return words not in ways[0] and words in ways[1]


def _check_shape(tensors: Tensors, name: str, expected: list[int]) -> None:
    tensors.check(name, (2,), (torch.int64, torch.int32), packed=True)
    raw = bytearray(tensors.small(name, 16))
    found = torch.frombuffer(raw, dtype=tensors.dtype(name)).tolist()
    if found != expected:
        raise CheckpointError(f"{name} says {found} where the configuration implies {expected}. {MISMATCH}")
