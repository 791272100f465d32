"""A graph without a GPU: it is played by running the frozen batch again."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.batch import ForwardOutput
from engine.compute.runner.graphs import Graphs
from engine.compute.runner.recorders import Captured, CudaRecorder, Forward, GraphRecorder
from engine.compute.runner.runner import Runner

CONTEXT = 400


class Capturing(ReferenceAttention):
    """It reads nothing but the tensors of the batch, so a frozen one is as good as another."""

    captures = True


@dataclass
class Player(GraphRecorder):
    """Plays a graph by running what was captured again; what it gave lies where it lay at the capture."""

    traits = CudaRecorder.traits

    error: Exception | None = None
    replays: int = 0
    captures: int = 0
    pointers: list[int] = field(default_factory=list)

    def record(self, run: Forward) -> Captured:
        if self.error is not None:
            raise self.error
        self.captures += 1
        out = run()
        kept = ForwardOutput(out.logits.clone(), {layer: states.clone() for layer, states in out.hidden.items()})

        def replay() -> None:
            self.replays += 1
            again = run()
            kept.logits.copy_(again.logits)
            for layer, states in again.hidden.items():
                kept.hidden[layer].copy_(states)

        return Captured(replay, kept)


def graphs_of(runner: Runner) -> Graphs:
    assert runner.graphs is not None
    return runner.graphs


def agree(found: ForwardOutput, expected: ForwardOutput) -> None:
    torch.testing.assert_close(found.logits, expected.logits, atol=2e-5, rtol=1e-5)
    assert found.hidden.keys() == expected.hidden.keys()
    for layer, states in expected.hidden.items():
        torch.testing.assert_close(found.hidden[layer], states, atol=2e-5, rtol=1e-5)


TREE = (-1, 0, 0, 1, 2)
