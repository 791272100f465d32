"""The small hybrid that comes with the program: what it says with drafts of its own layer, and tokens a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.protocol import ChatMessage, Sampling
from tests.kit.hosts import Host

HYBRID = Path(__file__).parents[2] / "assets" / "demo" / "kvasir-hybrid"
TOLD = ["What is the KV cache?", "What is speculative decoding?", "How do I load a model?"]
COPIED = "Repeat this text: the quick brown fox jumps over the lazy dog"
GREEDY = Sampling(temperature=0.0, max_tokens=48)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    torch.set_num_threads(1)
    with Host(HYBRID) as host:
        yield host


def asked(host: Host, question: str, **switches: object) -> tuple[list[int], float]:
    """The answer, and its tokens a step."""
    assert host.engine.loaded is not None
    prompt = host.engine.loaded.encode_prompt([ChatMessage.of("user", question)])
    ids = host.ask([prompt], GREEDY, **switches)
    steps = 0
    while host.engine.step():
        steps += bool(host.answers.get((ids[0], 0)))
    found = host.of(ids)[0]
    return found, len(found) / max(1, steps)


def test_it_brings_a_multi_token_layer(host: Host) -> None:
    assert host.engine.loaded is not None
    assert host.engine.loaded.card.heads == ["mtp"]
    assert host.engine.loaded.model.config.recurrent.layers == (True, True, True, False)


def test_its_layer_drafts_and_changes_nothing(host: Host) -> None:
    """Prose of its manual: more than two tokens a step; a given text: at least four."""
    for questions, least in ((TOLD, 2.0), ([COPIED], 4.0)):
        rates = []
        for question in questions:
            plain, one = asked(host, question, speculation="off")
            drafted, rate = asked(host, question, speculation="mtp", draft_length=7, ngram_first=False)
            assert drafted == plain
            assert one == 1.0
            rates.append(rate)
        assert sum(rates) / len(rates) >= least, rates


def test_it_repeats_a_short_text(host: Host) -> None:
    found, _ = asked(host, COPIED)
    assert host.engine.loaded is not None
    assert "quick brown fox jumps over the lazy dog" in host.engine.loaded.files.tokenizer.decode(found)


def test_a_second_turn_goes_on_from_a_state(host: Host) -> None:
    assert host.engine.loaded is not None
    turns = [ChatMessage.of("user", TOLD[0])]
    first = host.engine.loaded.encode_prompt(turns)
    ids = host.ask([first], GREEDY)
    host.run()
    second = [*first, *host.of(ids)[0], *first]
    ids = host.ask([second], GREEDY)
    host.run()
    assert host.cached[ids[0]] == (len(second) - len(first) - 1) // 16 * 16
