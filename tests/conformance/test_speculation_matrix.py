"""Speculation on is speculation off, to the token: who drafts x sampling x batch x cache, on the bundled model.

In fp32 with batch-invariant arithmetic. `make test` takes each value, `make test-all` all combinations.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.protocol import Sampling
from tests.conformance.texts import VARIANTS
from tests.kit.hosts import Host
from tests.kit.pairs import each_value

BUNDLED = Path(__file__).parents[2] / "assets" / "demo"
PROPOSERS = ("ngram", "draft", "exit", "skip", "medusa", "eagle", "auto")
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, max_tokens=20),
    "warm": Sampling(temperature=0.7, top_p=0.9, seed=5, max_tokens=20),
    "hot": Sampling(
        temperature=1.3,
        top_p=0.95,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.1,
        logit_bias={40: 1.5, 41: -2.0},
        seed=6,
        max_tokens=20,
    ),
    "stopped": Sampling(temperature=0.7, seed=7, stop=["he", "ag"], max_tokens=20),
}
TEXT = (
    "A page holds the keys and values of sixteen tokens. A page holds the keys and values of sixteen tokens, and a "
    "sequence holds a table of pages. Why does a model guess ahead? Checking many tokens costs little more than "
    "computing one, because the weights must be read anyway. "
)
LENGTHS = (33, 16, 15, 17, 31, 47, 150, 64)
"""Prompts end before, at and behind the end of a page; one is longer than what KIVI keeps unpacked."""


@pytest.fixture(scope="module")
def host() -> Host:
    torch.set_num_threads(1)
    return Host(BUNDLED / "kvasir-guide", draft=str(BUNDLED / "kvasir-guide-draft"))


PLAIN: dict[tuple[str, int, str], list[list[int]]] = {}


def prompts(host: Host, batch: int) -> list[list[int]]:
    loaded = host.engine.loaded
    assert loaded is not None
    assert loaded.files is not None
    ids = loaded.files.tokenizer.encode(TEXT * 3)
    return [ids[3 * b : 3 * b + LENGTHS[b]] for b in range(batch)]


def plain(host: Host, sampling: str, batch: int, variant: str) -> list[list[int]]:
    key = (sampling, batch, variant)
    if key not in PLAIN:
        PLAIN[key] = host.texts(prompts(host, batch), SAMPLINGS[sampling])
    return PLAIN[key]


@pytest.mark.slow
@each_value(
    seldom=lambda variant, **_: variant == "window",  # what gives way is read again from its beginning
    proposer=PROPOSERS,
    sampling=list(SAMPLINGS),
    batch=(1, 8),
    variant=list(VARIANTS),
)
def test_on_is_off(host: Host, proposer: str, sampling: str, batch: int, variant: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = plain(host, sampling, batch, variant)
    for length, budget, disturbed in ((4, 512, None), (0, 64, None), (3, 256, random.Random(1))):
        drafting = {"speculation": proposer, "draft_length": length, "ngram_first": length != 4}
        ids = host.ask(prompts(host, batch), SAMPLINGS[sampling], **drafting)
        host.run(budget, disturbed)
        assert host.of(ids) == expected, (length, budget, disturbed)


@pytest.mark.slow
@each_value(mode=["ratio", "typical"], proposer=PROPOSERS[:-1])
def test_other_ways_of_judging(host: Host, proposer: str, mode: str) -> None:
    """At temperature 0 all ways agree; above it the words are others, and follow from the drafts and the seed. Each
    kind of draft holds at times: otherwise the equalities above would say nothing.

    A second run may draft otherwise where heads do: Medusa's trees follow what held lately, and an EAGLE head that
    finds a prefix in the cache goes on from another last entry.
    """
    host.fresh(VARIANTS["16bit"].switches)
    drafting = {"speculation": proposer, "draft_length": 4, "ngram_first": False, "acceptance": mode}
    cold = host.ask(prompts(host, 8), SAMPLINGS["greedy"], **drafting)
    host.run()
    assert host.of(cold) == plain(host, "greedy", 8, "16bit")
    assert {proposer, "corrected"} <= set(host.sources(cold))
    warm = []
    for _ in range(2):
        ids = host.ask(prompts(host, 8), SAMPLINGS["warm"], **drafting)
        host.run()
        warm.append(host.of(ids))
    # What n-grams draft is rarely unlikely enough for typical acceptance to keep what would not have been drawn.
    assert warm[0] != plain(host, "warm", 8, "16bit") or (mode, proposer) == ("typical", "ngram")
    assert warm[0] == warm[1] or proposer in ("medusa", "eagle")
    assert proposer in host.sources(ids)
