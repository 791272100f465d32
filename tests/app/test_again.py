"""An answer run again exactly says whether its text is the same, or where it parts."""

from __future__ import annotations

from app.chat.session.again import repeat
from app.history.records import AnswerStats, StoredMessage
from engine.protocol import Timings, ToolCall

FIRST = "A page holds sixteen tokens of one text."


def answer(content: str, speed: float = 0.0, reason: str = "stop", thinking: str = "") -> StoredMessage:
    timings = Timings(queued_ms=0, ttft_ms=9, total_ms=9, tokens_per_second=speed, tokens_per_step=1, steps=9)
    stats = AnswerStats(reason=reason, timings=timings)  # type: ignore[arg-type]
    return StoredMessage(content[:5] + reason, "chat", "", "assistant", content, stats=stats, thinking=thinking)


def test_the_same_text_says_so_with_both_speeds() -> None:
    found = repeat(answer(FIRST, 24.4), answer(FIRST, 31.0))
    assert (found.same, found.verdict) == (True, "same text, 24.4 → 31.0 tok/s")
    assert repeat(answer(FIRST), answer(FIRST)).verdict == "same text"


def test_another_text_says_where_it_parts() -> None:
    found = repeat(answer(FIRST, 24.4), answer("A page holds 16 tokens.", 31.0))
    assert (found.same, found.verdict) == (False, "differs from word 4 on: sixteen tokens of one… / 16 tokens.")
    found = repeat(answer(FIRST, thinking="Hm."), answer(FIRST, thinking="Ah."))
    assert found.verdict == "thinking differs from the first word on: Hm. / Ah."


def test_other_calls_are_told() -> None:
    one, other = (answer(FIRST)._replace(parts=(ToolCall("c", "read", f'{{"path": {n}}}'),)) for n in (1, 2))
    found = repeat(one, other)
    assert (found.same, found.verdict[:20]) == (False, "tool calling differs")
    assert repeat(one, one).same


def test_one_that_was_stopped_is_judged_as_far_as_it_went() -> None:
    assert repeat(answer(FIRST), answer("A page ho", reason="cancelled")).verdict == "same text as far as it went"
    assert not repeat(answer(FIRST), answer("A book ho", reason="cancelled")).same


def test_the_first_one_may_have_been_stopped() -> None:
    stopped, broken = answer("A page ho", reason="cancelled"), answer("A page ho")._replace(state="interrupted")
    for first in (stopped, broken):
        assert repeat(first, answer(FIRST)).verdict == "same text as far as the first one went"
        assert not repeat(first, answer("A book holds")).same
        assert repeat(first, answer("A pa", reason="cancelled")).same
    assert repeat(stopped, answer("A page holds", reason="cancelled")).same
