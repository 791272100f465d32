"""Answers over KIVI begin where another text's recent tokens were kept, and wait in host memory with their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.cache.groups.base import GRACE
from engine.cache.groups.residual import ResidualGroup, ResidualPart
from engine.cache.prefix.snapshots import Snapshots
from engine.cache.stores.recent import packed_until
from engine.cache.types import TREE
from engine.protocol import Cancel, Sampling
from tests.engine.loop.toy_engine import ToyEngine, ToyModel, sequential, toy_model
from tests.engine.loop.toy_recent import ToyRecentRunner, toy_recent_model
from tests.kit.examples import examples

LIMIT = 320
GREEDY = Sampling(temperature=0.0, ignore_eos=True, max_tokens=20)


def prompt_of(length: int, shift: int = 0) -> list[int]:
    return [(5 * i + shift + (i // 7)) % 22 for i in range(length)]


def ask(toy: ToyEngine, id: str, prompt: list[int], sampling: Sampling = GREEDY, n: int = 1, **more) -> list[int]:
    """Answer a prompt; every answer is what it is without any cache."""
    toy.add(id, prompt, sampling, n, **more)
    toy.drain()
    for answer in range(n):
        found = toy.heard.answers[id, answer]
        assert (found.tokens, found.text, found.reason) == sequential(prompt, sampling, answer, LIMIT)
    return toy.heard.answers[id, 0].tokens


def cached(toy: ToyEngine, id: str, answer: int = 0) -> int:
    finished = toy.heard.answers[id, answer].finished
    assert finished is not None
    return finished.usage.cached_tokens


@pytest.mark.parametrize("speculation", ["off", "ngram", "draft"])
@pytest.mark.parametrize("length", [3, 40, 63, 64, 95, 96, 97, 150, 200])
def test_a_second_turn_begins_where_the_first_ended(length: int, speculation: str) -> None:
    toy = ToyEngine(toy_recent_model())
    prompt = prompt_of(length)
    answer = ask(toy, "1", prompt, speculation=speculation)
    again = [*prompt, *answer, 3, 1, 4]
    ask(toy, "2", again, speculation=speculation)
    assert cached(toy, "1") == 0
    assert cached(toy, "2") == length + len(answer) - 1, "all but the last token, which was never a row"
    toy.check()


@pytest.mark.parametrize("length", [3, 64, 95, 96, 97, 128, 129, 200])
def test_a_prompt_asked_again_is_read_but_for_its_last_row(length: int) -> None:
    toy = ToyEngine(toy_recent_model())
    ask(toy, "1", prompt_of(length))
    ask(toy, "2", prompt_of(length))
    assert cached(toy, "2") == length - 1


def test_a_prompt_that_ends_otherwise_begins_shortly_before(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = ToyEngine(toy_recent_model())
    prompt = prompt_of(150)
    ask(toy, "1", prompt)
    ask(toy, "2", [*prompt[: 150 - GRACE], 21, 21, 21])
    assert cached(toy, "2") == 150 - GRACE


def test_nothing_is_found_without_recent_tokens() -> None:
    """A common beginning that ends where no text did is read again, although its packed pages are there."""
    toy = ToyEngine(toy_recent_model())
    ask(toy, "1", prompt_of(200))
    ask(toy, "2", [*prompt_of(140), 21, 21])
    assert cached(toy, "2") == 0


def test_answers_to_one_prompt_share_its_pages() -> None:
    toy = ToyEngine(toy_recent_model())
    ask(toy, "1", prompt_of(150), GREEDY, n=3)
    assert [cached(toy, "1", answer) for answer in range(3)] == [0, 149, 149]


def test_another_who_asks_the_same_waits_for_the_first() -> None:
    toy = ToyEngine(toy_recent_model(), token_budget=64)
    toy.add("1", prompt_of(150), GREEDY)
    toy.add("2", prompt_of(150), GREEDY)
    toy.drain()
    assert cached(toy, "2") == 149


@pytest.mark.parametrize("how", ["swap", "recompute"])
@pytest.mark.parametrize("length", [20, 100, 150])
def test_preempted_answers_go_on_as_if_nothing_had_been(how: str, length: int) -> None:
    toy = ToyEngine(toy_recent_model(), preemption=how)
    toy.add("1", prompt_of(length), GREEDY)
    for _ in range(8):
        toy.step()
    request = toy.stepper.requests["1", 0]
    computed = request.num_computed
    toy.stepper.scheduler.preempt(request)
    assert (request.cache.held is not None) == (how == "swap")
    assert not request.cache.newest_pages
    # Others may have its pages meanwhile, and what they held is no longer there.
    ask_between = prompt_of(180, shift=9)
    toy.add("2", ask_between, GREEDY)
    runner = toy.model.runner
    assert isinstance(runner, ToyRecentRunner)
    before = runner.rows
    toy.drain()
    for id, prompt in (("1", prompt_of(length)), ("2", ask_between)):
        found = toy.heard.answers[id, 0]
        assert (found.tokens, found.text, found.reason) == sequential(prompt, GREEDY, 0, LIMIT)
    assert runner.rows - before == 180 + 19 + length + 19 - computed, "nothing of it was read again"


@pytest.mark.parametrize("model", [toy_model, toy_recent_model])
def test_an_answer_that_ends_in_host_memory_leaves_it(model: Callable[[], ToyModel]) -> None:
    toy = ToyEngine(model(), preemption="swap")
    toy.add("1", prompt_of(100), GREEDY)
    for _ in range(5):
        toy.step()
    toy.stepper.scheduler.preempt(toy.stepper.requests["1", 0])
    assert toy.stepper.cache.space.counts.handles > 0
    toy.engine.submit(Cancel(id="1"))
    toy.drain()
    assert toy.heard.answers["1", 0].reason == "cancelled"
    assert toy.stepper.cache.space.counts.handles == 0
    assert not toy.heard.errors


def test_pages_of_the_tree_come_back_from_host_memory() -> None:
    toy = ToyEngine(toy_recent_model(pages=24), host_cache=0.1)
    answer = ask(toy, "1", prompt_of(200))
    cache = toy.stepper.cache
    while cache.tree.evict(100):
        pass
    assert cache.tree.pages == 0
    assert cache.space.counts.pages > 0
    ask(toy, "2", [*prompt_of(200), *answer, 5])
    assert cached(toy, "2") == 219


def test_lost_pages_are_read_again() -> None:
    toy = ToyEngine(toy_recent_model(), host_cache=0.0)
    ask(toy, "1", prompt_of(200))
    toy.stepper.cache.tree.evict(100)
    ask(toy, "2", prompt_of(200))
    assert cached(toy, "2") == 0


def test_snapshots_are_counted_and_give_way_to_rows() -> None:
    toy = ToyEngine(toy_recent_model(recent_pages=10))
    for shift in range(4):
        ask(toy, str(shift), prompt_of(100, shift))
        assert toy.stepper.cache.stats.recent_pages > 0
    (recent,) = toy.stepper.cache.manager.groups
    assert isinstance(recent, ResidualGroup)
    assert recent.pool.used_count == toy.stepper.cache.stats.recent_pages
    assert recent.snapshots.evictable == recent.pool.used_count
    recent.pool.retain(recent.pool.owned_by(TREE)[:1], "a leak")
    with pytest.raises(AssertionError, match="nobody runs"):
        toy.check()


def test_prompts_longer_than_the_second_pool_are_cut() -> None:
    for chunked in (True, False):
        toy = ToyEngine(toy_recent_model(recent_pages=8), chunked_prefill=chunked)
        ask(toy, "1", prompt_of(250))


class Add(NamedTuple):
    prompt: int
    shift: int
    max_tokens: int
    greedy: bool
    n: int
    speculation: str
    kv_cache: bool


class Goes(NamedTuple):
    """A further turn of an answer that was given."""

    which: int
    more: int
    cut: int


class Other(NamedTuple):
    what: str
    count: int


operation = st.one_of(
    st.builds(
        Add,
        prompt=st.integers(1, 220),
        shift=st.integers(0, 3),
        max_tokens=st.integers(1, 50),
        greedy=st.booleans(),
        n=st.sampled_from([1, 1, 1, 2]),
        speculation=st.sampled_from(["off", "ngram", "draft"]),
        kv_cache=st.sampled_from([True, True, True, False]),
    ),
    st.builds(Goes, which=st.integers(0, 50), more=st.integers(0, 40), cut=st.sampled_from([0, 0, 1, 5, 17])),
    st.builds(Other, st.sampled_from(["step", "step", "step", "cancel", "evict"]), st.integers(1, 12)),
    st.builds(Other, st.sampled_from(["budget 16", "budget 512", "chunks", "whole", "swap", "recompute"]), st.just(1)),
)


def play(script: list[Add | Goes | Other], pages: int, recent_pages: int) -> None:
    """Run a script, then compare every answer with sequential decoding of its prompt alone."""
    toy = ToyEngine(toy_recent_model(pages, recent_pages, LIMIT))
    asked: dict[str, tuple[list[int], Sampling]] = {}

    def add(number: int, prompt: list[int], step: Add) -> None:
        sampling = Sampling(
            temperature=0.0 if step.greedy else 1.0, ignore_eos=True, max_tokens=step.max_tokens, seed=number
        )
        speculation = step.speculation if step.kv_cache else "off"
        if len(prompt) < toy.model.card.context:
            asked[str(number)] = prompt, sampling
        toy.add(str(number), prompt, sampling, step.n, speculation=speculation, kv_cache=step.kv_cache)

    switches = {
        "budget 16": ("token_budget", 16),
        "budget 512": ("token_budget", 512),
        "chunks": ("chunked_prefill", True),
        "whole": ("chunked_prefill", False),
        "swap": ("preemption", "swap"),
        "recompute": ("preemption", "recompute"),
    }
    for number, operation in enumerate(script):
        match operation:
            case Add():
                add(number, prompt_of(operation.prompt, operation.shift), operation)
            case Goes(which, more, cut):
                given = [id for id, n in toy.heard.answers if n == 0]
                if given:
                    id = given[which % len(given)]
                    text = [*asked[id][0], *toy.heard.answers[id, 0].tokens]
                    prompt = [*text[: max(1, len(text) - cut)], *prompt_of(more, 7)]
                    add(number, prompt, Add(0, 0, 20, True, 1, "ngram", True))
            case Other("step", count):
                for _ in range(count):
                    toy.step()
            case Other("cancel", count):
                if asked:
                    toy.engine.submit(Cancel(id=list(asked)[count % len(asked)]))
            case Other("evict", count):
                toy.stepper.cache.tree.evict(count)
            case Other(switch, _):
                toy.engine._options.set(*switches[switch])
    toy.drain()
    (recent,) = toy.stepper.cache.manager.groups
    assert isinstance(recent, ResidualGroup)
    assert recent.pool.used_count == recent.snapshots.pages, "only snapshots are left"
    assert not [error for error in toy.heard.errors if error.code == "internal"]
    for (id, number), answer in toy.heard.answers.items():
        prompt, sampling = asked[id]
        output, text, reason = sequential(prompt, sampling, answer=number, limit=LIMIT)
        assert answer.reason in (reason, "cancelled", "memory")
        assert answer.tokens == (output if answer.reason == reason else output[: len(answer.tokens)])
        if answer.reason == "memory":
            assert len(prompt) + len(answer.tokens) >= (pages - 1) * 16 - 16
    assert set(asked) == {id for id, _ in toy.heard.answers}


relaxed = [HealthCheck.too_slow, HealthCheck.data_too_large]
sizes = {"pages": st.sampled_from([8, 16, 24, 80]), "recent_pages": st.sampled_from([8, 11, 20, 60])}


@given(script=st.lists(operation, max_size=24), **sizes)
@examples(60, suppress_health_check=relaxed)
def test_any_history_gives_the_sequential_texts(
    script: list[Add | Goes | Other], pages: int, recent_pages: int
) -> None:
    play(script, pages, recent_pages)


@pytest.mark.long
@pytest.mark.timeout(1800)
@given(script=st.lists(operation, min_size=40, max_size=60), **sizes)
@examples(150, suppress_health_check=relaxed)
def test_long_histories(script: list[Add | Goes | Other], pages: int, recent_pages: int) -> None:
    play(script, pages, recent_pages)


TURNS: list[Add | Goes | Other] = [
    Add(150, 0, 20, True, 1, "off", True),
    Other("step", 60),
    Goes(0, 10, 0),
    Goes(0, 14, 1),
    Add(150, 0, 30, False, 2, "draft", True),
    Other("step", 60),
    Goes(2, 9, 0),
]


def test_the_comparison_notices_a_hit_one_token_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Snapshots._hit
    play(TURNS, 80, 60)
    monkeypatch.setattr(
        Snapshots, "_hit", lambda self, each, tokens: real(self, each, tokens)._replace(tokens=tokens + 1)
    )
    with pytest.raises(AssertionError):
        play(TURNS, 80, 60)


def test_the_comparison_notices_a_write_to_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    play(TURNS, 80, 60)
    monkeypatch.setattr(ResidualPart, "_own", lambda self, cache: None)
    with pytest.raises(AssertionError):
        play(TURNS, 80, 60)


def test_the_comparison_notices_recent_tokens_that_are_not_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a look-up whose recent pages begin a page late."""
    real = Snapshots._hit

    def shifted(self, each, tokens):  # type: ignore[no-untyped-def]
        hit = real(self, each, tokens)
        return hit._replace(pages=[*hit.pages[1:], hit.pages[0]])

    monkeypatch.setattr(Snapshots, "_hit", shifted)
    with pytest.raises(AssertionError):
        play(TURNS, 80, 60)


def test_what_is_final_ends_where_the_next_row_reads_packed() -> None:
    assert [packed_until(n - 1, 64) for n in (64, 95, 96, 127, 128)] == [0, 0, 32, 32, 64]
