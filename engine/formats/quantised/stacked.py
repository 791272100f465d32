"""Experts that are stacked into one tensor for all: plain, or packed as MXFP4 (OCP Microscaling Formats 1.0).

Names, for E experts with input features K and output features N: plain ``gate_up_proj [E, N, K]`` (Qwen3.5, Gemma 4),
or the other way round, ``[E, K, N]`` (Qwen3-VL), and so for ``down_proj``. gpt-oss has biases besides,
``gate_up_proj_bias [E, N]``, and then the plain tensor is ``[E, K, N]``, or packed: ``gate_up_proj_blocks [E, N, K /
32, 16]`` and ``gate_up_proj_scales [E, N, K / 32]``. Its output features of gate and up alternate, and stand after each
other in what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.ggml import GgmlWeights
from engine.compute.layers.linear.ggml_blocks import BLOCKS, MXFP4
from engine.formats.tensors import FLOATING, Tensors

BLOCK = BLOCKS[MXFP4].weights
FUSED = {("gate_proj", "up_proj"): "gate_up_proj", ("up_proj",): "up_proj", ("down_proj",): "down_proj"}
"""An expert's modules -> the tensor that holds them for all."""


class StackedExperts:
    """One stacked tensor, checked against the headers."""

    def __init__(
        self, tensors: Tensors, name: str, count: int, sizes: Sequence[int], in_features: int, bias: bool
    ) -> None:
        """``sizes`` are the output features of the modules that the tensor holds. Raises :class:`CheckpointError`."""
        self._tensors, self.name, self.in_features = tensors, name, in_features
        self.out_features, self._modules = sum(sizes), len(sizes)
        self.packed = tensors.has(f"{name}_blocks")
        self.bias = bias or tensors.has(f"{name}_bias")
        if self.packed:
            self._check_packed(count)
        else:
            across = (in_features, self.out_features)
            turned = tensors.shape(name) == (count, *across) and across != across[::-1]
            self._across = self.bias or turned
            sides = across if self._across else across[::-1]
            tensors.check(name, (count, *sides), FLOATING)
        if self.bias:
            tensors.check(f"{name}_bias", (count, self.out_features), FLOATING)

    @staticmethod
    def find(tensors: Tensors, prefix: str, names: Sequence[str]) -> str | None:
        """The stacked tensor that holds the modules ``names`` of all experts, if the file has one."""
        fused = FUSED.get(tuple(names))
        held = fused is not None and any(tensors.has(f"{prefix}{fused}{end}") for end in ("", "_blocks"))
        return f"{prefix}{fused}" if held else None

    def _check_packed(self, count: int) -> None:
        if self._tensors.method != "mxfp4":
            raise CheckpointError(
                f"{self.name} is packed as MXFP4, and config.json has no quantization_config that says so. "
                "Download the model again."
            )
        if self.in_features % BLOCK:
            raise CheckpointError(
                f"{self.name} has {self.in_features} input features, which are not a whole number of MXFP4 blocks of "
                f"{BLOCK}. Download the model again."
            )
        shape = (count, self.out_features, self.in_features // BLOCK)
        self._tensors.check(f"{self.name}_blocks", (*shape, BLOCK // 2), (torch.uint8,), packed=True)
        self._tensors.check(f"{self.name}_scales", shape, (torch.uint8,), packed=True)

    def names(self) -> Iterator[str]:
        """The tensors of the file that are read."""
        yield from (f"{self.name}_blocks", f"{self.name}_scales") if self.packed else (self.name,)
        if self.bias:
            yield f"{self.name}_bias"

    def weights(self, expert: int) -> GgmlWeights:
        """The packed matrix of one expert, as ggml's blocks."""
        blocks, scales = (self._tensors.view(f"{self.name}_{part}")[expert] for part in ("blocks", "scales"))
        return GgmlWeights(MXFP4, mxfp4_rows(self._in_order(blocks), self._in_order(scales)), self.in_features)

    def planned(self) -> GgmlWeights:
        """Same as :meth:`weights`, on device "meta", without storage."""
        size = (self.out_features, BLOCKS[MXFP4].row_bytes(self.in_features))
        return GgmlWeights(MXFP4, torch.empty(size, dtype=torch.uint8, device="meta"), self.in_features)

    def dense(self, expert: int) -> Tensor:
        """The plain matrix of one expert ``[N, K]``: of the file, or a copy where that has it the other way round."""
        matrix = self._tensors.view(self.name)[expert]
        if not self._across:
            return matrix
        return (self._in_order(matrix.t()) if self.bias else matrix.t()).contiguous()

    def bias_of(self, expert: int) -> Tensor:
        """``[N]``, a view of the file or a copy."""
        return self._in_order(self._tensors.view(f"{self.name}_bias")[expert])

    def _in_order(self, rows: Tensor) -> Tensor:
        """gpt-oss' ``rows [N, ...]`` with the modules' output features after each other."""
        if self._modules == 1:
            return rows
        return rows.unflatten(0, (-1, self._modules)).transpose(0, 1).reshape(rows.shape)


def mxfp4_rows(blocks: Tensor, scales: Tensor) -> Tensor:
    """``blocks [N, G, 16]`` and ``scales [N, G]`` of a file -> rows of ggml's MXFP4 blocks ``[N, 17 G]``; no loss.

    Both have 32 codes of 4 bits and one exponent. In the file byte i holds codes 2i and 2i + 1, the low nibble first;
    ggml's byte i holds codes i and i + 16, after the exponent.
    """
    first, second = blocks.split(8, -1)
    even, odd = (first & 15) | (second << 4), (first >> 4) | (second & 240)
    rows = torch.empty(*scales.shape, 17, dtype=torch.uint8)
    rows[..., 0], rows[..., 1::2], rows[..., 2::2] = scales, even, odd
    return rows.flatten(1)
