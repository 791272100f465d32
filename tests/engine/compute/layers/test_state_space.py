"""State space duality: its forms against each other, and against transformers' two; and convolutions of few rows."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import (
    mamba2_chunk_scan,
    mamba2_selective_state_update,
)

from engine.cache.stores.states import LayerStates, StateRuns
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent import recurrence
from engine.compute.layers.recurrent.convolution import convolve
from engine.compute.layers.recurrent.recurrence import CHUNK, row_by_row
from engine.compute.layers.recurrent.state_space import RULE, by_chunks, state_space
from engine.compute.native.library import NativeLibrary, find_with
from engine.compute.native.state_space import MambaWeights
from engine.compute.runner.inputs import runs_of, state_runs
from engine.config.states import MambaShape
from tests.engine.compute.native.instruction_sets import at_hand

each_code = pytest.mark.parametrize(
    "library", [None, *(find_with(name).library for name in at_hand())], ids=["torch", *at_hand()]
)
SHAPES = (
    MambaShape((True,), heads=4, width=16, groups=2, state=8, kernel=4),
    MambaShape((True,), heads=6, width=5, groups=1, state=7, kernel=2, limits=(0.3, 1.0)),
    MambaShape((True,), heads=3, width=64, groups=3, state=128, kernel=5, convolution_bias=False),
)


class Layer(NamedTuple):
    shape: MambaShape
    weights: MambaWeights
    states: LayerStates

    @classmethod
    def of(cls, shape: MambaShape, slots: int = 20) -> Layer:
        heads = shape.heads
        bias = torch.randn(shape.channels) if shape.convolution_bias else None
        decay, norm = -torch.rand(heads), torch.rand(shape.groups, shape.inner // shape.groups)
        taps = torch.randn(shape.kernel, shape.channels)
        weights = MambaWeights(taps, bias, decay, torch.randn(heads), torch.randn(heads), norm)
        tails = torch.randn(slots, shape.kernel - 1, shape.channels)
        return cls(shape, weights, LayerStates(tails, torch.randn(slots, heads, shape.state, shape.width)))

    def copy(self) -> Layer:
        return self._replace(states=LayerStates(*(each.clone() for each in self.states)))

    def inputs(self, rows: int) -> tuple[Tensor, Tensor]:
        return torch.randn(rows, self.shape.channels), torch.randn(rows, self.shape.heads)

    def run(
        self,
        inputs: tuple[Tensor, Tensor],
        runs: StateRuns,
        invariant: bool = True,
        library: NativeLibrary | None = None,
    ) -> Tensor:
        return state_space(*inputs, self.weights, self.shape, self.states, runs, Numerics(invariant), library)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 2])
def test_both_forms_are_those_of_transformers(shape: MambaShape, count: int) -> None:
    """Who have [width, state] where a matrix is [state, width] here."""
    x, steps = torch.randn(count, shape.heads, shape.width), torch.rand(count, shape.heads)
    b, c = torch.randn(2, count, shape.groups, shape.state)
    decay, state = -torch.rand(shape.heads), torch.randn(shape.heads, shape.state, shape.width)
    chunks, after = mamba2_chunk_scan(
        x[None], steps[None], decay, b[None], c[None], chunk_size=16, initial_states=state.mT[None].clone(),
        return_final_states=True,
    )  # fmt: skip
    moved = state.mT[None].clone()
    rows = [
        mamba2_selective_state_update(
            moved, x[None, t], steps[None, t, :, None].expand(-1, -1, shape.width),
            decay[:, None, None].expand(-1, shape.width, shape.state), b[None, t], c[None, t],
        )[0] for t in range(count)
    ]  # fmt: skip
    given = c, b, x * steps[..., None], steps * decay
    for found, last in (by_chunks(given, state), row_by_row(given, state, RULE)):
        for read, final in ((chunks[0], after[0]), (torch.stack(rows), moved[0])):
            torch.testing.assert_close(found, read, rtol=2e-5, atol=2e-4)
            torch.testing.assert_close(last, final.mT, rtol=2e-5, atol=2e-5)


def test_native_code_computes_what_the_reference_does() -> None:
    """Sequences of all kinds in one step: decoding, a prompt's beginning, one cut in two, draft tokens."""
    runs = runs_of([[StateRun(1, 1, 2)], [StateRun(5, 0, 3)], [StateRun(20, 1, 4), StateRun(70, 4, 5)],
                    [StateRun(1, 6, 7), StateRun(4, 7, 0)]])  # fmt: skip
    for shape in (SHAPES[0], SHAPES[2], MambaShape((True,), heads=2, width=144, groups=1, state=5, kernel=2)):
        layer = Layer.of(shape)
        inputs, expected = layer.inputs(101), layer.copy()
        wanted = expected.run(inputs, runs)
        for name in at_hand():
            other, library = layer.copy(), find_with(name).library
            assert library is not None
            torch.testing.assert_close(other.run(inputs, runs, library=library), wanted, rtol=1e-4, atol=1e-3)
            assert torch.equal(other.states.tails, expected.states.tails)
            torch.testing.assert_close(other.states.matrices, expected.states.matrices, rtol=1e-4, atol=1e-4)
            untouched = [0, 1, 6, *range(8, 20)]
            assert torch.equal(other.states.matrices[untouched], layer.states.matrices[untouched])
            narrow = Layer.of(SHAPES[1])
            given = narrow.inputs(101)
            left = library.state_space(*given, narrow.weights, narrow.shape, narrow.states.matrices, runs)
            assert left is None, "heads of 5 are left to torch"


@each_code
@pytest.mark.parametrize("parents", [[-1, 0, 0, 1, 1, 2, 5, 4, 7, 8, 9], [-1, 0, 1, 2], [-1, 0, 0, 0]])
def test_every_row_of_a_tree_goes_on_from_its_own_path(parents: list[int], library: NativeLibrary | None) -> None:
    layer, count = Layer.of(SHAPES[0]), len(parents)
    drafts = SequenceRows([0] * count, 5, [1], parents=parents, states=[StateRun(1, 1, 2), StateRun(count - 1, 2, 0)])
    runs = state_runs([SequenceRows([0] * 3, 0, [1], states=[StateRun(3, 0, 4)]), drafts], [0, 3, 3 + count])
    inputs = layer.inputs(3 + count)
    found = layer.copy().run(inputs, runs, library=library)
    for row in range(count):
        path, at = [row], row
        while parents[at] >= 0:
            at = parents[at]
            path.insert(0, at)
        taken = torch.tensor(path) + 3
        own = runs_of([[StateRun(len(path), 1, 2)]])
        alone = layer.copy().run((inputs[0][taken], inputs[1][taken]), own, library=library)
        assert torch.equal(found[3 + row], alone[-1])


@each_code
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_however_a_text_is_cut(shape: MambaShape, library: NativeLibrary | None) -> None:
    """Read whole, cut anywhere, as draft tokens and then replayed: the same results and states."""
    layer = Layer.of(shape)
    inputs, whole = layer.inputs(40), layer.copy()
    expected = whole.run(inputs, runs_of([[StateRun(40, 0, 1)]]), library=library)
    for cut in range(1, 40):
        parts = layer.copy()
        cuts = runs_of([[StateRun(cut, 0, 2), StateRun(40 - cut, 2, 1)]])
        assert torch.equal(parts.run(inputs, cuts, library=library), expected)
        for found, want in zip(parts.states, whole.states, strict=True):
            assert torch.equal(found[1], want[1])
    drafted = layer.copy()
    drafts = runs_of([[StateRun(30, 0, 2), StateRun(10, 2, 0)]])
    assert torch.equal(drafted.run(inputs, drafts, library=library), expected)
    assert torch.equal(drafted.states.matrices[1], layer.states.matrices[1])
    drafted.run((inputs[0][30:], inputs[1][30:]), runs_of([[StateRun(10, 2, 1)]]), library=library)
    assert torch.equal(drafted.states.matrices[1], whole.states.matrices[1])


@pytest.mark.parametrize("at_once", [1 << 30, 1, 3])
def test_sequences_of_one_row_go_together(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several portions of matrices, and with some that leave no state: as each does alone."""
    layer, count = Layer.of(SHAPES[0]), 7
    monkeypatch.setattr(recurrence, "TOGETHER_BYTES", at_once * layer.states.matrices[0].nbytes)
    inputs, together = layer.inputs(count), layer.copy()
    runs = [StateRun(1, 1 + i, 0 if i % 3 == 2 else 10 + i) for i in range(count)]
    found = together.run(inputs, runs_of([[run] for run in runs]), invariant=False)
    for i, run in enumerate(runs):
        alone = layer.copy()
        mine = alone.run((inputs[0][i : i + 1], inputs[1][i : i + 1]), runs_of([[run]]))
        torch.testing.assert_close(found[i], mine[0], rtol=1e-5, atol=1e-5)
        for moved, want in zip(together.states, alone.states, strict=True):
            torch.testing.assert_close(moved[10 + i], want[10 + i], rtol=1e-5, atol=1e-5)
            assert torch.equal(moved[:10], want[:10])


@pytest.mark.parametrize("invariant", [False, True])
def test_a_draft_token_goes_on_from_the_known_one_before_it(invariant: bool) -> None:
    """Two runs of one row each, of which the second reads what the first writes."""
    layer = Layer.of(SHAPES[0])
    inputs = layer.inputs(2)
    expected = layer.copy().run(inputs, runs_of([[StateRun(2, 1, 3)]]))
    found = layer.copy().run(inputs, runs_of([[StateRun(1, 1, 2), StateRun(1, 2, 0)]]), invariant)
    torch.testing.assert_close(found, expected)


def test_a_convolution_of_two_runs_of_a_row_each() -> None:
    inputs, taps, tails = torch.randn(2, 8), torch.randn(4, 8), torch.randn(4, 3, 8)
    expected = convolve(inputs, taps, tails.clone(), runs_of([[StateRun(2, 1, 3)]]))
    assert torch.equal(convolve(inputs, taps, tails, runs_of([[StateRun(1, 1, 2), StateRun(1, 2, 0)]])), expected)


@pytest.mark.parametrize("name", at_hand())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_native_convolutions_have_the_bits_of_torch(name: str, dtype: torch.dtype) -> None:
    """Of runs and trees of all kinds; rows of inputs may lie apart."""
    library, taps, tails = find_with(name).library, torch.randn(4, 272), torch.randn(9, 3, 272).to(dtype)
    assert library is not None
    apart = torch.randn(40, 300).to(dtype)[:, 7:279]
    plain = runs_of([[StateRun(1, 1, 2)], [StateRun(5, 0, 3)], [StateRun(2, 1, 4), StateRun(9, 4, 5)],
                     [StateRun(1, 6, 6)], [StateRun(2, 7, 7)], [StateRun(20, 2, 0)]])  # fmt: skip
    tree = SequenceRows([0] * 5, 5, [1], parents=[-1, 0, 0, 1, 2], states=[StateRun(1, 1, 2), StateRun(4, 2, 0)])
    for runs in (plain, state_runs([tree], [0, 5])):
        inputs, expected, found = apart[: runs.rows], tails.clone(), tails.clone()
        wanted = convolve(inputs, taps, expected, runs)
        assert torch.equal(convolve(inputs, taps, found, runs, library), wanted)
        assert torch.equal(found, expected)
        bias = torch.randn(272)
        silu = library.convolve(inputs, taps, tails.clone(), runs, bias, silu=True)
        assert silu is not None
        torch.testing.assert_close(silu, torch.nn.functional.silu(wanted + bias), rtol=1e-6, atol=1e-6)
    assert library.has_convolution(272, 64)
    assert not library.has_convolution(272, 65)
    assert library.convolve(apart[:1], torch.randn(65, 272), torch.randn(9, 64, 272).to(dtype), plain) is None
    for inputs, rows in ((apart[:1].double(), tails), (apart[:1, :8], tails[..., :8])):
        assert library.convolve(inputs, taps[:, : inputs.shape[1]], rows, runs_of([[StateRun(1, 1, 2)]])) is None


@pytest.mark.parametrize("name", at_hand())
def test_native_norms_of_groups(name: str) -> None:
    library, weight = find_with(name).library, torch.rand(3, 48)
    assert library is not None
    read, gates = torch.randn(5, 144), torch.randn(5, 200)
    for dtype, rounding in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        gate = gates.to(dtype)[:, 40:184]
        gated = (read * torch.nn.functional.silu(gate.float())).unflatten(1, (3, 48)).double()
        wanted = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + 1e-5) * weight
        found = library.gated_norm(read, gate, weight, 1e-5)
        assert found is not None
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), wanted.flatten(1), rtol=2 * rounding, atol=rounding)
        alone = library.gated_norm(read[2:3], gate[2:3], weight, 1e-5)
        assert alone is not None
        assert torch.equal(alone[0], found[2])
    assert library.gated_norm(read, gates[:, :144], torch.rand(18, 8), 1e-5) is None
