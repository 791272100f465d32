"""Every backend against attention by definition: ragged batches, windows, softcaps, trees, pages in any order."""

from __future__ import annotations

import pytest
import torch

from engine.base.devices import TRAITS
from engine.compute.attention.backends import plan
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttentionBackend, AttnSpec
from tests.contracts.attention_backend import AXES, SHAPES, AttentionBackendContract, Shapes
from tests.engine.compute.attention.attention_cases import Case, as_latents, place

BACKENDS = [ReferenceAttention, SdpaAttention, BatchInvariantAttention]


class TestReference(AttentionBackendContract):
    backend = ReferenceAttention


class TestSdpa(AttentionBackendContract):
    backend = SdpaAttention
    cases = AXES | {"kind": {kind: kind for kind in ("wide", "latent")}}


class TestBatchInvariant(AttentionBackendContract):
    backend = BatchInvariantAttention


CONTRACTS = {each.backend: each() for each in (TestReference, TestSdpa, TestBatchInvariant)}
each_backend = pytest.mark.parametrize("backend", CONTRACTS.values(), ids=lambda each: type(each).__name__)


def compare(
    backend: AttentionBackend, cases: list[Case], spec: AttnSpec, seed: int | None = None, kind: str = "dense"
) -> None:
    CONTRACTS[type(backend)].compare(cases, spec, seed, kind, backend)


def cases_of(shapes: Shapes, heads: tuple[int, int] = (4, 2), dtype: torch.dtype = torch.float32) -> list[Case]:
    return CONTRACTS[ReferenceAttention].filled(shapes, dtype, heads)


@each_backend
@pytest.mark.parametrize("shapes", [SHAPES[name] for name in ("decode", "chunk", "tree", "decodes")])
def test_keys_in_16_bits_are_read_in_float32(backend: AttentionBackendContract, shapes: Shapes) -> None:
    """To the precision of float32, as the keys' rounding is behind them."""
    cases = cases_of(shapes, dtype=torch.bfloat16)
    for case in cases:
        case.q = torch.randn(case.q.shape, generator=torch.Generator().manual_seed(case.length))
    for seed in (None, 1, 2):
        for window in (None, 20):
            backend.compare(cases, AttnSpec(0.25, window), seed)


@pytest.mark.slow
def test_the_widths_of_deepseek_v2() -> None:
    """Keys of 576 for all heads, their first 512 columns the values, as fused kernels see them."""
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        cases = [Case(1200, 1).fill(16, 1, 576, dtype, generator), Case(40, 30).fill(16, 1, 576, dtype, generator)]
        as_latents(cases, 512)
        for backend in BACKENDS:
            for seed in (None, 1):
                compare(backend(), cases, AttnSpec(192**-0.5), seed, "latent")


@pytest.mark.parametrize("backend", [ReferenceAttention, BatchInvariantAttention])
def test_softcap(backend: type[AttentionBackend]) -> None:
    compare(backend(), cases_of([(30, 1, False), (12, 20, False), (9, 0, True)]), AttnSpec(2.0, 25, 1.5), 1)


@pytest.mark.parametrize("shape", [(300, 1, False), (260, 200, False), (280, 0, True)])
def test_long_prefix_split_off_and_merged(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, bool]) -> None:
    monkeypatch.setattr(plan, "SPLIT_PREFIX", 64)
    for seed in (None, 1):
        compare(SdpaAttention(), cases_of([shape, (3, 2, False)]), AttnSpec(0.25), seed)


@pytest.mark.parametrize("kv", [255, 256, 257, 600])
def test_around_the_edges_of_tiles(kv: int) -> None:
    for rows in (1, 9):
        compare(BatchInvariantAttention(), cases_of([(kv - rows, rows, False)]), AttnSpec(0.25), 1)


def test_a_tree_of_64_rows_uses_every_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    chain = tuple(range(-1, 63))  # row 63 sees bit 63, the sign
    star = (-1, *[0] * 62, 62)
    for parents in (chain, star):
        case = Case(21, 64, parents).fill(4, 2, 16, torch.float32, generator)
        for backend in BACKENDS:
            compare(backend(), [case], AttnSpec(0.25), 1)


def test_the_padded_call_is_taken_and_right() -> None:
    cases = cases_of([(40, 1, False), (44, 1, False), (10, 30, False), (50, 1, False)])
    batch, q, _ = place(cases, 3)
    made = plan.make_plan(batch, AttnSpec(0.25), 0, 2, q.dtype)
    assert made.padded is not None
    assert len(made.sources) == 1
    compare(SdpaAttention(), cases, AttnSpec(0.25), 3)


def test_masks_do_not_grow_with_chunk_times_context() -> None:
    (case,) = cases_of([(2000, 500, False)], (2, 1))
    batch, q, _ = place([case])
    for window in (None, 300):
        made = plan.make_plan(batch, AttnSpec(0.25, window), 0, 2, q.dtype)
        sizes = [block.mask.numel() for block in made.sources[0].blocks if block.mask is not None]
        rows = TRAITS["cpu"].block_rows
        assert max(sizes) <= 2 * rows * (rows + (window or 0))
