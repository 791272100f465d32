"""The native attention of few rows against the definition, and rows that do not know their neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttnProblem, AttnSpec, KeyRange
from engine.compute.native import library
from tests.contracts.attention_backend import AXES, AttentionBackendContract, Shapes
from tests.engine.compute.attention.attention_cases import Case, place
from tests.engine.compute.attention.packed_cases import expected_within
from tests.kit.examples import examples

PLAIN = AttnProblem("cpu", torch.bfloat16, AttnSpec(0.125))
CAPS = st.none() | st.sampled_from([0.4, 2.0, 50.0])
runs = pytest.mark.usefixtures("each_set")


def cases_of(
    shapes: list[tuple[int, int]],
    heads: tuple[int, int] = (4, 2),
    width: int = 64,
    seed: int = 0,
    v_width: int | None = None,
) -> list[Case]:
    """Keys and values in bfloat16; queries too where the seed is even, and float32 where it is odd."""
    generator = torch.Generator().manual_seed(seed)
    cases = [Case(*shape).fill(*heads, width, torch.bfloat16, generator, v_width) for shape in shapes]
    for case in cases if seed % 2 else ():
        case.q = torch.randn(case.q.shape, generator=generator)
    return cases


def close(o: torch.Tensor, want: torch.Tensor) -> bool:
    """float32 up to the end, and there one rounding where the result is bfloat16."""
    return bool(((o.double() - want).abs() <= TestNative().allowed(want, o.dtype)).all())


def shapes_of(**shapes: list[tuple[int, int]]) -> dict[str, list[tuple[int, int, bool]]]:
    """Start and rows of sequences: of no rows is a tree."""
    return {name: [(*each, not each[1]) for each in some] for name, some in shapes.items()}


@runs
class TestNative(AttentionBackendContract):
    """Few rows, keys and values in bfloat16, in tiles of 128."""

    backend = NativeAttention
    one_kernel = True
    cases = AXES | {
        "shapes": shapes_of(
            first=[(0, 1)],
            before_a_tile=[(127, 1)],
            tile=[(128, 1)],
            long=[(700, 1)],
            chain=[(300, 5)],
            prompt=[(0, 16)],
            tiles=[(0, 300)],
            between_tiles=[(70, 65)],
            mixed=[(5, 1), (20, 3), (257, 1), (10, 16), (0, 2)],
            few_and_many=[(600, 1), (12, 40), (3, 17), (0, 2), (130, 20)],
            tree=[(77, 0)],
            tree_over_parts=[(508, 0)],
            trees_and_chains=[(0, 0), (124, 0), (40, 1), (600, 3), (511, 0), (20, 30)],
        ),
        "few": shapes_of(mixed=[(600, 1), (12, 4)], tiles=[(100, 30)]),
        "window": {str(window): window for window in (None, 1, 20, 100, 128, 129)},
        "heads": {str(heads): heads for heads in ((1, 1), (4, 4), (8, 1), (6, 2), (5, 1), (14, 2))},
        "width": {str(width): width for width in (32, 64, 96, 128, 256)},
        "narrow": {str(widths): widths for widths in ((64, 32), (96, 64), (192, 128), (576, 512))},
    }

    def filled(
        self,
        shapes: Shapes,
        dtype: torch.dtype,
        heads: tuple[int, int] = (4, 2),
        widths: tuple[int, int | None] = (64, None),
    ) -> list[Case]:
        cases = super().filled(shapes, torch.bfloat16, heads, widths)
        generator = torch.Generator().manual_seed(1)
        for case in cases if dtype == torch.float32 else ():
            case.q = torch.randn(case.q.shape, generator=generator)
        return cases

    def allowed(self, want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return want.abs() * (2**-8 if dtype == torch.bfloat16 else 1e-5) + 1e-5

    def allowed_lse(self, want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return self.allowed(want, torch.float32)


@runs
@examples(20)
@given(st.data())
def test_any_range_of_keys(data: st.DataObject) -> None:
    counts = st.integers(1, 4) | st.integers(17, 40)
    shapes = data.draw(st.lists(st.tuples(st.integers(0, 1200), counts), min_size=1, max_size=4))
    cases = cases_of(shapes, seed=data.draw(st.integers(0, 1)))
    rows = sum(case.rows for case in cases)
    ends = st.none() | st.lists(st.integers(0, 1300), min_size=rows, max_size=rows).map(np.array)
    keys, window = KeyRange(data.draw(ends), data.draw(ends)), data.draw(st.none() | st.integers(1, 900))
    spec = AttnSpec(0.125, window, data.draw(CAPS))
    batch, q, kv = place(cases, data.draw(st.integers(0, 9)))
    want, want_lse = expected_within(cases, spec, keys)
    if data.draw(st.booleans()):  # queries that stand next to something else
        q = torch.cat((q, q[:, :1]), 1)[:, :-1]
    o, lse = NativeAttention().attend(q, kv, spec, batch, need_lse=True, keys=keys)
    assert lse is not None
    some = want_lse != -torch.inf
    assert torch.equal(lse == -torch.inf, ~some)
    assert bool(((lse.double() - want_lse)[some].abs() <= 1e-5 * want_lse[some].abs() + 1e-5).all())
    assert close(o, want)
    assert not o[~some].any()


@runs
@examples(30)
@given(st.data())
def test_any_tree(data: st.DataObject) -> None:
    """Next to chains, within any limits, small windows included; and a tree of as many rows as there may be."""
    cases, seed = list[Case](), data.draw(st.integers(0, 1))
    for _ in range(data.draw(st.integers(1, 3))):
        start, rows = data.draw(st.integers(0, 530)), data.draw(st.integers(1, 9) | st.just(64))
        parents = [data.draw(st.integers(max(-1, row - 6), row - 1)) for row in range(rows)]
        cases.append(Case(start, rows, parents if data.draw(st.booleans()) else None))
    generator = torch.Generator().manual_seed(seed)
    for case in cases:
        case.fill(4, 2, 64, torch.bfloat16, generator)
        case.q = case.q.float() if seed else case.q
    rows = sum(case.rows for case in cases)
    ends = st.none() | st.lists(st.integers(0, 560), min_size=rows, max_size=rows).map(np.array)
    keys, window = KeyRange(data.draw(ends), data.draw(ends)), data.draw(st.none() | st.integers(1, 70))
    spec = AttnSpec(0.125, window, data.draw(CAPS))
    batch, q, kv = place(cases, 3)
    o, lse = NativeAttention().attend(q, kv, spec, batch, need_lse=True, keys=keys)
    assert lse is not None
    begin = 0
    for case in cases:
        end = begin + case.rows
        first, stop = (
            np.full(rows, none) if limit is None else limit for limit, none in ((keys.first, 0), (keys.stop, 1 << 30))
        )
        want, want_lse = case.expected(spec, list(zip(first[begin:end], stop[begin:end], strict=True)))
        assert close(o[begin:end], want)
        some = want_lse != -torch.inf
        assert torch.equal(lse[begin:end] == -torch.inf, ~some)
        assert bool(((lse[begin:end].double() - want_lse)[some].abs() <= 1e-4).all())
        begin = end


@runs
def test_ranges_of_one_batch_are_not_mixed_up() -> None:
    backend, cases = NativeAttention(), cases_of([(100, 3)])
    batch, q, kv = place(cases)
    for stop in (20, 50, 0, 20):  # new arrays at each turn, which may lie where the last ones did
        keys = KeyRange(None, np.full(3, stop))
        o, _ = backend.attend(q, kv, AttnSpec(0.125), batch, keys=keys)
        assert bool(((o.double() - expected_within(cases, AttnSpec(0.125), keys)[0]).abs() < 0.02).all())
        del keys


@runs
@pytest.mark.parametrize("sequences", [1, 75])
def test_threads_do_not_change_a_bit(sequences: int) -> None:
    """The queries of 75 are many enough for several threads too."""
    before, results = torch.get_num_threads(), []
    batch, q, kv = place(cases_of([(3000, 1), *[(700, 4)] * sequences], (8, 1), seed=sequences), 1)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(NativeAttention().attend(q, kv, AttnSpec(0.125), batch)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@runs
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spec", [AttnSpec(0.125), AttnSpec(0.125, None, 1.5)], ids=["plain", "capped"])
def test_a_row_keeps_its_bits_in_any_company(threads: int, spec: AttnSpec) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        cases = cases_of([(600, 1), (300, 4), (20, 1)], seed=threads)
        batch, q, kv = place(cases, 1)
        together, _ = NativeAttention().attend(q, kv, spec, batch)
        at = 0
        for case in cases:
            alone_batch, alone_q, alone_kv = place([case], 3)
            alone, _ = NativeAttention().attend(alone_q, alone_kv, spec, alone_batch)
            assert torch.equal(alone, together[at : at + case.rows])
            at += case.rows
    finally:
        torch.set_num_threads(before)


@runs
def test_a_row_of_a_prompt_keeps_its_bits_in_any_company() -> None:
    """Cut into other steps, with other texts beside it, with other threads; and near what torch computes."""
    spec, before = AttnSpec(0.125, 90), torch.get_num_threads()
    cases = cases_of([(9, 17), (30, 1), (200, 150)], (8, 2))
    batch, q, kv = place(cases, 1)
    together, _ = NativeAttention().attend(q, kv, spec, batch)
    torch_own, _ = SdpaAttention().attend(q, kv, spec, batch)
    assert bool(((together.double() - torch_own.double()).abs() < 0.02).all())
    alone_batch, alone_q, alone_kv = place(cases[2:], 3)
    rows = slice(cases[0].rows + 1, None)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            alone, _ = NativeAttention().attend(alone_q, alone_kv, spec, alone_batch)
            assert torch.equal(alone, together[rows])
    finally:
        torch.set_num_threads(before)
    part = Case(240, 40).fill(8, 2, 64, torch.bfloat16, torch.Generator())
    part.q, part.k, part.v = cases[2].q[40:80], cases[2].k[:280], cases[2].v[:280]
    batch, q, kv = place([part], 2)
    assert torch.equal(NativeAttention().attend(q, kv, spec, batch)[0], together[rows][40:80])


@runs
def test_a_row_of_a_capped_prompt_keeps_its_bits_in_any_company() -> None:
    spec = AttnSpec(0.125, 90, 1.5)
    cases = cases_of([(30, 1), (200, 50)], (8, 2))
    batch, q, kv = place(cases, 1)
    together, _ = NativeAttention().attend(q, kv, spec, batch)
    part = Case(230, 5, None, cases[1].q[30:35], cases[1].k[:235], cases[1].v[:235])
    batch, q, kv = place([part], 2)
    assert torch.equal(NativeAttention().attend(q, kv, spec, batch)[0], together[31:36])


@runs
@pytest.mark.parametrize("cap", [0.7, 50.0])
def test_scores_of_any_size_are_capped_to_the_last_places(cap: float) -> None:
    """Of a row that sees one key the log of the sum is the score."""
    x = torch.cat((torch.linspace(-4, 4, 801), torch.logspace(-30, 30, 301), -torch.logspace(-7, 3, 301))) * cap
    case = Case(0, 1).fill(len(x), 1, 32, torch.bfloat16, torch.Generator())
    case.k[:] = case.k.new_tensor([1.0, *[0.0] * 31])
    case.q = torch.nn.functional.pad(x[None, :, None], (0, 31))
    batch, q, kv = place([case])
    _, lse = NativeAttention().attend(q, kv, AttnSpec(1.0, softcap=cap), batch, need_lse=True)
    assert lse is not None
    torch.testing.assert_close(lse[0].double(), cap * torch.tanh(x.double() / cap), rtol=4e-7, atol=0.0)


@runs
def test_it_declines_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, wide = NativeAttention(), PLAIN._replace(dtype=torch.float32)
    assert backend.declines(PLAIN) is None
    assert backend.declines(wide._replace(kv_dtype=torch.bfloat16)) is None
    assert backend.declines(wide._replace(kv_dtype=torch.int8, kind="int8")) is None
    assert "in bfloat16 and these are in float32" in str(backend.declines(wide))
    assert "not on a CPU" in str(backend.declines(PLAIN._replace(device="cuda")))
    assert "needs bfloat16 or float32" in str(backend.declines(PLAIN._replace(dtype=torch.float16)))
    assert backend.declines(PLAIN._replace(tree=True)) is None
    assert "heads of 80" in str(backend.declines(PLAIN._replace(head_dims=(80, 80))))
    assert "heads of 608" in str(backend.declines(PLAIN._replace(head_dims=(608, 608))))
    assert "last bits" in str(backend.declines(PLAIN._replace(batch_invariant=True)))
    monkeypatch.setattr(
        "engine.compute.attention.backends.native.find", lambda: library.LibraryLookup(None, "it is gone")
    )
    assert NativeAttention().declines(PLAIN) == "it is gone"
