"""Attention that reads packed keys and values, and what packing costs it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.cache.stores.codecs import (
    pack_absmax,
    pack_along_channels,
    pack_along_tokens,
    unpack_absmax,
    unpack_along_channels,
    unpack_along_tokens,
)
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import BYTE_KINDS, Flush, PackedKV, Placement
from engine.cache.stores.packed_stores import TokenPackedStore
from engine.cache.techniques.kivi.store import KiviStore
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec
from engine.compute.attention.registry import AttentionDispatcher, choose
from engine.compute.batch import Batch, SequenceRows
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from tests.engine.compute.attention.attention_cases import Case, OneGroup, expected, place
from tests.kit.pairs import pairs

BACKENDS = [ReferenceAttention, SdpaAttention, BatchInvariantAttention]
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2e-2}
KIVI = KVKind("kivi", 4, 2, 64)
TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


def lossy(kind: str, x: Tensor, keys: bool) -> Tensor:
    """What a kind makes of all the keys or values of a sequence, in their dtype."""
    if kind in BYTE_KINDS:
        return unpack_absmax(*pack_absmax(x, kind), kind, x.dtype)
    if kind == "int4":
        return unpack_along_channels(*pack_along_channels(x, 4), 4, x.dtype)
    if keys:
        return unpack_along_tokens(*pack_along_tokens(x, KIVI.key_bits), KIVI.key_bits, x.dtype)
    return unpack_along_channels(*pack_along_channels(x, KIVI.value_bits), KIVI.value_bits, x.dtype)


def packed(kind: str, kv: PackedKV, batch: Batch) -> PackedKV:
    """The arenas packed, all tokens of every sequence (for KIVI whole groups, however recent)."""
    slots, heads, width = kv.k.shape
    if kind != "kivi":
        store = TokenPackedStore(kind, [(heads, width)], slots // 16)
        store.write(0, kv.k, kv.v, Placement(torch.arange(slots)[None], [0]))
        return store.view(0)
    kivi = KiviStore(KIVI, [(heads, width)], slots // 16, slots // 16, kv.k.dtype)
    for pages in batch.host.pages[0]:
        whole = torch.tensor(pages[: len(pages) // 2 * 2])
        source = (whole[:, None] * 16 + torch.arange(16)).flatten()
        at = torch.arange(slots).expand(2, -1)
        kivi.write(0, kv.k, kv.v, Placement(at, [0, 0], Flush(source, whole)))
    return kivi.view(0)._replace(recent=None)


def cases_of(
    shapes: Sequence[tuple[int, int, bool]], heads: tuple[int, int], width: int, dtype: torch.dtype = torch.float32
) -> list[Case]:
    generator = torch.Generator().manual_seed(width)
    return [
        Case(start, len(TREE) if tree else rows, TREE if tree else None).fill(*heads, width, dtype, generator)
        for start, rows, tree in shapes
    ]


def compare(backend: AttentionBackend, kind: str, cases: list[Case], spec: AttnSpec, seed: int | None) -> None:
    """Packed arenas against attention by definition over the numbers that packing leaves."""
    batch, q, kv = place(cases, seed, powers_of_two if seed is not None and seed % 2 else None)
    kv = packed(kind, kv, batch)
    for case in cases:
        case.k, case.v = lossy(kind, case.k, True), lossy(kind, case.v, False)
    want_o, want_lse = expected(cases, spec)
    for need_lse in (True, False):
        o, lse = backend.attend(q, kv, spec, batch, need_lse=need_lse)
        assert (o.dtype, tuple(o.shape)) == (q.dtype, tuple(q.shape))
        assert (o[: len(want_o)].double() - want_o).abs().max() < TOLERANCE[q.dtype]
        assert not o[len(want_o) :].any()
        if lse is not None:
            assert (lse[: len(want_o)].double() - want_lse).abs().max() < TOLERANCE[q.dtype]


SHAPES = {
    "decode": [(127, 1, False)],
    "chunk": [(61, 35, False)],
    "padded decodes": [(31, 1, False), (63, 1, False), (95, 1, False), (95, 1, False)],
    "long": [(520, 24, False), (319, 1, False)],
    "trees": [(88, 0, True), (30, 2, False)],
}


@pairs(backend=BACKENDS, kind=["int8", "fp8", "int4", "kivi"], dtype=[torch.float32, torch.bfloat16], shapes=SHAPES)
def test_packed_pages_are_read(
    backend: type[AttentionBackend], kind: str, dtype: torch.dtype, shapes: list[tuple[int, int, bool]]
) -> None:
    if kind == "kivi":  # whose packed tokens are never new rows of a tree
        shapes = [shape for shape in shapes if not shape[2]]
    for window in (None, 40):
        for seed in (None, 1, 2):
            compare(backend(), kind, cases_of(shapes, (4, 2), 16, dtype), AttnSpec(0.25, window), seed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["int8", "fp8", "int4", "kivi"])
@pytest.mark.parametrize(("heads", "width"), [((9, 3), 64), ((4, 4), 80), ((8, 1), 96), ((4, 1), 128), ((2, 1), 256)])
def test_widths_and_groupings(backend: type[AttentionBackend], kind: str, heads: tuple[int, int], width: int) -> None:
    compare(backend(), kind, cases_of([(40, 24, False), (95, 1, False)], heads, width), AttnSpec(width**-0.5), 2)


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_of_any_length(backend: type[AttentionBackend], kind: str) -> None:
    for length in (1, 15, 17, 100):
        compare(backend(), kind, cases_of([(length - 1, 1, False), (3, length, False)], (4, 2), 16), AttnSpec(0.25), 3)


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4", "kivi"])
def test_who_reads_packed_pages(kind: str) -> None:
    problem = AttnProblem("cpu", torch.bfloat16, AttnSpec(0.125), kind)
    for dtype in (torch.bfloat16, torch.float32):
        mine = problem._replace(dtype=dtype, kv_dtype=torch.uint8)
        assert choose(mine).backend.name == ("sdpa" if NativeAttention().declines(mine) else "native")
    assert choose(problem._replace(dtype=torch.float16)).backend.name == "sdpa"
    assert choose(problem._replace(batch_invariant=True)).backend.name == "batch_invariant"
    capped = problem._replace(spec=AttnSpec(0.125, softcap=30.0))
    assert choose(capped).backend.name == ("reference" if NativeAttention().declines(capped) else "native")


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4", "kivi"])
@pytest.mark.parametrize("width", [64, 80, 128])
def test_the_error_is_within_what_follows_from_the_scales(kind: str, width: int) -> None:
    """If no key is off by more than e_k and no value by more than e_v, a score moves by at most d = scale |q| · e_k.

    Weights then change by factors within exp(+-2 d), and an output by at most (exp(2 d) - 1) max |v| + e_v.
    """
    (case,) = cases_of([(160, 32, False)], (4, 2), width)
    case.q *= 0.3 if kind == "int8" else 0.05  # so that the bound says something
    spec = AttnSpec(width**-0.5)
    exact, _ = expected([case], spec)
    batch, q, kv = place([case], 4)
    o, _ = ReferenceAttention().attend(q, packed(kind, kv, batch), spec, batch)
    if kind == "int8":
        errors = [(pack_absmax(x, kind).meta.float()[..., None] / 2).expand(x.shape) for x in (case.k, case.v)]
    elif kind == "fp8":
        errors = [x.abs() / 16 for x in (case.k, case.v)]
    else:
        bits = (KIVI.key_bits, KIVI.value_bits) if kind == "kivi" else (4, 4)
        along = pack_along_channels(case.v, bits[1]).meta.float()[..., 0] / 2
        value_error = along.repeat_interleave(width // along.shape[2], 2)
        if kind == "kivi":
            key_error = (pack_along_tokens(case.k, bits[0]).meta.float()[0::2] / 2).repeat_interleave(32, 0)
        else:
            along = pack_along_channels(case.k, bits[0]).meta.float()[..., 0] / 2
            key_error = along.repeat_interleave(width // along.shape[2], 2)
        errors = [key_error, value_error]
    key_error, value_error = (x * 1.02 + 1e-3 for x in errors)  # float16 rounds scales and minima
    repeat = case.q.shape[1] // case.k.shape[1]
    moved = spec.scale * torch.einsum("rhd,nhd->rhn", case.q.abs(), key_error.repeat_interleave(repeat, 1)).amax(2)
    largest = case.v.abs().amax((0, 2)).repeat_interleave(repeat)
    bound = (torch.exp(2 * moved) - 1) * largest + value_error.amax((0, 2)).repeat_interleave(repeat)
    assert float(bound.max()) < float(largest.max()), "a bound that could be missed"
    assert bool(((o - exact).abs().amax(2) <= bound).all())


def with_recent(cases: list[Case], seed: int | None, dtype: torch.dtype) -> tuple[Batch, Tensor, PackedKV]:
    """The cases in a KIVI store as their runners would leave it: groups packed up to the last row, the rest recent."""
    counts = [-(-case.length // 16) for case in cases]
    numbers = torch.randperm(sum(counts) + 7, generator=torch.Generator().manual_seed(seed or 0)) + 1
    tables = [part.tolist() for part in numbers[: sum(counts)].split(counts)]
    others = [part.tolist() for part in numbers.flip(0)[: sum(counts)].split(counts)]
    _, heads, width = cases[0].k.shape
    store = KiviStore(KIVI, [(heads, width)], len(numbers) + 1, len(numbers) + 1, dtype)
    runner = Runner(OneGroup(), store, None)  # type: ignore[arg-type]
    for case, pages, recent in zip(cases, tables, others, strict=True):
        batch = runner.batch([SequenceRows([0] * case.length, 0, pages, 0, None, (recent,))])
        store.write(0, case.k, case.v, batch.placement)
    rows = [
        SequenceRows([0] * case.rows, case.start, pages, 0, case.parents, (recent,))
        for case, pages, recent in zip(cases, tables, others, strict=True)
    ]
    return runner.batch(rows), torch.cat([case.q for case in cases]), store.view(0)


def by_definition(case: Case, spec: AttnSpec) -> Tensor:
    """o [rows, H, d] in float64, each row over its own mixture of packed and exact keys."""
    whole = case.length // 32 * 32
    k, v = (lossy("kivi", x[:whole], keys).double() for x, keys in ((case.k, True), (case.v, False)))
    outputs = []
    for row, seen in enumerate(case.mask(spec.window)):
        depth = row if case.parents is None else int(seen[case.start :].sum()) - 1
        until = 32 * (max(0, case.start + depth + 1 - KIVI.residual) // 32)
        mixed = [torch.cat((part[:until], x[until:].double())) for part, x in ((k, case.k), (v, case.v))]
        one = Case(int(seen.sum()) - 1, 1, None, case.q[row : row + 1].double(), *(x[seen] for x in mixed))
        outputs.append(one.expected(spec._replace(window=None))[0])
    return torch.cat(outputs)


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 300, False)],
        [(200, 1, False)],
        [(95, 1, False), (90, 70, False), (5, 3, False)],
        [(190, 0, True), (222, 2, False)],
    ],
    ids=["prompt", "decode", "mixed", "tree"],
)
def test_each_row_reads_its_own_mixture(shapes: list[tuple[int, int, bool]], window: int | None) -> None:
    cases = cases_of(shapes, (4, 2), 16)
    batch, q, kv = with_recent(cases, 3, torch.float32)
    spec = AttnSpec(0.25, window)
    o, lse = AttentionDispatcher().attend(q, kv, spec, batch, need_lse=True)
    assert lse is not None
    want = torch.cat([by_definition(case, spec) for case in cases])
    assert (o.double() - want).abs().max() < 3e-6
