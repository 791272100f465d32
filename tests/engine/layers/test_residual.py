"""The residual stream: what is added is in it whoever looks, and norms read the sum."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.layers.layer_norm import LayerNorm
from engine.layers.norm import RMSNorm
from engine.layers.numerics import Numerics
from engine.layers.residual import ResidualStream

SIZE = 16
NORMS = (
    RMSNorm(torch.linspace(0.5, 1.5, SIZE), 1e-5, Numerics()),
    LayerNorm(torch.linspace(0.5, 1.5, SIZE), torch.ones(SIZE), 1e-5, Numerics()),
)


def rows(seed: int) -> Tensor:
    return torch.randn(3, SIZE, generator=torch.Generator().manual_seed(seed))


def test_sums_and_norms_are_those_of_one_after_the_other() -> None:
    for norm in NORMS:
        x = rows(0)
        stream = ResidualStream(x.clone())
        assert torch.equal(stream.normed(norm), norm.forward(x))
        for place, scale in enumerate((1.0, 0.3, 1.0)):
            added = rows(place + 1)
            stream.add(added, scale)
            x += added if scale == 1 else added * scale
            if place != 1:  # two additions without a norm between them
                assert torch.equal(stream.normed(norm), norm.forward(x))
            assert torch.equal(stream.normed(norm), norm.forward(x))
        stream.add(rows(9))
        assert torch.equal(stream.value(), x + rows(9))
        assert torch.equal(stream.value(), x + rows(9)), "added once"
