"""Random arrivals, cancels, switches and scarcity: the ledger always adds up and no text ever depends on them."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.cache.offload.saved import SavedChats
from engine.cache.pool import PAGE_SIZE
from engine.cache.prefix import radix
from engine.cache.sequences import SequenceCache
from engine.protocol import Cancel, Sampling, Set
from tests.engine.loop.toy_engine import ToyEngine, ToyRunner, ToyStore, sequential, toy_model
from tests.kit.examples import examples

LIMIT = 120
TINY = 6 * 2 * PAGE_SIZE * 8 / 1e9
"""Gigabytes of six pages in both arenas."""


class Add(NamedTuple):
    prompt: int
    shift: int
    max_tokens: int
    sampling: int
    n: int
    speculation: str
    draft_length: int
    kv_cache: bool
    stop: str
    prefix_cache: bool = True
    chat: str = ""


class Again(NamedTuple):
    """A conversation goes on: what was asked, what was answered so far, and more."""

    which: int
    more: int
    max_tokens: int
    n: int
    speculation: str


class CancelOne(NamedTuple):
    which: int


class Steps(NamedTuple):
    count: int


class Switch(NamedTuple):
    key: str
    value: bool | int | float | str


SAMPLINGS = (
    Sampling(temperature=0.0, ignore_eos=True),
    Sampling(temperature=1.0),
    Sampling(temperature=1.2, top_k=10, top_p=0.95, repetition_penalty=1.1, ignore_eos=True),
    Sampling(temperature=0.9, min_p=0.02, frequency_penalty=0.2, dry_multiplier=0.5, ignore_eos=True),
)

adds = st.builds(
    Add,
    prompt=st.integers(1, 60),
    shift=st.integers(0, 20),
    max_tokens=st.integers(1, 40),
    sampling=st.integers(0, len(SAMPLINGS) - 1),
    n=st.sampled_from([1, 1, 1, 2, 4]),
    speculation=st.sampled_from(["off", "ngram", "draft", "draft", "auto"]),
    draft_length=st.sampled_from([0, 1, 4, 9]),
    kv_cache=st.sampled_from([True, True, True, False]),
    stop=st.sampled_from(["", "", "ab", "c", "jkl"]),
    prefix_cache=st.sampled_from([True, True, True, False]),
    chat=st.sampled_from(["", "one", "two"]),
)
agains = st.builds(
    Again,
    which=st.integers(0, 20),
    more=st.integers(1, 20),
    max_tokens=st.integers(1, 30),
    n=st.sampled_from([1, 1, 3]),
    speculation=st.sampled_from(["off", "draft"]),
)
operation = st.one_of(
    adds,
    agains,
    st.builds(Steps, st.integers(1, 6)),
    st.builds(Steps, st.integers(10, 40)),
    st.builds(CancelOne, st.integers(0, 100)),
    st.sampled_from(
        [
            Switch("token_budget", 16),
            Switch("token_budget", 48),
            Switch("token_budget", 512),
            Switch("chunked_prefill", False),
            Switch("chunked_prefill", True),
            Switch("page_reservation", "whole_context"),
            Switch("page_reservation", "on_demand"),
            Switch("admission", "first_come"),
            Switch("admission", "classes"),
            Switch("admission", "mlfq"),
            Switch("admission", "shortest"),
            Switch("admission", "static"),
            Switch("prefix_first", False),
            Switch("max_batch", 2),
            Switch("max_batch", 256),
            Switch("step_targets", False),
            Switch("preemption", "auto"),
            Switch("preemption", "swap"),
            Switch("preemption", "recompute"),
            Switch("host_cache", 0.0),
            Switch("host_cache", TINY),
            Switch("host_cache", 1.0),
        ]
    ),
)
operations = st.lists(operation, max_size=24)


Operation = Add | Again | CancelOne | Steps | Switch


class Fixture:
    """An engine over a toy model, perhaps with pages in a random order and with saved chats."""

    def __init__(self, pages: int, order: int, folder: Path | None) -> None:
        self.saved = SavedChats(folder, 1 << 30) if folder is not None else None
        model = toy_model(pages=pages, limit=LIMIT, draft_blur=0.6)
        if folder is not None:
            model = dataclasses.replace(model, fingerprint="toy")
        shuffled = random.Random(order) if order else None
        self.toy = ToyEngine(model, self.saved, shuffled, disk_cache=1.0)
        self.asked: dict[str, tuple[list[int], Sampling]] = {}

    def add(self, number: int, add: Add) -> None:
        prompt = [(5 * i + add.shift % 4 + (i // 7)) % 22 for i in range(add.prompt)]
        if add.shift % 3 and prompt:
            prompt[-1 - add.shift % len(prompt)] = add.shift
        sampling = replace(
            SAMPLINGS[add.sampling], seed=number, max_tokens=add.max_tokens, stop=[add.stop] if add.stop else []
        )
        speculation = add.speculation if add.kv_cache else "off"
        self.ask(
            str(number), prompt, sampling, add.n, add.chat,
            speculation=speculation, draft_length=add.draft_length, kv_cache=add.kv_cache,
            prefix_cache=add.prefix_cache and add.kv_cache,
        )  # fmt: skip

    def again(self, number: int, again: Again) -> None:
        if not self.asked:
            return
        old = list(self.asked)[again.which % len(self.asked)]
        answer = self.toy.heard.answers.get((old, 0))
        prompt = (
            self.asked[old][0] + (answer.tokens if answer else []) + [(3 * i + number) % 22 for i in range(again.more)]
        )
        sampling = Sampling(temperature=0.8, seed=number, max_tokens=again.max_tokens, ignore_eos=True)
        self.ask(str(number), prompt, sampling, again.n, "one", speculation=again.speculation)

    def ask(
        self, id: str, prompt: list[int], sampling: Sampling, n: int, chat: str, **switches: bool | int | str
    ) -> None:
        if len(prompt) < self.toy.model.card.context:
            self.asked[id] = prompt, sampling
        self.toy.add(id, prompt, sampling, n, chat, **switches)


def play(script: Sequence[Operation], pages: int, order: int = 0, folder: Path | None = None) -> None:
    """Run a script, then compare every answer with sequential decoding of its prompt alone."""
    fixture = Fixture(pages, order, folder)
    toy, asked = fixture.toy, fixture.asked
    for number, operation in enumerate(script):
        match operation:
            case Add():
                fixture.add(number, operation)
            case Again():
                fixture.again(number, operation)
            case CancelOne(which):
                if asked:
                    toy.engine.submit(Cancel(id=list(asked)[which % len(asked)]))
            case Steps(count):
                for _ in range(count):
                    toy.step()
            case Switch(key, value):
                toy.engine._options.set(key, value)
    toy.drain()
    if fixture.saved is not None:
        fixture.saved.close()
    for (id, number), answer in toy.heard.answers.items():
        prompt, sampling = asked[id]
        output, text, reason = sequential(prompt, sampling, answer=number, limit=LIMIT)
        assert answer.reason in (reason, "cancelled", "memory")
        if answer.reason == reason:
            assert (answer.tokens, answer.text) == (output, text)
        else:
            assert answer.tokens == output[: len(answer.tokens)]
            # What was held back, lest it begin a stop string, belongs to an answer that ended before the string did.
            _, unstopped, _ = sequential(prompt, replace(sampling, stop=[]), answer=number, limit=LIMIT)
            assert unstopped.startswith(answer.text)
        if answer.reason == "memory":
            assert len(asked[id][0]) + len(answer.tokens) >= (pages - 1) * 16 - 16
    assert set(asked) == {id for id, _ in toy.heard.answers}


def play_somewhere(script: Sequence[Operation], pages: int, order: int, saves: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play(script, pages, order, Path(folder) / "chats" if saves else None)


relaxed = [HealthCheck.too_slow, HealthCheck.data_too_large]
orders = st.sampled_from([0, 0, 1, 2])


@given(script=operations, pages=st.sampled_from([5, 7, 12, 40]), order=orders, saves=st.booleans())
@examples(80, suppress_health_check=relaxed)
def test_any_history_gives_the_sequential_texts(script: list[Operation], pages: int, order: int, saves: bool) -> None:
    play_somewhere(script, pages, order, saves)


@pytest.mark.long
@pytest.mark.timeout(1800)
@given(
    script=st.lists(operation, min_size=50, max_size=60), pages=st.integers(4, 40), order=orders, saves=st.booleans()
)
@examples(200, suppress_health_check=relaxed)
def test_ten_thousand_operations(script: list[Operation], pages: int, order: int, saves: bool) -> None:
    play_somewhere(script, pages, order, saves)


SCARCE: list[Operation] = [
    *(Add(20 + i, i, 40, 2 + i % 2, 1, "draft", 4, True, "") for i in range(8)),
    Steps(6),
]


SHARED: list[Operation] = [
    Add(30, 3, 20, 0, 1, "off", 0, True, ""),
    Steps(60),
    Add(45, 3, 20, 0, 3, "draft", 4, True, ""),
    Steps(60),
    Add(30, 3, 20, 3, 1, "off", 0, True, ""),
]


def test_the_comparison_notices_a_stale_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a look-up that believes in one token more than agrees leaves a row that was never computed."""
    real = radix.common

    def one_more(keys: Sequence[object], text: Sequence[object], at: int = 0) -> int:
        found = real(keys, text, at)
        return min(found + 1, len(keys), len(text)) if isinstance(keys[0], int) else found  # of tokens, not of pages

    play(SHARED, 20)
    monkeypatch.setattr(radix, "common", one_more)
    with pytest.raises(AssertionError):
        play(SHARED, 20)


def test_the_comparison_notices_a_write_to_a_shared_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without copy-on-write answers to one prompt write into each other's last page."""
    monkeypatch.setattr(SequenceCache, "must_copy", lambda self: False)
    with pytest.raises(AssertionError):
        play(SHARED, 20)


def test_the_comparison_notices_a_leaked_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: an ending that keeps its last page."""
    real = SequenceCache.shrink

    def leaky(self: SequenceCache, keep: int) -> None:
        real(self, max(keep, 1))

    monkeypatch.setattr(SequenceCache, "shrink", leaky)
    with pytest.raises(AssertionError):
        play(SCARCE, 40)


def test_the_comparison_notices_a_page_given_twice() -> None:
    """Negative control: two sequences on one page read each other's tokens."""

    class Crossed(ToyRunner):
        def forward(self, rows):  # type: ignore[no-untyped-def]
            if len(rows) > 1:
                first = rows[0]
                rows = [first, rows[1]._replace(pages=[first.pages[0], *rows[1].pages[1:]]), *rows[2:]]
            return super().forward(rows)

    model = dataclasses.replace(toy_model(), runner=Crossed(64))
    toy = ToyEngine(model)
    sampling = Sampling(seed=1, max_tokens=20, ignore_eos=True)
    for shift in range(2):
        toy.add(str(shift), [(i * 5 + shift) % 20 for i in range(20)], sampling)
    toy.drain()
    expected = [sequential([(i * 5 + shift) % 20 for i in range(20)], sampling)[0] for shift in range(2)]
    assert [toy.heard.answers[str(shift), 0].tokens for shift in range(2)] != expected


SWAPPED: list[Operation] = [Switch("preemption", "swap"), Switch("host_cache", 1.0), *SCARCE]


def test_the_comparison_notices_a_tier_that_gives_back_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: pages come back in another order than they went."""
    real = ToyStore.import_pages
    play(SWAPPED, 12)
    monkeypatch.setattr(ToyStore, "import_pages", lambda self, pages, data: real(self, pages, data.roll(1, 0)))
    with pytest.raises(AssertionError):
        play(SWAPPED, 12)


class Salted(ToyRunner):
    """Its arithmetic has a mode: what one mode wrote is nonsense to another."""

    salt = 0

    def forward(self, rows):  # type: ignore[no-untyped-def]
        self.arena ^= self.salt << 4
        output = super().forward(rows)
        self.arena ^= self.salt << 4
        return output


def ask_in_two_modes() -> bool:
    """Whether the same question has the same answer after the arithmetic changed and changed back."""
    runner = Salted(40)
    toy = ToyEngine(toy_model(pages=40, runner=runner))
    sampling = Sampling(seed=1, max_tokens=20, ignore_eos=True)
    prompt = [i % 20 for i in range(40)]
    for number in range(3):
        runner.salt = number % 2
        toy.engine.submit(Set(key="batch_invariant", value=bool(number % 2)))
        toy.add(str(number), prompt, sampling)
        toy.drain()
    assert runner.rows < 150, "the first mode's pages were found again"
    return len({tuple(toy.heard.answers[str(number), 0].tokens) for number in range(3)}) == 1


def test_the_comparison_notices_a_tree_without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: pages of one arithmetic are read by another."""
    assert ask_in_two_modes()
    real = SequenceCache.__init__
    monkeypatch.setattr(
        SequenceCache, "__init__", lambda self, manager, asked: real(self, manager, asked._replace(namespace="all"))
    )
    assert not ask_in_two_modes()
