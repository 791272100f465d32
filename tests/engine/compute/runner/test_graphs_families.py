"""Every family's steps over frozen batches: what a layer took from the host would be that of the capture."""

from __future__ import annotations

import pytest
import torch

from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.compute.runner.runner import Runner
from tests.engine.compute.runner.graphs_support import Capturing, Player, agree
from tests.gpu.gpu_support import CPU, FAMILIES, PAGES, Weights

CONTEXT = 400
TREE = (-1, 0, 0, 1)


def runner(architecture: str, player: Player | None) -> Runner:
    config, numerics = FAMILIES[architecture], Numerics()
    with torch.inference_mode():
        model = family(architecture).Model(config, Weights(CPU, torch.float32, numerics, False))
    store = new_store(config, PAGES, torch.float32)
    attention = AttentionDispatcher(numerics, [Capturing()])
    return Runner(model, store, attention, CPU, None, CONTEXT, player, numerics)


@pytest.mark.parametrize("architecture", list(FAMILIES))
def test_captured_steps_give_what_eager_ones_give(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # (On a CPU experts are chosen on the host, which a graph that is played by running it again does not mind.)
    monkeypatch.setattr(CausalLM, "uncaptured", "")
    player = Player()
    captured, eager = runner(architecture, player), runner(architecture, None)
    tables = [list(range(1, 41, 2)), list(range(2, 42, 2)), list(range(50, 70))]
    lengths = [0, 0, 0]

    def step(*counts: tuple[int, int], parents: tuple[int, ...] | None = None) -> None:
        rows = []
        for sequence, count in counts:
            start = lengths[sequence]
            tokens = [(7 * i + 31 * sequence) % 200 for i in range(start, start + count)]
            rows.append(SequenceRows(tokens, start, tables[sequence], count, parents))
            lengths[sequence] += 1 if parents else count
        agree(captured.forward(rows), eager.forward(rows))

    step((0, 37))
    step((1, 70))
    step((2, 11))
    # Each form often enough to be captured, over texts that pass the windows and LongRoPE's boundary meanwhile.
    for _ in range(4):
        step((0, 1), (1, 1), (2, 1))
        step((2, 1))
        step((0, 5))
        step((1, 3), (2, 2))
        step((0, 4), parents=TREE)
    assert captured.eager == ""
    assert player.captures == 5
    assert player.replays >= 10
