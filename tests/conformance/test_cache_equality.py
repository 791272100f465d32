"""Whatever the cache does, the text is the same: a real model in fp32 with batch-invariant arithmetic.

What is compared with is the same kind of cache and the same page policy without any sharing: one prompt after another,
each read in one step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from engine.cache.pool import PagePool
from tests.conformance.texts import PROMPTS, SAMPLINGS, VARIANTS, cases, restarted
from tests.kit.checkpoints import write_llama
from tests.kit.hosts import Host


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "target"
    write_llama(folder, num_hidden_layers=3, hidden_size=128)
    return folder


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    with Host(folder) as host:
        yield host


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "sampling"), cases("16bit-greedy", "16bit-seeded", "kivi-seeded", "window-seeded", by=tuple(SAMPLINGS))
)
def test_sharing_and_chunks(host: Host, variant: str, sampling: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS[sampling])
    for budget in (512, 33, 16):
        assert host.texts(PROMPTS, SAMPLINGS[sampling], budget=budget) == expected
        found = [host.cached[id] for id in list(host.cached)[-len(PROMPTS) :]]
        if VARIANTS[variant].shares is not None:
            assert any(found) == VARIANTS[variant].shares
        if budget == 33:
            host.stepper.cache.tree.evict(1 << 30)


@pytest.mark.slow
@pytest.mark.parametrize("variant", cases("16bit", "quest"))
def test_several_answers(host: Host, variant: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"], 3)
    assert expected[::3] == host.plain(PROMPTS, SAMPLINGS["seeded"]), "the first of several is the single one"
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], 3) == expected
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], 3, 40) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "mode"),
    cases("16bit-swap", "16bit-recompute", "quest-recompute", "kivi-swap", by=("swap", "recompute", "auto")),
)
def test_preemption_at_random_moments(host: Host, variant: str, mode: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"], 3)
    host.set(preemption=mode, host_cache=1.0)
    for seed in range(2):
        ids = host.ask(PROMPTS, SAMPLINGS["seeded"], 3)
        before = host.stepper.cache.stats.swapped_in
        assert host.run(100, random.Random(seed)) > 2
        assert host.of(ids, 3) == expected
        if mode == "swap" and variant in ("16bit", "int8", "int4"):
            assert host.stepper.cache.stats.swapped_in > before


@pytest.mark.parametrize("variant", cases("int4"))
def test_pages_in_any_order(host: Host, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"])
    order = random.Random(5)

    def take(self: PagePool, wish: int) -> int:
        page = order.choice([page for page, count in enumerate(self._refs) if page and not count])
        self._refs[page] = 1
        return page

    monkeypatch.setattr(PagePool, "_take", take)
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], budget=50) == expected


@pytest.mark.parametrize("variant", cases("16bit", "int8", "quest"))
def test_a_chat_goes_on_after_a_restart(folder: Path, tmp_path: Path, variant: str) -> None:
    switches = VARIANTS[variant].switches
    open_host = partial(Host, folder, "")
    with restarted(open_host, tmp_path / "chats", SAMPLINGS["seeded"], **switches) as (_, known, cached):
        if VARIANTS[variant].shares:
            assert cached == (len(PROMPTS[0]) if variant == "quest" else known) // 16 * 16
