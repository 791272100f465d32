"""Medusa heads (Cai et al. 2024, arXiv 2401.10774): from one state, the next tokens but one, but two, ...

A head is one or more residual blocks ``h + SiLU(W h + b)`` followed by an output layer: its own, or the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.base.devices import for_sampling
from engine.compute.models.base import CausalLM


@dataclass(frozen=True, slots=True)
class MedusaLayout:
    """``heads`` of ``blocks`` residual blocks each."""

    heads: int
    blocks: int
    shares_head: bool
    """The target's output layer serves all heads; otherwise each has its own."""
    accuracies: tuple[tuple[float, ...], ...] | None
    """[head][rank]: how often that choice of the head was right where it was measured."""
    notices: tuple[str, ...] = ()


class _Block(NamedTuple):
    """The same residual block of all heads: ``weight [heads, hidden, hidden]``, ``bias [heads, 1, hidden]``."""

    weight: Tensor
    bias: Tensor


class MedusaHeads:
    """All heads side by side, in the dtype and on the device of the ``target`` that they were made for."""

    def __init__(self, layout: MedusaLayout, read: Callable[[str], Tensor], target: CausalLM) -> None:
        """``read`` gives a tensor of the layout by its name. Raises what that raises."""
        self.target = target
        self.num_heads = layout.heads
        self.accuracies = layout.accuracies
        """[head][rank], how often that choice is right; None where the files do not say."""
        every = range(layout.heads)
        self._blocks = [
            _Block(
                self._stacked(read, [f"{head}.{block}.linear.weight" for head in every]),
                self._stacked(read, [f"{head}.{block}.linear.bias" for head in every]).unsqueeze(1),
            )
            for block in range(layout.blocks)
        ]
        outputs = [] if layout.shares_head else [f"{head}.{layout.blocks}.weight" for head in every]
        self._outputs = self._stacked(read, outputs) if outputs else None
        """[heads, V, hidden]; None: the target's output layer serves them all."""

    def normed(self, stream: Tensor) -> Tensor:
        """Input of the target's final norm, ``[S, hidden_size]`` -> its output, which the heads read."""
        with torch.inference_mode():
            return self.target.norm.forward(stream)

    @torch.inference_mode()
    def forward(self, hidden: Tensor, heads: int | None = None) -> Tensor:
        """``hidden [S, hidden_size]``, normed -> logits ``[heads, S, V]`` of the first ``heads`` (None: of all).

        Head i predicts the token at i + 2 places after the one whose row the state is.
        """
        count = self.num_heads if heads is None else min(heads, self.num_heads)
        x = hidden.expand(count, *hidden.shape)
        for weight, bias in self._blocks:
            x = x + F.silu(torch.baddbmm(bias[:count], x, weight[:count].transpose(1, 2)))
        if self._outputs is None:
            return self.target.head_logits(x.reshape(-1, x.shape[-1])).view(count, hidden.shape[0], -1)
        return for_sampling(torch.bmm(x, self._outputs[:count].transpose(1, 2)))

    def storage_size(self) -> int:
        """Bytes held; the target's output layer is not counted."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def bytes_read(self, heads: int | None = None) -> int:
        """Bytes of weights that a pass of the first ``heads`` (None: of all) reads."""
        count = self.num_heads if heads is None else min(heads, self.num_heads)
        shared = self.target.head.storage_size() if self._outputs is None else 0
        return shared + sum(tensor[:count].nbytes for tensor in self._tensors())

    def _tensors(self) -> list[Tensor]:
        """Each with the heads first."""
        tensors = [tensor for block in self._blocks for tensor in block]
        return tensors if self._outputs is None else [*tensors, self._outputs]

    def _stacked(self, read: Callable[[str], Tensor], names: Sequence[str]) -> Tensor:
        """Tensors of one shape in a new one, ``[len(names), ...]``, copied one by one."""
        shape = read(names[0]).shape
        stacked = torch.empty((len(names), *shape), dtype=self.target.dtype, device=self.target.device)
        for place, name in enumerate(names):
            stacked[place].copy_(read(name))
        return stacked
