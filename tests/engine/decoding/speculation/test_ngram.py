"""The index finds what a scan finds, and never the suffix itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

import pytest

from engine.decoding.speculation.ngram.proposer import N_MAX, N_MIN, NgramIndex, NgramProposer
from engine.protocol import Sampling
from tests.contracts.proposer import GREEDY, Make, ProposerContract
from tests.engine.decoding.speculation.decoding import Decoding
from tests.engine.decoding.speculation.target_support import EOS, small_model


class TestNgram(ProposerContract):
    """The greedy texts of this model repeat themselves soon."""

    eos, samples, reads = EOS, False, False
    warm, samplings = 20, (GREEDY, GREEDY, Sampling(temperature=0.0, frequency_penalty=0.2))
    without: ClassVar[Mapping[str, str]] = {
        "test_nothing_follows_the_end_of_the_text": "it copies a text, in which an end may stand",
    }

    @pytest.fixture
    def make(self) -> Make:
        return lambda: Decoding(small_model(quiet=0.1), lambda host: NgramProposer())


def scanned(tokens: list[int], count: int) -> tuple[int, ...]:
    """The definition: longest suffix with an earlier occurrence, most recent occurrence, what followed it there."""
    for n in range(min(N_MAX, len(tokens) - 1), N_MIN - 1, -1):
        suffix = tokens[-n:]
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == suffix:
                text = list(tokens)
                while len(text) < start + n + count:
                    text.append(text[start + n + len(text) - len(tokens)])
                return tuple(text[start + n : start + n + count])
    return ()


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_a_scan_however_the_text_grows(seed: int) -> None:
    rng = random.Random(seed)
    tokens: list[int] = []
    index = NgramIndex()
    for _ in range(40):
        tokens += [rng.randrange(rng.choice([2, 3, 9])) for _ in range(rng.randint(1, 5))]
        index.extend(tokens)
        assert index.lookup(tokens, 6) == scanned(tokens, 6)


def test_a_text_without_repetition_matches_nothing() -> None:
    index = NgramIndex()
    tokens = list(range(50))
    index.extend(tokens)
    assert index.lookup(tokens, 4) == ()
    assert NgramIndex().lookup([], 4) == ()


def test_the_most_recent_of_the_longest_matches_wins() -> None:
    tokens = [1, 2, 3, 7, 1, 2, 3, 8, 9, 2, 3, 5, 1, 2, 3]
    index = NgramIndex()
    index.extend(tokens)
    assert index.lookup(tokens, 2) == (8, 9)


def test_a_loop_is_drafted_whole() -> None:
    tokens = [4, 5] * 4
    index = NgramIndex()
    index.extend(tokens)
    assert index.lookup(tokens, 7) == (4, 5, 4, 5, 4, 5, 4)


def test_growing_by_one_token_enters_one_place() -> None:
    index = NgramIndex()
    tokens = list(range(1000))
    index.extend(tokens)
    before = len(index._places)
    index.extend([*tokens, 1000])
    assert len(index._places) - before == N_MAX - N_MIN + 1
