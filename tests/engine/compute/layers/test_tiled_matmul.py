"""Products of the batch-invariant mode: what a row gets does not depend on its place, for matrices of any width."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from engine.compute.layers.linear.tiled import tile_rows, tiled_heads_matmul, tiled_matmul


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 15, 16, 17, 40])
@pytest.mark.parametrize("depth", [5, 48, 100, 256])
def test_a_row_gets_the_same_bits_in_every_place(columns: int, depth: int) -> None:
    torch.manual_seed(depth + columns)
    tall = tile_rows(torch.empty(1))
    x, weight = torch.randn(2 * tall + 3, depth), torch.randn(columns, depth)
    whole = tiled_matmul(x, [(0, weight.t())], columns)
    torch.testing.assert_close(whole, x @ weight.t(), rtol=1e-4, atol=1e-4)
    heads = tiled_heads_matmul(x[:, None], weight.t()[None])
    for place in range(1, tall):
        turned = x.roll(place, 0)
        assert torch.equal(tiled_matmul(turned, [(0, weight.t())], columns), whole.roll(place, 0))
        assert torch.equal(tiled_heads_matmul(turned[:, None], weight.t()[None]), heads.roll(place, 0))


@pytest.mark.slow
@pytest.mark.parametrize("instructions", ["AVX2", "SSE4_2"])
def test_other_kernels_of_mkl_get_a_tile_that_fits_them(instructions: str) -> None:
    program = """
import torch
from engine.compute.layers.linear.tiled import tile_rows, tiled_matmul
tall = tile_rows(torch.empty(1))
x, weight = torch.randn(2 * tall + 3, 100), torch.randn(100, 40)
whole = tiled_matmul(x, [(0, weight)], 40)
assert all(torch.equal(tiled_matmul(x.roll(n, 0), [(0, weight)], 40), whole.roll(n, 0)) for n in range(tall))
"""
    environment = {**os.environ, "MKL_ENABLE_INSTRUCTIONS": instructions}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
