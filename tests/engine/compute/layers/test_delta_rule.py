"""The gated delta rule: its forms against each other, and against transformers' two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.kimi_linear.modeling_kimi_linear import (
    chunk_kimi_delta_attention,
    recurrent_kimi_delta_attention,
)
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from engine.cache.stores.states import LayerStates, StateRuns
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent.delta_rule import RULE, _StepRows, by_chunks, delta_rule
from engine.compute.layers.recurrent.recurrence import CHUNK, row_by_row
from engine.compute.native.delta import DeltaWeights
from engine.compute.native.library import NativeLibrary, find_with
from engine.compute.runner.inputs import runs_of, state_runs
from engine.config.states import RecurrentShape
from tests.engine.compute.native.instruction_sets import at_hand

each_set = pytest.mark.parametrize("library", [find_with(name).library for name in at_hand()], ids=at_hand())
SHAPES = (
    RecurrentShape((True,), 2, 4, 16, 16, 4),
    RecurrentShape((True,), 2, 6, 32, 48, 2, tiled=True),
    RecurrentShape((True,), 3, 3, 128, 128, 5),
    RecurrentShape((True,), 3, 3, 48, 96, 4, share_scale=2.0),
    RecurrentShape((True,), 2, 2, 32, 48, 4, channel_decays=True),
)


class Layer(NamedTuple):
    shape: RecurrentShape
    weights: DeltaWeights
    states: LayerStates

    @classmethod
    def of(cls, shape: RecurrentShape, dtype: torch.dtype = torch.float32, slots: int = 8) -> Layer:
        weights = DeltaWeights(
            torch.randn(shape.kernel, shape.channels),
            -torch.rand(shape.value_heads),
            torch.randn(shape.decays),
            torch.rand(shape.value) + 0.5,
            1e-6,
        )
        tails = torch.randn(slots, shape.kernel - 1, shape.channels).to(dtype)
        states = LayerStates(tails, torch.randn(slots, shape.value_heads, shape.key, shape.value))
        return cls(shape, weights, states)

    def copy(self) -> Layer:
        return self._replace(states=LayerStates(*(each.clone() for each in self.states)))

    def inputs(self, rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        width = self.shape.channels + self.shape.value_heads * self.shape.value
        gates = self.shape.value_heads + self.shape.decays
        return torch.randn(rows, width).to(dtype), torch.randn(rows, gates).to(dtype)

    def run(
        self,
        inputs: tuple[Tensor, Tensor],
        runs: StateRuns,
        library: NativeLibrary | None = None,
        invariant: bool = True,
    ) -> Tensor:
        return delta_rule(*inputs, self.weights, self.shape, self.states, runs, Numerics(invariant), library)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rows(shape: RecurrentShape, count: int) -> _StepRows:
    q, k = (torch.nn.functional.normalize(torch.randn(count, shape.value_heads, shape.key), dim=-1) for _ in "qk")
    v = torch.randn(count, shape.value_heads, shape.value)
    g, b = -torch.rand(count, shape.decays), torch.rand(count, shape.value_heads) * shape.share_scale
    g = 4 * g.unflatten(1, (shape.value_heads, -1)) if shape.channel_decays else g
    return _StepRows(q * shape.key**-0.5, k, v, g, b)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, CHUNK - 1, 2 * CHUNK + 2])
def test_both_forms_are_those_of_transformers(shape: RecurrentShape, count: int) -> None:
    given, state = rows(shape, count), torch.randn(shape.value_heads, shape.key, shape.value)
    q = given.q * shape.key**0.5
    theirs = {"query": q[None], "key": given.k[None], "value": given.v[None], "g": given.g[None], "beta": given.b[None]}
    forms = torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule
    if shape.channel_decays:
        forms = chunk_kimi_delta_attention, recurrent_kimi_delta_attention
    for form in forms:
        read, after = form(**theirs, initial_state=state[None], output_final_state=True)
        for found, moved in (by_chunks(given, state), row_by_row(given, state, RULE)):
            torch.testing.assert_close(found, read[0], rtol=2e-5, atol=2e-5)
            torch.testing.assert_close(moved, after[0], rtol=2e-5, atol=2e-5)


RUNS = [
    [StateRun(1, 1, 2)],
    [StateRun(5, 0, 3)],
    [StateRun(20, 1, 4), StateRun(70, 4, 5)],
    [StateRun(1, 6, 7), StateRun(4, 7, 0)],
]


@each_set
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_native_code_computes_what_the_reference_does(
    shape: RecurrentShape, dtype: torch.dtype, library: NativeLibrary
) -> None:
    """Sequences of all kinds in one step: decoding, a prompt's beginning, one cut in two, draft tokens."""
    layer = Layer.of(shape, dtype)
    other, runs = layer.copy(), runs_of(RUNS)
    inputs = layer.inputs(int(runs.runs[-1, 1]), dtype)
    expected, found = layer.run(inputs, runs), other.run(inputs, runs, library)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(other.states.tails, layer.states.tails)
    torch.testing.assert_close(other.states.matrices, layer.states.matrices, rtol=1e-4, atol=1e-4)
    untouched = [0, 1, 6]
    assert torch.equal(other.states.matrices[untouched], layer.states.matrices[untouched])


@each_set
def test_taps_that_native_code_has_and_one_more(library: NativeLibrary) -> None:
    for kernel, serves in ((64, True), (65, False)):
        layer = Layer.of(RecurrentShape((True,), 1, 1, 16, 16, kernel))
        assert library.has_delta_rule(layer.shape, torch.float32) is serves
        inputs, runs = layer.inputs(3), runs_of([[StateRun(3, 1, 2)]])
        found = layer.copy().run(inputs, runs, library)
        torch.testing.assert_close(found, layer.run(inputs, runs), rtol=1e-4, atol=1e-4)


def tree(parents: list[int]) -> StateRuns:
    """A sequence of one known row and a draft tree, whose rows follow each other as ``parents`` of SequenceRows says,
    between two other sequences."""
    lone = SequenceRows([0] * 3, 0, [1], states=[StateRun(3, 0, 4)])
    drafts = SequenceRows(
        [0] * len(parents), 5, [1], parents=parents, states=[StateRun(1, 1, 2), StateRun(len(parents) - 1, 2, 0)]
    )
    return state_runs(
        [lone, drafts, lone._replace(states=[StateRun(3, 0, 5)])], [0, 3, 3 + len(parents), 6 + len(parents)]
    )


@each_set
@pytest.mark.parametrize("parents", [[-1, 0, 0, 1, 1, 2, 5, 4, 7, 8, 9], [-1, 0, 1, 2], [-1, 0, 0, 0]])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[4]])
def test_every_row_of_a_tree_goes_on_from_its_own_path(
    shape: RecurrentShape, parents: list[int], library: NativeLibrary
) -> None:
    layer = Layer.of(shape)
    runs = tree(parents)
    inputs = layer.inputs(int(runs.runs[-1, 1]))
    for code in (None, library):
        found = layer.copy().run(inputs, runs, code)
        for row in range(len(parents)):
            path, at = [row], row
            while parents[at] >= 0:
                at = parents[at]
                path.insert(0, at)
            taken = torch.tensor(path) + 3
            alone = layer.copy()
            mine = alone.run((inputs[0][taken], inputs[1][taken]), runs_of([[StateRun(len(path), 1, 2)]]), code)
            torch.testing.assert_close(found[3 + row], mine[-1], rtol=1e-5, atol=1e-5)


@each_set
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[4]])
def test_a_row_has_the_same_bits_however_a_text_is_cut(shape: RecurrentShape, library: NativeLibrary) -> None:
    """Read whole, cut anywhere, row by row, as draft tokens and then replayed: the same results and states."""
    layer = Layer.of(shape)
    inputs = layer.inputs(40)
    for code in (None, library):
        whole = layer.copy()
        expected = whole.run(inputs, runs_of([[StateRun(40, 0, 1)]]), code)
        for cut in (1, 7, 16, 39):
            parts = layer.copy()
            found = parts.run(inputs, runs_of([[StateRun(cut, 0, 2), StateRun(40 - cut, 2, 1)]]), code)
            assert torch.equal(found, expected)
            assert torch.equal(parts.states.matrices[1], whole.states.matrices[1])
            assert torch.equal(parts.states.tails[1], whole.states.tails[1])
        drafted = layer.copy()
        first = drafted.run(inputs, runs_of([[StateRun(30, 0, 2), StateRun(10, 2, 0)]]), code)
        assert torch.equal(first, expected)
        assert torch.equal(drafted.states.matrices[1], layer.states.matrices[1])
        drafted.run((inputs[0][30:], inputs[1][30:]), runs_of([[StateRun(10, 2, 1)]]), code)
        assert torch.equal(drafted.states.matrices[1], whole.states.matrices[1])


def test_rows_that_fill_up_a_step_are_left_alone() -> None:
    layer = Layer.of(SHAPES[0])
    inputs, runs = layer.inputs(16), runs_of([[StateRun(3, 0, 1)]])
    found = layer.copy().run(inputs, runs)
    assert torch.equal(found[:3], layer.run((inputs[0][:3], inputs[1][:3]), runs))
    assert not found[3:].any()


def test_runs_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="go on from a state"):
        state_runs([SequenceRows([1], 5, [1])], [0, 1])
    with pytest.raises(ValueError, match="do not cover the 2 rows"):
        state_runs([SequenceRows([1, 2], 5, [1], states=[StateRun(1, 1, 2)])], [0, 2])
    alone = state_runs([SequenceRows([1, 2], 0, [1])], [0, 2])
    assert alone.drafts
    assert np.array_equal(alone.runs, [[0, 2, 0, 0, 1]])
