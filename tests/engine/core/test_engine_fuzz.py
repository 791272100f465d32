"""Random arrivals, cancels, switches and scarcity: the ledger always adds up and no text ever depends on them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from toy_engine import ToyEngine, ToyRunner, sequential, toy_model

from engine.cache import radix
from engine.core.commands import CancelRequest
from engine.protocol import Sampling
from engine.scheduling.memory import Memory

LIMIT = 90


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


class Cancel(NamedTuple):
    which: int


class Steps(NamedTuple):
    count: int


class Switch(NamedTuple):
    key: str
    value: bool | int | str


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
    n=st.sampled_from([1, 1, 1, 2]),
    speculation=st.sampled_from(["off", "ngram", "draft", "draft"]),
    draft_length=st.sampled_from([0, 1, 4, 9]),
    kv_cache=st.sampled_from([True, True, True, False]),
    stop=st.sampled_from(["", "", "ab", "c", "jkl"]),
)
operation = st.one_of(
    adds,
    st.builds(Steps, st.integers(1, 6)),
    st.builds(Cancel, st.integers(0, 100)),
    st.sampled_from(
        [
            Switch("token_budget", 16),
            Switch("token_budget", 48),
            Switch("token_budget", 512),
            Switch("chunked_prefill", False),
            Switch("chunked_prefill", True),
            Switch("page_reservation", "whole_context"),
            Switch("page_reservation", "on_demand"),
        ]
    ),
)
operations = st.lists(operation, max_size=24)


def play(script: list[Add | Cancel | Steps | Switch], pages: int) -> None:
    """Run a script, then compare every answer with sequential decoding of its prompt alone."""
    toy = ToyEngine(toy_model(pages=pages, limit=LIMIT, draft_blur=0.6))
    asked: dict[str, tuple[list[int], Sampling]] = {}
    for number, operation in enumerate(script):
        match operation:
            case Add():
                prompt = [(5 * i + operation.shift + (i // 7)) % 22 for i in range(operation.prompt)]
                sampling = SAMPLINGS[operation.sampling]
                sampling = Sampling(
                    **{
                        **{field: getattr(sampling, field) for field in sampling.__struct_fields__},
                        "seed": number,
                        "max_tokens": operation.max_tokens,
                        "stop": [operation.stop] if operation.stop else [],
                    }
                )
                speculation = operation.speculation if operation.kv_cache else "off"
                id = str(number)
                if len(prompt) < toy.model.card.context:
                    asked[id] = prompt, sampling
                toy.add(
                    id,
                    prompt,
                    sampling,
                    n=operation.n,
                    speculation=speculation,
                    draft_length=operation.draft_length,
                    kv_cache=operation.kv_cache,
                )
            case Cancel(which):
                if asked:
                    toy.engine.submit(CancelRequest(list(asked)[which % len(asked)]))
            case Steps(count):
                for _ in range(count):
                    toy.step()
            case Switch(key, value):
                toy.engine._options.set(key, value)
    toy.drain()
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


scripts = given(script=operations, pages=st.sampled_from([5, 7, 12, 40]))
relaxed = [HealthCheck.too_slow, HealthCheck.data_too_large]


@scripts
@settings(max_examples=60, deadline=None, suppress_health_check=relaxed)
def test_any_history_gives_the_sequential_texts(script: list[Add | Cancel | Steps | Switch], pages: int) -> None:
    play(script, pages)


@pytest.mark.long
@pytest.mark.timeout(1800)
@given(script=st.lists(operation, min_size=50, max_size=60), pages=st.integers(4, 40))
@settings(max_examples=200, deadline=None, suppress_health_check=relaxed)
def test_ten_thousand_operations(script: list[Add | Cancel | Steps | Switch], pages: int) -> None:
    play(script, pages)


SCARCE: list[Add | Cancel | Steps | Switch] = [
    *(Add(20 + i, i, 40, 2 + i % 2, 1, "draft", 4, True, "") for i in range(8)),
    Steps(6),
]


SHARED: list[Add | Cancel | Steps | Switch] = [
    Add(30, 3, 20, 0, 1, "off", 0, True, ""),
    Steps(60),
    Add(45, 3, 20, 0, 3, "draft", 4, True, ""),
    Steps(60),
    Add(30, 3, 20, 3, 1, "off", 0, True, ""),
]


def test_the_comparison_notices_a_stale_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a look-up that believes in one token more than agrees leaves a row that was never computed."""
    real = radix._same
    play(SHARED, 20)
    monkeypatch.setattr(radix, "_same", lambda a, b: min(real(a, b) + 1, len(a), len(b)))
    with pytest.raises(AssertionError):
        play(SHARED, 20)


def test_the_comparison_notices_a_write_to_a_shared_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without copy-on-write answers to one prompt write into each other's last page."""
    monkeypatch.setattr(Memory, "_copies", lambda self, sequence: False)
    with pytest.raises(AssertionError):
        play(SHARED, 20)


def test_the_comparison_notices_a_leaked_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: an ending that keeps its last page."""
    real = Memory.shrink

    def leaky(self: Memory, sequence, keep: int) -> None:  # type: ignore[no-untyped-def, type-arg]
        real(self, sequence, max(keep, 1))

    monkeypatch.setattr(Memory, "shrink", leaky)
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
