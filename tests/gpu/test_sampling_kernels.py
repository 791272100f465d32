"""Sampling's kernels on a GPU, token for token against torch there and on the CPU. Skipped where there is no GPU."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from tests.gpu.gpu_support import DEVICE, NO_GPU

if DEVICE.type != "cuda" or not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
pytest.importorskip("triton")

from engine.compute.sampling import device, sampler
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def settings_of(rng: random.Random) -> dict[str, Any]:
    return {
        "temperature": rng.choice([0.0, 0.3, 0.6, 0.7, 1.0, 1.3]),
        "top_k": rng.choice([0, 0, 1, 20, 50, 300]),
        "top_p": rng.choice([1.0, 1.0, 0.5, 0.9, 0.95, 0.99]),
        "min_p": rng.choice([0.0, 0.0, 0.05, 0.3]),
    }


def rows_of(count: int, vocabulary: int, seed: int) -> tuple[torch.Tensor, list[Draw]]:
    rng, generator = random.Random(seed), torch.Generator(DEVICE).manual_seed(seed)
    logits = torch.randn(count, vocabulary, generator=generator, device=DEVICE) * 2.5
    logits[:, :: max(1, vocabulary // 30)] += 8.0
    draws = [Draw(SamplingParams(seed=row, **settings_of(rng)), row, range(seed + row)) for row in range(count)]
    return logits, draws


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [32000, 128256, 151936, 262208])
def test_the_kernels_are_trusted(vocabulary: int, dtype: torch.dtype) -> None:
    assert device.declines(dtype, vocabulary, DEVICE, sampler.by_torch) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [200, 32000, 128256])
def test_tokens_are_those_of_torch(vocabulary: int, dtype: torch.dtype) -> None:
    rows, left = 64, 0
    for seed in range(50 if vocabulary < 10_000 else 10):
        logits, draws = rows_of(rows, vocabulary, seed)
        logits = logits.to(dtype)
        found, expected = device.draw(logits, draws), sampler.by_torch(logits, draws)
        assert found is not None
        assert [right if token is None else token for token, right in zip(found, expected, strict=True)] == expected
        left += found.count(None)
        if seed == 0:
            assert sampler.by_torch(logits.cpu(), draws) == expected
    if vocabulary > 10_000:
        assert left < 200


def test_a_graph_draws_for_what_its_table_says_later() -> None:
    logits, draws = rows_of(8, 32000, 1)
    buffers = device.RowBuffers(8, DEVICE)
    device.fill_rows(buffers.host, draws, 32000)
    buffers.send()
    device.launch(logits, buffers.table, buffers.out, 8, True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.launch(logits, buffers.table, buffers.out, 8, True)
    for seed in range(2, 12):
        others, draws = rows_of(8, 32000, seed)
        logits.copy_(others)
        device.fill_rows(buffers.host, draws, 32000)
        buffers.send()
        graph.replay()
        tokens, unknown = buffers.out.tolist()
        expected = sampler.by_torch(logits, draws)
        assert [
            right if flag else token for token, flag, right in zip(tokens, unknown, expected, strict=True)
        ] == expected
