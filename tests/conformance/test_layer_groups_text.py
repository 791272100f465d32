"""A model whose layers differ (Gemma 4: widths, windows, shared caches) says the same text whatever the cache does.

In fp32, batch-invariant, as in test_cache_equality.py: chunks, prompts that begin alike, every kind of KV cache,
preemption, and drafts by n-grams, by some of its own layers and by a small model of its kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from tests.conformance.gemma_models import SHAPE, SMALL, write_gemma
from tests.conformance.texts import PROMPTS, SAMPLINGS, VARIANTS, cases
from tests.kit.hosts import Host


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    write_gemma(folder / "gemma", SHAPE)
    write_gemma(folder / "small", SMALL)
    with Host(folder / "gemma", draft=str(folder / "small")) as host:
        yield host


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "sampling"),
    cases("16bit-greedy", "kivi-seeded", "quest-seeded", "window-seeded", by=tuple(SAMPLINGS)),
)
def test_sharing_and_chunks(host: Host, variant: str, sampling: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS[sampling])
    assert len({tuple(text) for text in expected}) > 2
    for budget in (512, 33):
        assert host.texts(PROMPTS, SAMPLINGS[sampling], budget=budget) == expected


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("variant", ["16bit", pytest.param("int4", marks=pytest.mark.long)])
def test_preemption_at_random_moments(host: Host, variant: str, mode: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"])
    host.set(preemption=mode, host_cache=1.0)
    ids = host.ask(PROMPTS, SAMPLINGS["seeded"])
    assert host.run(100, random.Random(1)) > 2
    assert host.of(ids) == expected
    host.set(preemption="auto", host_cache=0.0)


@pytest.mark.parametrize("method", ["ngram", "exit", "skip", "draft"])
@pytest.mark.parametrize("variant", ["16bit", pytest.param("quest", marks=pytest.mark.long)])
def test_drafts_change_nothing(host: Host, method: str, variant: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"])
    drafted: set[str] = set()
    for length in (1, 4):
        ids = host.ask(PROMPTS, SAMPLINGS["seeded"], speculation=method, draft_length=length)
        host.run()
        assert host.of(ids) == expected
        drafted |= set(host.sources(ids))
    assert drafted > {"target"}
