"""The residual stream: what is added is in it whoever looks, and norms read the sum."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.layer_norm import LayerNorm
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.residual import ResidualStream, add_scaled
from tests.engine.compute.native.instruction_sets import each_kernel

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


@each_kernel
@pytest.mark.parametrize("weight", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 0.22])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("kernel")
def test_native_sums_and_norms(dtype: torch.dtype, scale: float, weight: torch.dtype) -> None:
    """The sum to the bit, the norm to its own rounding, and a row the same whoever else is there."""
    for rows, size in ((1, 16), (3, 48), (7, 2048), (300, 1024)):
        x, added = torch.randn(rows, size).to(dtype), (3 * torch.randn(rows, size)).to(dtype)
        factor = (1 + 0.1 * torch.randn(size)).to(weight)
        norm = RMSNorm(factor, 1e-5, Numerics())
        assert norm._library is not None
        total = x.clone()
        add_scaled(total, added, scale)
        exact = F.rms_norm(total.double(), (size,), factor.double(), 1e-5)
        stream = x.clone()
        found = norm.forward_added(stream, added, scale)
        assert torch.equal(stream, total)
        assert found.dtype == dtype
        allowed = exact.abs() * (2**-8 if dtype == torch.bfloat16 else 2**-20)
        assert bool(((found.double() - exact).abs() <= allowed).all())
        alone = norm.forward_added(x[-1:].clone(), added[-1:], scale)
        assert torch.equal(alone[0], found[-1])
        assert torch.equal(norm.forward(stream), found)
        assert torch.equal(norm.forward(stream.t().contiguous().t()), found)
    stream[0, 5] = torch.nan
    found = norm.forward_added(stream, added, scale)
    assert bool(found[0].isnan().all())
    assert bool(found[1:].isfinite().all())
