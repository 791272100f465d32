"""GPTQ's packing, versions 1 and 2 (AutoGPTQ, GPTQModel), read into the group-affine form.

``qweight int32 [K / 8, N]`` holds code[k, n] in bits ``4 (k % 8)`` of word ``[k // 8, n]``; ``qzeros int32
[groups, N / 8]`` the zero-points likewise along N, stored one too low (modulo 16) in version 1; ``scales [groups, N]``;
``g_idx int32 [K]`` the group of every input feature, absent or all zero where it is simply ``k // group_size``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.checkpoints.errors import CheckpointError
from engine.layers.linear.affine import PER_WORD, AffineColumns

_RUNS = (256, 128, 64, 32, 16, 8, 4, 2, 1)


class GPTQWeights:
    """One packed module (an :class:`engine.layers.linear.affine.AffineWeights`); its tensors are views of the file.

    The group of the result need not be the file's: it is the longest of 256, 128, … 1 that divides K and lies within
    one group everywhere, so one group over all of K, or a last group that is shorter, need nothing special.
    """

    def __init__(
        self,
        name: str,
        qweight: Tensor,
        qzeros: Tensor,
        scales: Tensor,
        g_idx: Tensor | None,
        group_size: int,
        zero_offset: int,
    ) -> None:
        """``group_size`` -1 is one group. Raises :class:`CheckpointError` for a g_idx that names no group."""
        self.in_features, self.out_features = qweight.shape[0] * PER_WORD, qweight.shape[1]
        self._qweight, self._qzeros, self._scales, self._offset = qweight, qzeros, scales, zero_offset
        size = group_size if group_size > 0 else self.in_features
        of_row = torch.arange(self.in_features) // size
        self.order: Tensor | None = None
        if g_idx is not None and bool(g_idx.any()):
            stored = g_idx.long()
            if not bool(((stored >= 0) & (stored < scales.shape[0])).all()):
                raise CheckpointError(f"{name}.g_idx names groups that do not exist. Download the model again.")
            if not torch.equal(stored, of_row):
                of_row, order = stored.sort(stable=True)
                self.order = None if torch.equal(order, torch.arange(len(order))) else order
        self.group = next(run for run in _RUNS if _constant_in_runs(of_row, run))
        self._group_of = of_row[:: self.group]

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``, which need not be multiples of anything."""
        first = start // PER_WORD
        packed = self._qzeros[:, first : -(-stop // PER_WORD)]
        zeros = torch.stack([packed >> 4 * place for place in range(PER_WORD)], -1).flatten(1)
        zeros = zeros[:, start - first * PER_WORD :][:, : stop - start]
        # Masked after the offset, as AutoGPTQ's torch path does: a stored 15 is a zero-point of 0 in version 1.
        zeros = ((zeros + self._offset) & 15).to(torch.uint8)
        return AffineColumns(
            self._qweight[:, start:stop], self._scales[:, start:stop][self._group_of], zeros[self._group_of]
        )


def _constant_in_runs(of_row: Tensor, run: int) -> bool:
    if len(of_row) % run:
        return False
    runs = of_row.view(-1, run)
    return bool((runs == runs[:, :1]).all())


def planned_group(in_features: int, group_size: int) -> int:
    """The group that :class:`GPTQWeights` will have, from the configuration alone (act-order permitting)."""
    size = group_size if group_size > 0 else in_features
    return next(run for run in _RUNS if in_features % run == 0 and (size % run == 0))
