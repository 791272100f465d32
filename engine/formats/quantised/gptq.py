"""GPTQ's packing in 2, 3, 4 or 8 bits, versions 1 and 2 (AutoGPTQ, GPTQModel).

``qweight int32 [K b / 32, N]`` holds the codes of each output feature as one stream of bits along K, the lowest first
(:func:`engine.compute.layers.linear.coded.unpack`); ``qzeros int32 [groups, N b / 32]`` the zero-points likewise along
N, stored one too low (modulo 2^b) in version 1; ``scales [groups, N]``; ``g_idx int32 [K]`` the group of every input
feature, absent or all zero where it is simply ``k // group_size``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.coded import unpack, word_count
from engine.config.model import Quantisation
from engine.formats.quantised.groups import choose_packing, grouped, stated_order
from engine.formats.quantised.layouts import PackedModule
from engine.formats.tensors import FLOATING, MISMATCH, Tensors


class GPTQWeights:
    """One packed module (a `CodedWeights` of layers/linear/coded.py); its tensors are views of the file."""

    def __init__(
        self,
        name: str,
        qweight: Tensor,
        qzeros: Tensor,
        scales: Tensor,
        g_idx: Tensor | None,
        group_size: int,
        zero_offset: int,
        bits: int = 4,
    ) -> None:
        """Raises :class:`CheckpointError` for a g_idx that names no group."""
        self.in_features, self.out_features = qweight.shape[0] * 32 // bits, qweight.shape[1]
        self.bits, self.group_size = bits, group_size
        self._qweight, self._qzeros, self._scales, self._offset = qweight, qzeros, scales, zero_offset
        self.group_of = stated_order(f"{name}.g_idx", g_idx, scales.shape[0], group_size)

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``, which need not be multiples of anything."""
        first = start // 32 * 32
        packed = self._qzeros[:, first * self.bits // 32 : word_count(stop, self.bits)]
        zeros = unpack(packed.t(), self.bits, stop - first)[start - first :].t()
        # Masked after the offset, as AutoGPTQ's torch path does: a stored 15 is a zero-point of 0 in version 1.
        zeros = (zeros + self._offset) & ((1 << self.bits) - 1)
        return AffineColumns(self._qweight[:, start:stop], self._scales[:, start:stop], zeros)


def packed(
    tensors: Tensors, quantisation: Quantisation, name: str, out_features: int, in_features: int
) -> PackedModule | None:
    """The module, checked against the headers; None where it is not packed."""
    qweight, qzeros, scales, g_idx = (f"{name}.{part}" for part in ("qweight", "qzeros", "scales", "g_idx"))
    if not tensors.has(qweight):
        return None
    words = (tensors.shape(qweight) or (0,))[0]
    groups = (tensors.shape(scales) or (0,))[0]
    bits, size = choose_packing(qweight, quantisation.packings, in_features, words, groups)
    if in_features * bits % 32 or out_features * bits % 32:
        raise CheckpointError(f"{name} of {out_features} x {in_features} cannot be packed in {bits} bits. {MISMATCH}")
    groups = -(-in_features // size)
    tensors.check(qweight, (in_features * bits // 32, out_features), (torch.int32,), packed=True)
    tensors.check(qzeros, (groups, out_features * bits // 32), (torch.int32,), packed=True)
    tensors.check(scales, (groups, out_features), FLOATING, packed=True)
    ordered = tensors.has(g_idx)
    if ordered:
        tensors.check(g_idx, (in_features,), (torch.int32, torch.int64), packed=True)

    def read() -> GPTQWeights:
        order = tensors.view(g_idx) if ordered else None
        parts = (tensors.view(qweight), tensors.view(qzeros), tensors.view(scales))
        return GPTQWeights(name, *parts, order, size, quantisation.zero_offset, bits)

    act_order = quantisation.act_order and ordered
    return grouped(read, in_features, bits, size, tensors.dtype(scales), quantisation.symmetric, act_order)
