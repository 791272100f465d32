"""The measurement of chosen pages counts what it reads; how fast anything is, no test says."""

from __future__ import annotations

import torch

from engine.services.experiments.workloads.shapes import Shape
from tests.engine.compute.attention.measure_pages import measure_pages, of_step

TINY = Shape("tiny", layers=5, hidden=256, ffn=128, heads=8, kv_heads=2, vocabulary=504)


def test_bytes_are_those_of_the_shape() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    full, few, more = measure_pages(TINY, 800, [64, 160], rounds=1)
    assert [row.budget for row in (full, few, more)] == [None, 64, 160]
    token = 2 * 2 * 32 * 2  # keys and values of two heads of 32, in bfloat16
    assert full.bytes_read == 800 * token
    # 49 pages have bounds as large as two keys; each of eight heads reads its KV head's half of a token.
    assert few.bytes_read == 49 * token + 8 * 64 * token // 2
    assert more.bytes_read == 49 * token + 8 * 160 * token // 2
    assert all(row.milliseconds > 0 for row in (full, few, more))


def test_the_first_layers_of_a_step_read_everything() -> None:
    assert of_step(10.0, 1.0, TINY) == 2 * 10.0 + 3 * 1.0
