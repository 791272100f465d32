from __future__ import annotations

import asyncio
import random

from engine import protocol as p
from engine.services.answers.outbox import MAX_WAITING, Outbox
from tests.engine.doors.network.fake import FIT, FakeProbes, card

USAGE = p.Usage(prompt_tokens=1, cached_tokens=0, generated_tokens=1, seed=0)
TIMINGS = p.Timings(queued_ms=0, ttft_ms=0, total_ms=0, tokens_per_second=0, tokens_per_step=0, steps=0)


def delta(id: str, text: str, answer: int = 0) -> p.Delta:
    return p.Delta(id=id, answer=answer, text=text, tokens=[p.TokenInfo(id=ord(c), chars=1) for c in text])


def finished(id: str, answer: int = 0) -> p.Finished:
    return p.Finished(id=id, answer=answer, reason="stop", usage=USAGE, timings=TIMINGS)


def telemetry(time: float, preemptions: int = 0) -> p.Telemetry:
    return p.Telemetry(
        time=time,
        generated_per_second=0,
        prefilled_per_second=0,
        memory=FakeProbes().memory(None, 0),
        pages=p.PageCounts(total=0, used=0, live_tokens=0),
        queue=p.QueueCounts(waiting=0, running=0, prefilling=0),
        preemptions=preemptions,
    )


def drained(outbox: Outbox) -> list[p.Message]:
    async def take_all() -> list[p.Message]:
        return [await outbox.take() for _ in range(len(outbox))]

    return asyncio.run(take_all())


def test_a_slow_reader_loses_no_text_and_holds_little() -> None:
    """Whatever the reader's pace, each answer's deltas add up to its text, in order, before its end."""
    rng = random.Random(5)
    written: dict[tuple[str, int], str] = {}
    read: dict[tuple[str, int], str] = {}
    ended: set[tuple[str, int]] = set()
    outbox = Outbox()

    def take(message: p.Message) -> None:
        if isinstance(message, p.Delta):
            key = (message.id, message.answer)
            assert key not in ended
            assert "".join(chr(token.id) for token in message.tokens) == message.text
            read[key] = read.get(key, "") + message.text
        elif isinstance(message, p.Finished):
            ended.add((message.id, message.answer))

    async def run() -> None:
        for i in range(20_000):
            key = (rng.choice("abcd"), rng.randrange(2))
            text = chr(97 + i % 26)
            outbox.put(delta(key[0], text, key[1]))
            written[key] = written.get(key, "") + text
            if i % 7 == 0:
                outbox.put(telemetry(i))
                outbox.put(p.Prefill(id="a", done=i, cached=0, total=9))
            assert len(outbox) <= 8 + 2
            if rng.random() < 0.01:
                take(await outbox.take())
        for id, answer in written:
            outbox.put(finished(id, answer))
        while len(outbox):
            take(await outbox.take())

    asyncio.run(run())
    assert read == written
    assert ended == set(written)


def test_the_same_name_again_does_not_join_the_answer_before() -> None:
    outbox = Outbox()
    for message in (delta("g", "one"), finished("g"), delta("g", "two"), delta("g", " three"), finished("g")):
        outbox.put(message)
    got = drained(outbox)
    assert [type(m).__name__ for m in got] == ["Delta", "Finished", "Delta", "Finished"]
    assert got[0].text == "one"  # type: ignore[attr-defined]
    assert got[2].text == "two three"  # type: ignore[attr-defined]


def test_states_replace_each_other() -> None:
    outbox = Outbox()
    outbox.put(p.Loading(model="m", stage="reading", fraction=0.1))
    outbox.put(p.Loading(model="m", stage="reading", fraction=0.9))
    outbox.put(p.Loaded(card=card("/m"), fit=FIT))
    outbox.put(p.Loading(model="m", stage="reading again", fraction=0.0))
    outbox.put(telemetry(1, preemptions=2))
    outbox.put(telemetry(2, preemptions=3))
    outbox.put(p.CompareProgress(id="c", done=1, total=8))
    outbox.put(p.CompareProgress(id="c", done=2, total=8))
    got = drained(outbox)
    assert [type(m).__name__ for m in got] == ["Loading", "Loaded", "Loading", "Telemetry", "CompareProgress"]
    assert got[0].fraction == 0.9  # type: ignore[attr-defined]
    assert got[3].preemptions == 5  # type: ignore[attr-defined]
    assert got[4].done == 2  # type: ignore[attr-defined]


def test_what_a_model_allows_is_said_after_it() -> None:
    outbox = Outbox()
    for message in (p.Options(catalogue=[]), p.Loaded(card=card("/m"), fit=FIT), p.Options(catalogue=[])):
        outbox.put(message)
    assert [type(message).__name__ for message in drained(outbox)] == ["Options", "Loaded", "Options"]


def test_replies_are_bounded_by_making_the_client_wait() -> None:
    async def run() -> None:
        outbox = Outbox()
        for i in range(MAX_WAITING):
            await asyncio.wait_for(outbox.room(), 1)
            outbox.put(p.Counted(id=str(i), tokens=1))
        waiting = asyncio.create_task(outbox.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await outbox.take()
        await asyncio.wait_for(waiting, 1)

    asyncio.run(run())


def test_take_waits_for_the_next_message() -> None:
    async def run() -> None:
        outbox = Outbox()
        taking = asyncio.create_task(outbox.take())
        await asyncio.sleep(0)
        outbox.put(p.Counted(id="x", tokens=1))
        assert await asyncio.wait_for(taking, 1) == p.Counted(id="x", tokens=1)

    asyncio.run(run())


def test_joined_text_belongs_to_the_token_that_completes_it() -> None:
    """What was told while it could still begin a stop string, and its token was held back."""
    outbox = Outbox()
    first, second = p.TokenInfo(id=1, chars=1), p.TokenInfo(id=2, chars=3)
    outbox.put(p.Delta(id="a", text=" lis"))
    outbox.put(p.Delta(id="a", text=""))
    outbox.put(p.Delta(id="a", text="t it o", tokens=[first, second]))
    outbox.put(p.Delta(id="a", text="k", tokens=[p.TokenInfo(id=3, chars=1)]))
    (joined,) = drained(outbox)
    assert isinstance(joined, p.Delta)
    assert [joined.text, *(token.chars for token in joined.tokens)] == [" list it ok", 5, 3, 3]
