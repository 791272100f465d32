"""Backends of attention against attention by definition, in float64: ragged batches, windows, pages in any order.

A kind names its backend, how near it comes, and what it serves where that is not everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor

from engine.compute.attention.interface import AttentionBackend, AttnSpec
from engine.compute.runner.buffers import powers_of_two
from tests.contracts.registration import Contract
from tests.engine.compute.attention.attention_cases import TREE, Case, as_latents, expected, place
from tests.kit.examples import examples

Shapes = Sequence[tuple[int, int, bool]]
"""Tokens in the cache, new rows, and whether these are TREE instead."""
SHAPES: dict[str, Shapes] = {
    "first token": [(0, 1, False)],
    "decode": [(140, 1, False)],
    "prompt": [(0, 40, False)],
    "chunk": [(131, 150, False)],
    "tree": [(77, 0, True)],
    "decodes": [(5, 1, False), (20, 1, False), (21, 1, False), (10, 1, False)],
    "mixed": [(5, 1, False), (0, 33, False), (40, 5, False), (9, 1, False), (7, 1, False)],
    "mixed with trees": [(3, 0, True), (90, 70, False), (60, 1, False), (16, 0, True)],
}
AXES: dict[str, dict[str, Any]] = {
    "shapes": SHAPES,
    "few": {name: SHAPES[name] for name in ("decode", "chunk", "decodes", "mixed with trees")},
    "window": {str(window): window for window in (None, 1, 20, 100)},
    "heads": {str(heads): heads for heads in ((4, 4), (8, 1), (6, 2))},
    "width": {"16": 16},
    "narrow": {"16, 10": (16, 10)},
    "kind": {kind: kind for kind in ("dense", "wide", "latent")},
}
any_kind = examples(20, suppress_health_check=[HealthCheck.differing_executors])


class AttentionBackendContract(Contract):
    backend: ClassVar[Callable[[], AttentionBackend]]
    cases: ClassVar[Mapping[str, Mapping[str, Any]]] = AXES
    """``few`` of the ``shapes``; ``narrow``: widths of keys, and of values narrower than these, in arenas of each
    ``kind``."""
    one_kernel = False
    """With lse the result has the same bits as without, and a row of padding sees nothing."""

    def filled(
        self,
        shapes: Shapes,
        dtype: torch.dtype,
        heads: tuple[int, int] = (4, 2),
        widths: tuple[int, int | None] = (16, None),
    ) -> list[Case]:
        """Sequences with queries of a dtype."""
        generator = torch.Generator().manual_seed(len(shapes))
        return [
            Case(start, len(TREE) if tree else rows, TREE if tree else None).fill(
                *heads, widths[0], dtype, generator, widths[1]
            )
            for start, rows, tree in shapes
        ]

    def allowed(self, want: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.tensor({torch.float32: 4e-6, torch.bfloat16: 2e-2}[dtype])

    def allowed_lse(self, want: Tensor, dtype: torch.dtype) -> Tensor:
        return self.allowed(want, dtype)

    def compare(
        self,
        cases: list[Case],
        spec: AttnSpec,
        seed: int | None = None,
        kind: str = "dense",
        backend: AttentionBackend | None = None,
        slack: float = 1.0,
    ) -> None:
        """Twice: with lse, and without, when other code runs. Rows of padding are nothing.

        ``slack``: of scores that are large, float32 tells less.
        """
        backend = backend or type(self).backend()
        batch, q, kv = place(cases, seed, powers_of_two if seed is not None and seed % 2 else None, kind)
        want_o, want_lse = expected(cases, spec)
        rows = len(want_o)
        o, lse = backend.attend(q, kv, spec, batch, need_lse=True)
        alone, none = backend.attend(q, kv, spec, batch)
        assert lse is not None
        assert none is None
        assert (o.dtype, lse.dtype, tuple(lse.shape)) == (q.dtype, torch.float32, tuple(q.shape[:2]))
        assert bool(((lse[:rows].double() - want_lse).abs() <= slack * self.allowed_lse(want_lse, q.dtype)).all())
        if self.one_kernel:
            assert torch.equal(alone, o)
            assert bool((lse[rows:] == -torch.inf).all())
        for found in (o, alone):
            assert tuple(found.shape) == (*q.shape[:2], kv.v.shape[2])
            assert bool(((found[:rows].double() - want_o).abs() <= slack * self.allowed(want_o, q.dtype)).all())
            assert not found[rows:].any()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_matches_the_definition(self, shapes: Shapes, window: int | None, dtype: torch.dtype) -> None:
        for seed in (None, 1, 2):
            self.compare(self.filled(shapes, dtype), AttnSpec(0.25, window), seed)

    def test_any_grouping_of_heads(self, heads: tuple[int, int], width: int) -> None:
        for dtype in (torch.float32, torch.bfloat16):
            cases = self.filled([(150, 1, False), (12, 4, False)], dtype, heads, (width, None))
            self.compare(cases, AttnSpec(width**-0.5), 1)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_values_narrower_than_keys(
        self, few: Shapes, kind: str, narrow: tuple[int, int], dtype: torch.dtype
    ) -> None:
        """Latents as multi-head latent attention reads them: one head of keys, which begin with the values."""
        latent = kind == "latent"
        cases = self.filled(few, dtype, (4, 1 if latent else 2), (narrow[0], None if latent else narrow[1]))
        if latent:
            as_latents(cases, narrow[1])
        for window in (None, 20):
            for seed in (None, 1, 2):
                self.compare(cases, AttnSpec(narrow[0] ** -0.5, window), seed, kind)

    @any_kind
    @given(
        st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90), st.booleans()), min_size=1, max_size=5),
        st.none() | st.integers(1, 150),
        st.integers(0, 9),
    )
    def test_any_batch(self, shapes: Shapes, window: int | None, seed: int) -> None:
        dtype = torch.bfloat16 if seed % 4 == 3 else torch.float32
        self.compare(self.filled(shapes, dtype), AttnSpec(0.25, window), seed)

    def test_a_plan_is_not_reused_for_another_batch_or_window(self) -> None:
        backend = type(self).backend()
        for shapes in ([(30, 4, False)], [(50, 4, False)], [(50, 1, False), (3, 1, False), (8, 1, False)]):
            cases = self.filled(shapes, torch.float32)
            batch, q, kv = place(cases, 2)
            for window in (None, 7, None):
                spec = AttnSpec(0.25, window)
                want = expected(cases, spec)[0]
                o, _ = backend.attend(q, kv, spec, batch)
                assert bool(((o[: len(want)].double() - want).abs() <= self.allowed(want, q.dtype)).all())

    def test_large_scores_neither_overflow_nor_vanish(self) -> None:
        cases = self.filled([(400, 1, False), (64, 2, False)], torch.float32)
        for case in cases:
            case.q *= 10
        self.compare(cases, AttnSpec(1.0), 1, slack=20.0)
        self.compare(cases, AttnSpec(0.0), 1)

    def test_keys_that_no_row_sees_do_not_matter(self) -> None:
        """What a page's other slots hold, and keys before every row's window."""
        cases = self.filled([(40, 1, False), (67, 50, False)], torch.float32)
        for case in cases:
            case.k[: case.start - 30] = torch.nan
            case.v[: case.start - 30] = torch.inf
        batch, q, kv = place(cases, 1)
        own = [page * 16 + i for pages in batch.host.pages[0] for page in pages for i in range(16)]
        free = sorted(set(range(len(kv.k))) - set(own[:41]) - set(own[48 : 48 + 117]))
        kv.k[free], kv.v[free] = torch.nan, torch.inf
        o, _ = type(self).backend().attend(q, kv, AttnSpec(0.125, 20), batch)
        assert bool(o[: sum(case.rows for case in cases)].isfinite().all())

    def test_not_a_number_stays_in_its_sequence(self) -> None:
        """A damaged key must not look like a good answer; only rows that see it are hit."""
        for damaged in ("q", "k", "v"):
            cases = self.filled([(40, 1, False), (30, 1, False)], torch.float32)
            getattr(cases[0], damaged)[0, :, 3] = torch.nan
            batch, q, kv = place(cases)
            o, _ = type(self).backend().attend(q, kv, AttnSpec(0.125), batch)
            assert bool(o[0].isnan().any())
            assert bool(o[1].isfinite().all())
