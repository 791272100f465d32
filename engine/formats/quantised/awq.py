"""AWQ's packing of version "gemm" (AutoAWQ), 4 bits.

``qweight int32 [K, N / 8]`` and ``qzeros int32 [groups, N / 8]`` hold eight neighbouring output features in a word, in
the order of :data:`ORDER`; ``scales [groups, N]``. Zero-points are stored as they are, and there is no act-order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.affine import PER_WORD, AffineColumns, pack_codes
from engine.config.model import Quantisation
from engine.formats.quantised.groups import grouped
from engine.formats.quantised.layouts import PackedModule
from engine.formats.tensors import FLOATING, MISMATCH, Tensors

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output feature of the eight that each nibble of a word holds, the lowest nibble first."""


class AWQWeights:
    """One packed module (a `CodedWeights` of layers/linear/coded.py); its tensors are views of the file."""

    def __init__(self, qweight: Tensor, qzeros: Tensor, scales: Tensor, group_size: int) -> None:
        self.in_features, self.out_features = qweight.shape[0], scales.shape[1]
        self.bits, self.group_size = 4, group_size
        self.group_of: Tensor | None = None
        self._qweight, self._qzeros, self._scales = qweight, qzeros, scales

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``, which need not be multiples of anything."""
        codes, zeros = (_unpack(packed, start, stop) for packed in (self._qweight, self._qzeros))
        return AffineColumns(pack_codes(codes), self._scales[:, start:stop], zeros)


def _unpack(packed: Tensor, start: int, stop: int) -> Tensor:
    """``packed [rows, N / 8]`` -> columns ``[start, stop)`` of the codes, uint8."""
    first = start // PER_WORD
    words = packed[:, first : -(-stop // PER_WORD)]
    codes = torch.empty(*words.shape, PER_WORD, dtype=torch.uint8)
    for place, column in enumerate(ORDER):
        codes[:, :, column] = (words >> 4 * place) & 15
    return codes.flatten(1)[:, start - first * PER_WORD :][:, : stop - start].contiguous()


def packed(
    tensors: Tensors, quantisation: Quantisation, name: str, out_features: int, in_features: int
) -> PackedModule | None:
    """The module, checked against the headers; None where it is not packed."""
    qweight, qzeros, scales = (f"{name}.{part}" for part in ("qweight", "qzeros", "scales"))
    if not tensors.has(qweight):
        return None
    if in_features % PER_WORD or out_features % PER_WORD:
        raise CheckpointError(f"{name} of {out_features} x {in_features} cannot be packed by AWQ. {MISMATCH}")
    size = quantisation.group_size if quantisation.group_size > 0 else in_features
    groups = -(-in_features // size)
    tensors.check(qweight, (in_features, out_features // PER_WORD), (torch.int32,), packed=True)
    tensors.check(qzeros, (groups, out_features // PER_WORD), (torch.int32,), packed=True)
    tensors.check(scales, (groups, out_features), FLOATING, packed=True)

    def read() -> AWQWeights:
        return AWQWeights(tensors.view(qweight), tensors.view(qzeros), tensors.view(scales), size)

    return grouped(read, in_features, 4, size, tensors.dtype(scales), quantisation.symmetric, ordered=False)
