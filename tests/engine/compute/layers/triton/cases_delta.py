"""The gated delta rule in the interpreter, in float32: reads and states are those of the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.cache.stores.states import LayerStates, StateRuns
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent.delta_rule import by_torch
from engine.compute.layers.triton import delta
from engine.compute.native.delta import DeltaWeights
from engine.config.states import RecurrentShape

CPU = torch.device("cpu")
pytestmark = pytest.mark.content("engine/compute/layers/triton")
SHAPES = [
    RecurrentShape((True,), 2, 4, 16, 16, 4),
    pytest.param(RecurrentShape((True,), 1, 3, 32, 16, 2), marks=pytest.mark.always),
    RecurrentShape((True,), 2, 6, 16, 16, 3, tiled=True),
    RecurrentShape((True,), 2, 2, 48, 96, 4, share_scale=2.0),
    RecurrentShape((True,), 2, 2, 32, 64, 4, channel_decays=True),
    pytest.param(RecurrentShape((True,), 1, 1, 48, 32, 3, channel_decays=True), marks=pytest.mark.always),
    pytest.param(RecurrentShape((True,), 2, 2, 128, 128, 4), marks=pytest.mark.long),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_of_all_kinds_of_runs(shape: RecurrentShape) -> None:
    """Decoding, a prompt's beginning shorter than the convolution, one cut twice, draft tokens; rows that fill up."""
    torch.manual_seed(0)
    heads, values = shape.value_heads, shape.value_heads * shape.value
    weights = DeltaWeights(
        torch.randn(shape.kernel, shape.channels),
        -torch.rand(heads),
        torch.randn(shape.decays),
        torch.rand(shape.value),
        1e-6,
    )
    states = LayerStates(
        torch.randn(9, shape.kernel - 1, shape.channels), torch.randn(9, heads, shape.key, shape.value)
    )
    states.tails[0], states.matrices[0] = 0, 0
    runs = [[0, 1, 1, 2, 1], [1, 3, 0, 3, 1], [3, 4, 4, 5, 1], [4, 9, 5, 6, 0], [9, 11, 6, 7, 0], [11, 15, 7, 0, 0]]
    table = StateRuns(np.array(runs, dtype=np.int64))
    mixed, gates = torch.randn(16, shape.channels + values), 8 * torch.randn(16, heads + shape.decays)
    expected = LayerStates(*(each.clone() for each in states))
    read = by_torch(mixed, gates, weights, shape, expected, table, Numerics(True))
    found = delta.delta_rule(mixed, gates, weights, shape, states, table)
    torch.testing.assert_close(found, read, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(states.matrices, expected.matrices, rtol=1e-4, atol=1e-4)
    assert torch.equal(states.tails, expected.tails)


@pytest.mark.parametrize("channel_decays", [pytest.param(False, marks=pytest.mark.always), True])
def test_few_rows_are_normalised_by_the_kernel_of_the_rule(channel_decays: bool) -> None:
    """To the bit what a kernel of its own makes of them; rows that fill up are zeros."""
    shape = RecurrentShape((True,), 2, 4, 16, 64, 4, channel_decays=channel_decays)
    torch.manual_seed(0)
    heads, values = shape.value_heads, shape.value_heads * shape.value
    by = torch.randn(4, shape.channels), -torch.rand(heads), torch.randn(shape.decays), torch.rand(shape.value)
    weights, table = DeltaWeights(*by, 1e-6), StateRuns(np.array([[0, 1, 1, 2, 1], [1, 3, 0, 3, 1]], dtype=np.int64))
    mixed, gates = torch.randn(4, shape.channels + values), torch.randn(4, heads + shape.decays)
    states = LayerStates(torch.randn(4, 3, shape.channels), torch.randn(4, heads, shape.key, shape.value))
    assert delta.normalises(shape, 3)
    assert not delta.normalises(shape, 9)
    found = []
    for whole in (None, False):
        own = LayerStates(*(each.clone() for each in states))
        found.append((delta.delta_rule(mixed, gates, weights, shape, own, table, whole), *own))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert found[0][0][:3].any()
    assert not found[0][0][3].any()


def test_the_trial() -> None:
    for shape in (
        RecurrentShape((True,), 1, 2, 16, 16, 4),
        RecurrentShape((True,), 2, 2, 16, 16, 4, channel_decays=True),
    ):
        assert delta.compare(shape, torch.float32, CPU, by_torch) is None


def test_a_wrong_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = delta.delta_rule

    def wrong(mixed, gates, weights, *others):  # type: ignore[no-untyped-def]
        return right(mixed, gates, weights._replace(bias=weights.bias + 0.5), *others)

    monkeypatch.setattr(delta, "delta_rule", wrong)
    assert delta.compare(RecurrentShape((True,), 1, 2, 16, 16, 4), torch.float32, CPU, by_torch) is not None


def test_what_it_has_not() -> None:
    shape = RecurrentShape((True,), 1, 2, 24, 16, 4)
    chain = StateRuns(np.array([[0, 1, 1, 2, 1]], dtype=np.int64))
    assert "24" in str(delta.declines(shape, chain, torch.float16, CPU, by_torch))
    assert "tree" in str(
        delta.declines(shape, chain._replace(parents=np.zeros(1, np.int32)), torch.float16, CPU, by_torch)
    )
    in_place = StateRuns(np.array([[0, 1, 1, 1, 1]], dtype=np.int64))
    assert "where it is read" in str(delta.declines(shape, in_place, torch.float16, CPU, by_torch))
