"""Every Triton kernel of attention in the interpreter, on a CPU in float32, against the definition in float64.

Run by test_attention_interpreted.py. (In bfloat16 the interpreter of Triton 3.6 silently computes something else.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.cache.stores.packed import PackedKV
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.triton import few_rows, launch
from engine.compute.attention.triton.launch import TileConfig
from engine.compute.batch import Batch
from engine.compute.runner.buffers import powers_of_two
from tests.engine.compute.attention.attention_cases import Case, as_latents, expected, place
from tests.engine.compute.attention.triton import reference
from tests.engine.compute.attention.triton.numpy_packers import KINDS, pack
from tests.kit.examples import examples

TREE = (-1, 0, 0, 1, 1, -1, 5, 2)
MIXED = [(5, 1, False), (0, 33, False), (40, 5, False), (31, 1, False), (3, 0, True), (16, 16, False)]
pytestmark = pytest.mark.content("engine/compute/attention/triton")
DECODES = [(5, 1, False), (63, 1, False), (64, 1, False), (130, 2, False), (0, 1, False)]


@dataclass
class Ranged(Case):
    """Rows that see only keys of their range."""

    first: Sequence[int] | None = None
    stop: Sequence[int] | None = None

    def mask(self, window: int | None, ranges: Sequence[tuple[int, int]] | None = None, ahead: bool = False) -> Tensor:
        seen, key = super().mask(window, ranges, ahead), torch.arange(self.length)
        for row, parent in enumerate(self.parents or ()):  # a new row of a tree counts as the key at its depth
            key[self.start + row] = self.start if parent < 0 else key[self.start + parent] + 1
        if self.first is not None:
            seen &= key >= torch.tensor(self.first)[:, None]
        if self.stop is not None:
            seen &= key < torch.tensor(self.stop)[:, None]
        return seen

    def expected(self, spec: AttnSpec, ranges: Sequence[tuple[int, int]] | None = None) -> tuple[Tensor, Tensor]:
        o, lse = super().expected(spec, ranges)
        return o.nan_to_num(0.0), lse


def cases_of(
    shapes: list[tuple[int, int, bool]], heads: tuple[int, int] = (4, 2), width: int = 64, v_width: int | None = None
) -> list[Ranged]:
    generator = torch.Generator().manual_seed(len(shapes))
    cases = []
    for start, rows, tree in shapes:
        case = Ranged(start, len(TREE) if tree else rows, TREE if tree else None)
        case.fill(*heads, width, torch.float32, generator, v_width)
        cases.append(case)
    return cases


def placed(cases: Sequence[Ranged], kind: str) -> tuple[Batch, Tensor, PackedKV]:
    batch, q, kv = place(cases, 1, powers_of_two, kind if kind in ("latent", "wide") else "dense")
    return batch, q, pack(kind, batch, cases, kv.k.shape[0] // 16) if kind in KINDS else kv


def ranges(cases: Sequence[Ranged], rows: int) -> list[Tensor | None]:
    """first and stop of all rows, as the kernels take them."""
    found: list[Tensor | None] = []
    for name in ("first", "stop"):
        if all(getattr(case, name) is None for case in cases):
            found.append(None)
            continue
        values = torch.zeros(rows, dtype=torch.int32)
        filled = torch.cat([torch.tensor(getattr(case, name), dtype=torch.int32) for case in cases])
        values[: len(filled)] = filled
        found.append(values)
    return found


def compare(cases: Sequence[Ranged], spec: AttnSpec, kind: str = "dense", cut: TileConfig | None = None) -> None:
    batch, q, kv = placed(cases, kind)
    first, stop = ranges(cases, q.shape[0])
    want, want_lse = expected(cases, spec)
    rows = len(want)
    for attend in (reference.attend, launch.attend):
        extra = {"cut": cut} if attend is launch.attend else {}
        o, lse = attend(q, kv, spec, batch, 0, True, first, stop, **extra)  # type: ignore[operator]
        assert lse is not None
        assert (o.dtype, tuple(o.shape)) == (q.dtype, (*q.shape[:2], kv.v_dim))
        assert (o[:rows].double() - want).abs().max() < 5e-6
        assert torch.equal(lse[:rows].isinf(), want_lse.isinf())
        assert (lse[:rows].double() - want_lse).nan_to_num(0.0).abs().max() < 5e-6
        assert not o[rows:].any()


@pytest.mark.always
@pytest.mark.parametrize("kind", ["dense", "wide", "int8", "fp8", "int4"])
def test_a_ragged_batch_with_a_tree(kind: str) -> None:
    compare(cases_of(MIXED), AttnSpec(0.125), kind, TileConfig(16, 32, 1))


@pytest.mark.parametrize("splits", [pytest.param(2, marks=pytest.mark.long), 4])
@pytest.mark.always("splits")
@pytest.mark.parametrize("kind", ["dense", pytest.param("int8", marks=pytest.mark.long), "int4"])
def test_decoding_in_splits(kind: str, splits: int) -> None:
    compare(cases_of(DECODES), AttnSpec(0.125), kind, TileConfig(16, 32, splits))


def body_of(cases: Sequence[Ranged], residual: int = 64) -> list[Ranged]:
    """Every row sees what is packed before its last `residual` tokens, in groups of 32."""
    for case in cases:
        case.stop = [32 * (max(0, case.start + row + 1 - residual) // 32) for row in range(case.rows)]
    return list(cases)


BODIES = [(5, 1, False), (62, 3, False), (95, 1, False), (94, 2, False), (150, 20, False), (128, 0, True)]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.always if kind == "kivi 4" else ())
                                  for kind in KINDS if kind.startswith("kivi")])  # fmt: skip
def test_the_packed_body_of_kivi(kind: str) -> None:
    """Some rows see nothing: that is (0, -inf)."""
    compare(body_of(cases_of(BODIES)), AttnSpec(0.125), kind, TileConfig(16, 32, 1 if kind == "kivi 4" else 2))


@pytest.mark.parametrize(("window", "softcap"), [(1, None), (20, 1.5), (100, None)])
def test_windows_and_softcaps(window: int, softcap: float | None) -> None:
    compare(cases_of(MIXED), AttnSpec(0.125, window, softcap), "dense", TileConfig(16, 32, 2))


@pytest.mark.parametrize("kind", ["dense", pytest.param("int8", marks=pytest.mark.long)])
def test_key_ranges(kind: str) -> None:
    """Ranges that are empty, at the edges of pages and blocks, beyond the row itself, and different in one tile."""
    cases = cases_of([(100, 5, False), (40, 4, False), (31, 1, False), (64, 0, True)])
    cases[0].first, cases[0].stop = [0, 7, 64, 101, 103], [16, 7, 96, 1000, 102]
    cases[1].first, cases[1].stop = [3, 3, 3, 3], [2, 0, 0, 3]
    cases[2].first, cases[2].stop = [0], [31]
    cases[3].first, cases[3].stop = [0, 16, 32, 33, 60, 64, 65, 66], [64, 65, 66, 67, 68, 69, 70, 72]
    for splits in (1, 4):
        compare(cases, AttnSpec(0.125, 60), kind, TileConfig(16, 32, splits))
    for case in cases:
        case.stop = None
    compare(cases, AttnSpec(0.125), kind, TileConfig(32, 32, 1))


@pytest.mark.parametrize("heads", [(16, 1), (6, 2), (3, 3)])
def test_any_grouping_of_heads(heads: tuple[int, int]) -> None:
    compare(cases_of([(30, 1, False), (12, 9, False)], heads, 16), AttnSpec(0.25), "dense", TileConfig(16, 32, 1))


@pytest.mark.parametrize("width", [80, 192])
@pytest.mark.parametrize("kind", ["dense", "int4"])
def test_head_dims_that_are_no_powers_of_two(kind: str, width: int) -> None:
    compare(cases_of([(30, 1, False), (12, 5, False)], (4, 2), width), AttnSpec(0.1), kind, TileConfig(16, 32, 1))


@pytest.mark.always
def test_values_that_the_keys_begin_with() -> None:
    for width, v_width in ((40, 32), (24, 16), (26, 10)):
        cases = cases_of(MIXED[:5], (4, 1), width, v_width)
        as_latents(cases, v_width)
        compare(cases, AttnSpec(0.2), "latent", TileConfig(16, 32, 1))


@pytest.mark.parametrize("kind", ["dense", "wide", "int8", "fp8"])
def test_values_of_another_width(kind: str) -> None:
    compare(cases_of([(30, 1, False), (12, 9, False)], (4, 2), 48, 32), AttnSpec(0.2), kind, TileConfig(16, 32, 2))


def test_a_tree_of_64_rows_uses_every_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    for parents in (tuple(range(-1, 63)), (-1, *[0] * 62, 62)):
        case = Ranged(21, 64, parents)
        case.fill(2, 1, 16, torch.float32, generator)
        compare([case], AttnSpec(0.25, None if parents[1] else 5), "dense", TileConfig(64, 64, 1))


def test_the_cut_that_is_chosen() -> None:
    """One row, then many: without a tile of one's own choice."""
    compare(cases_of([(300, 1, False)]), AttnSpec(0.125), "int8")
    compare(cases_of([(70, 40, False), (3, 1, False)]), AttnSpec(0.125))
    assert launch.cut_for(*launch.layout(PackedKV(torch.empty(16, 8, 128), torch.empty(16, 8, 128)))[:2], "dense", 4, 8,
                          32768, 132) == TileConfig(16, 64, 32)  # fmt: skip
    assert launch.columns(576, 16) == (576, 16, 512, 64)
    assert launch.columns(192, 16) == (192, 16, 128, 64)
    assert launch.columns(80, 16) == (80, 16, 64, 16)
    assert launch.columns(192, 4) == (192, 4, 128, 0)


FEW = [(300, 1, False), (37, 1, False), (127, 1, False), (128, 1, False), (254, 1, False), (0, 1, False)]
DRAFTED, TWO = [(126, 4, False)], [(126, 2, False)]


@pytest.mark.always
@pytest.mark.parametrize(
    ("shapes", "width", "keys", "splits"),
    [
        (FEW, 64, 128, 2),
        (FEW, 128, 32, 1),
        (FEW[:2], 32, 16, 5),
        (DRAFTED, 256, 64, 3),
        (DRAFTED, 64, 128, 1),
        (TWO, 256, 32, 3),
        (TWO, 96, 64, 2),
        (FEW[:2], 80, 32, 1),
    ],
)
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_few_rows_over_codes(
    kind: str, shapes: list[tuple[int, int, bool]], width: int, keys: int, splits: int
) -> None:
    """Alone in each program, in more splits than there are blocks, and where new keys begin in the midst of a block."""
    cases = cases_of(shapes, (8, 2), width)
    batch, q, kv = placed(cases, kind)
    plan = launch.plan(q, kv, AttnSpec(0.125), batch, need_lse=True, cut=TileConfig(16, keys, splits))
    other = kind == "int4" and (width % 32 or width == 32 or (width == 256 and shapes is DRAFTED))
    assert plan.few is (None if other else few_rows.named(kind, width)), (
        "of 4 bits two planes have 32 channels each, and eight rows of wide heads are served"
    )
    assert launch.cut_of(q, kv, AttnSpec(0.125), batch, general=True).general
    compare(cases, AttnSpec(0.125), kind, TileConfig(16, keys, splits))
    for spec in (AttnSpec(0.125, 9), AttnSpec(0.125, None, 30.0)):
        assert launch.plan(q, kv, spec, batch).few is None, "a window or a cap is the other kernel's"


@pytest.mark.always
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_codes_in_float16(kind: str) -> None:
    """As on a GPU: queries far beyond float16, codes of 8 bits that are 1152 too large, and values that are small."""
    cases = cases_of(FEW, (8, 2), 64)
    batch, q, kv = placed(cases, kind)
    spec = AttnSpec(1e-6)
    rows, large = batch.host.T, 1e5
    assert kv.v_meta is not None
    small = kv._replace(v_meta=kv.v_meta * 0.004)
    want, want_lse = reference.attend(large * q.half().float(), small, spec, batch, 0, True, None, None)
    plan = launch.plan(q.half(), small, spec, batch, need_lse=True, cut=TileConfig(16, 32, 2))
    assert plan.few is few_rows.named(kind, 64)
    assert plan.keywords.get("MAGIC", few_rows.BYTES_MAGIC) == few_rows.BYTES_MAGIC
    scaled = launch.plan(q.half(), small, AttnSpec(1e-6 * large), batch, need_lse=True, cut=TileConfig(16, 32, 2))
    found, lse = launch.run(scaled, q.half(), small, True)
    assert lse is not None
    assert want_lse is not None
    assert (found[:rows].float() - want[:rows]).abs().max() < 2e-3 * want[:rows].abs().max()
    assert (lse[:rows] - want_lse[:rows]).abs().max() < 2e-3


EDGES = [(14, 1, False), (15, 1, False), (16, 1, False), (31, 2, False), (0, 16, False), (47, 17, False), (20, 0, True)]


@pytest.mark.long
@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("kind", ["dense", *KINDS])
def test_every_head_dim_at_the_edges_of_pages(kind: str, width: int) -> None:
    for window in (None, 17)[width >= 128 :]:
        cases = cases_of(EDGES, (4, 2), width)
        compare(body_of(cases, 0) if kind.startswith("kivi") else cases, AttnSpec(0.1, window), kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dense", "int8", "int4"])
@pytest.mark.parametrize("per_kv", range(1, 17))
def test_every_grouping_of_heads(kind: str, per_kv: int) -> None:
    compare(cases_of(EDGES[2:6], (2 * per_kv, 2), 32), AttnSpec(0.2), kind, TileConfig(16, 32, 1 + per_kv % 2))


@pytest.mark.long
def test_the_widths_of_deepseek_v2() -> None:
    cases = cases_of([(90, 1, False), (12, 5, False)], (16, 1), 576, 512)
    as_latents(cases, 512)
    compare(cases, AttnSpec(192**-0.5), "latent")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dense", "int8"])
def test_any_batch(kind: str) -> None:
    @examples(25)
    @given(
        st.lists(st.tuples(st.integers(0, 100), st.integers(1, 40), st.booleans()), min_size=1, max_size=4),
        st.none() | st.integers(1, 100),
        st.sampled_from([16, 32, 64]),
        st.sampled_from([1, 2, 8]),
    )
    def run(shapes: list[tuple[int, int, bool]], window: int | None, rows: int, splits: int) -> None:
        compare(cases_of(shapes, (4, 2), 16), AttnSpec(0.25, window), kind, TileConfig(rows, 32, splits))

    run()
