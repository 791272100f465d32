"""Models whose cache has several groups at once say the same text with each of them and without.

In fp32, batch-invariant: prompts that share beginnings, in chunks, answers that give way and come back from host
memory, drafts that are accepted in part.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from engine.protocol import Value
from tests.conformance.hybrid_models import write_states
from tests.conformance.texts import COMMON, PROMPTS, SAMPLINGS
from tests.kit.hosts import Host

GREEDY = SAMPLINGS["greedy"]
LONG = [[*prompt, *COMMON[:150]] for prompt in PROMPTS]
"""Longer than the windows, which are longer than what KIVI does not pack."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """LFM3: layers with states, with a window, and with neither."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "lfm3"
    shape = {"layer_types": ["conv", "sliding_attention", "full_attention"], "num_hidden_layers": 3, "head_dim": 16}
    write_states(folder, "Lfm3", **shape, conv_L_cache=7, sliding_window=150, pad_token_id=0)
    with Host(folder) as host:
        yield host


def groups(host: Host) -> list[str]:
    return [type(group).__name__.removesuffix("Group") for group in host.stepper.cache.manager.groups]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("switches", "without", "names"),
    [
        ({"window_pages": True}, {"window_pages": False}, ["Window", "State"]),
        ({"kv_kind": "kivi", "window_pages": False}, {}, ["Residual", "State"]),
        ({"kv_kind": "kivi", "window_pages": True}, {"window_pages": False}, ["Residual", "Window", "State"]),
    ],
    ids=["windows and states", "recent tokens and states", "all"],
)
def test_the_text_is_that_without(
    host: Host, switches: dict[str, Value], without: dict[str, Value], names: list[str]
) -> None:
    host.fresh(switches | without)
    expected = host.plain(LONG, GREEDY)
    assert len({tuple(text) for text in expected}) > 2
    host.set(**switches)
    assert groups(host) == names
    for budget in (512, 33):
        assert host.texts(LONG, GREEDY, budget=budget) == expected
    assert all(host.cached[id] for id in list(host.cached)[-len(LONG) :]), "the second time much is found"
    host.set(preemption="swap", host_cache=1.0)
    ids = host.ask(LONG, GREEDY, speculation="ngram", draft_length=4)
    assert host.run(100, random.Random(1)) > 2
    assert host.of(ids) == expected
    assert host.stepper.cache.stats.swapped_in
    host.set(preemption="auto", host_cache=0.0)
