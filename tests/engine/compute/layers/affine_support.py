"""Random group-affine weights for the tests of 4-bit layers."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.compute.layers.linear.affine import AffineColumns


class Affine:
    """Random group-affine weights, kept unpacked."""

    def __init__(
        self, outputs: int, inputs: int, group: int, seed: int = 0, symmetric: bool = False, order: bool = False
    ):
        generator = torch.Generator().manual_seed(seed)
        self.in_features, self.out_features, self.group = inputs, outputs, group
        self.codes = torch.randint(0, 16, (inputs, outputs), dtype=torch.uint8, generator=generator)
        self.scales = (torch.rand(inputs // group, outputs, generator=generator) * 0.02 + 0.005).half()
        shape = (inputs // group, outputs)
        self.zeros = torch.full(shape, 8) if symmetric else torch.randint(0, 16, shape, generator=generator)
        self.zeros = self.zeros.to(torch.uint8)
        self.order = torch.randperm(inputs, generator=generator) if order else None

    def columns(self, start: int, stop: int) -> AffineColumns:
        in_file = self.codes if self.order is None else self.codes[self.order.argsort()]
        return AffineColumns(words(in_file)[:, start:stop], self.scales[:, start:stop], self.zeros[:, start:stop])

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition, element by element."""
        out = torch.empty(self.out_features, self.in_features)
        for row in range(self.in_features):
            feature = row if self.order is None else int(self.order[row])
            scale, zero = self.scales[row // self.group].float(), self.zeros[row // self.group].float()
            out[:, feature] = (self.codes[row].float() - zero) * scale
        return out


def words(codes: Tensor) -> Tensor:
    """Eight codes along the input features in a word."""
    places = codes.to(torch.int64).view(-1, 8, codes.shape[1]) << 4 * torch.arange(8)[:, None]
    return places.sum(1).to(torch.int32)
