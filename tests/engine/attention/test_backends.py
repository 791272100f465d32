"""Every backend against attention by definition: ragged batches, windows, softcaps, trees, pages in any order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.backends import plan
from engine.attention.backends.batch_invariant import BatchInvariantAttention
from engine.attention.backends.reference import ReferenceAttention
from engine.attention.backends.sdpa import SdpaAttention
from engine.attention.interface import AttentionBackend, AttnSpec
from engine.devices import TRAITS
from engine.runner.buffers import powers_of_two
from tests.engine.attention.attention_cases import Case, as_latents, expected, place
from tests.kit.examples import examples

TREE = (-1, 0, 0, 1, 1, -1, 5, 2)
BACKENDS = [ReferenceAttention, SdpaAttention, BatchInvariantAttention]
TOLERANCE = {torch.float32: 4e-6, torch.bfloat16: 2e-2}


def compare(
    backend: AttentionBackend, cases: list[Case], spec: AttnSpec, seed: int | None = None, kind: str = "dense"
) -> None:
    """Twice: with lse, and without, when other code runs."""
    batch, q, kv = place(cases, seed, powers_of_two if seed is not None and seed % 2 else None, kind)
    want_o, want_lse = expected(cases, spec)
    tolerance = TOLERANCE[q.dtype]
    rows = want_o.shape[0]
    o, lse = backend.attend(q, kv, spec, batch, need_lse=True)
    assert lse is not None
    assert (o.dtype, lse.dtype, tuple(o.shape)) == (q.dtype, torch.float32, (*q.shape[:2], kv.v.shape[2]))
    assert (o[:rows].double() - want_o).abs().max() < tolerance
    assert (lse[:rows].double() - want_lse).abs().max() < tolerance
    alone, none = backend.attend(q, kv, spec, batch)
    assert none is None
    assert (alone[:rows].double() - want_o).abs().max() < tolerance
    assert not alone[rows:].any()


def cases_of(
    shapes: list[tuple[int, int, bool]], heads: tuple[int, int] = (4, 2), dtype: torch.dtype = torch.float32
) -> list[Case]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [
        Case(start, len(TREE) if tree else rows, TREE if tree else None).fill(*heads, 16, dtype, generator)
        for start, rows, tree in shapes
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 1, 20, 100])
@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 1, False)],
        [(140, 1, False)],
        [(0, 40, False)],
        [(131, 150, False)],
        [(77, 0, True)],
        [(5, 1, False), (20, 1, False), (21, 1, False), (10, 1, False)],
        [(5, 1, False), (0, 33, False), (40, 5, False), (9, 1, False), (7, 1, False)],
        [(3, 0, True), (90, 70, False), (60, 1, False), (16, 0, True)],
    ],
    ids=["first token", "decode", "prompt", "chunk", "tree", "decodes", "mixed", "mixed with trees"],
)
def test_matches_the_definition(
    backend: type[AttentionBackend], dtype: torch.dtype, window: int | None, shapes: list[tuple[int, int, bool]]
) -> None:
    cases = cases_of(shapes, dtype=dtype)
    for seed in (None, 1, 2):
        compare(backend(), cases, AttnSpec(0.25, window), seed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shapes",
    [[(140, 1, False)], [(131, 150, False)], [(77, 0, True)], [(5, 1, False), (20, 1, False), (21, 1, False)]],
    ids=["decode", "chunk", "tree", "decodes"],
)
def test_keys_in_16_bits_are_read_in_float32(
    backend: type[AttentionBackend], shapes: list[tuple[int, int, bool]]
) -> None:
    """To the precision of float32, as the keys' rounding is behind them."""
    cases = cases_of(shapes, dtype=torch.bfloat16)
    for case in cases:
        case.q = torch.randn(case.q.shape, generator=torch.Generator().manual_seed(case.length))
    for seed in (None, 1, 2):
        for window in (None, 20):
            compare(backend(), cases, AttnSpec(0.25, window), seed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [(4, 4), (8, 1), (6, 2)])
def test_any_grouping_of_heads(backend: type[AttentionBackend], heads: tuple[int, int]) -> None:
    compare(backend(), cases_of([(30, 1, False), (12, 20, False)], heads), AttnSpec(0.25), 1)


NARROW = [
    [(140, 1, False)],
    [(131, 150, False)],
    [(5, 1, False), (20, 1, False), (21, 1, False), (10, 1, False)],
    [(3, 0, True), (90, 70, False), (60, 1, False), (16, 0, True)],
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("shapes", NARROW, ids=["decode", "chunk", "decodes", "mixed with trees"])
def test_values_that_the_keys_begin_with(
    backend: type[AttentionBackend], dtype: torch.dtype, window: int | None, shapes: list[tuple[int, int, bool]]
) -> None:
    """As multi-head latent attention reads its cache: all heads the same keys of 16, values of 10."""
    cases = cases_of(shapes, (4, 1), dtype)
    as_latents(cases, 10)
    for seed in (None, 1, 2):
        compare(backend(), cases, AttnSpec(0.25, window), seed, "latent")


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        (ReferenceAttention, "dense"),
        (BatchInvariantAttention, "dense"),
        (ReferenceAttention, "wide"),
        (BatchInvariantAttention, "wide"),
        (SdpaAttention, "wide"),
    ],
)
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("shapes", NARROW, ids=["decode", "chunk", "decodes", "mixed with trees"])
def test_values_narrower_than_keys(
    backend: type[AttentionBackend], window: int | None, shapes: list[tuple[int, int, bool]], kind: str
) -> None:
    generator = torch.Generator().manual_seed(len(shapes))
    cases = [
        Case(start, len(TREE) if tree else rows, TREE if tree else None).fill(4, 2, 16, torch.float32, generator, 10)
        for start, rows, tree in shapes
    ]
    for seed in (None, 1, 2):
        compare(backend(), cases, AttnSpec(0.25, window), seed, kind)


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


sequences = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90), st.booleans()), min_size=1, max_size=5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_batch(backend: type[AttentionBackend]) -> None:
    @examples(20)
    @given(sequences, st.none() | st.integers(1, 150), st.integers(0, 9))
    def run(shapes: list[tuple[int, int, bool]], window: int | None, seed: int) -> None:
        compare(backend(), cases_of(shapes), AttnSpec(0.25, window), seed)

    run()


def test_a_tree_of_64_rows_uses_every_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    chain = tuple(range(-1, 63))  # row 63 sees bit 63, the sign
    star = (-1, *[0] * 62, 62)
    for parents in (chain, star):
        case = Case(21, 64, parents).fill(4, 2, 16, torch.float32, generator)
        for backend in BACKENDS:
            compare(backend(), [case], AttnSpec(0.25), 1)


def test_a_plan_is_not_reused_for_the_next_batch() -> None:
    backend = SdpaAttention()
    for shapes in ([(30, 4, False)], [(50, 4, False)], [(50, 1, False), (3, 1, False), (8, 1, False)]):
        compare(backend, cases_of(shapes), AttnSpec(0.25), 2)
        compare(backend, cases_of(shapes), AttnSpec(0.25, 7), 2)


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
