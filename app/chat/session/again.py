"""Outcome of running an answer again exactly: the same text, or the place where it parts from the first one."""

from __future__ import annotations

from app.history.records import AnswerStats, Repeat, StoredMessage
from app.texts.difference import parting, parts_at
from app.texts.side_by_side import Side


def repeat(original: StoredMessage, message: StoredMessage) -> Repeat:
    """The verdict on ``message``, which was asked for as ``original`` was. One that was cut off has no more to show."""
    speeds = _speeds(original.stats, message.stats)
    for name, one, other in (
        ("", original.content, message.content),
        ("thinking ", original.thinking, message.thinking),
        ("tool calling ", _calls(original), _calls(message)),
    ):
        if (_cut(message) and one.startswith(other)) or (_cut(original) and other.startswith(one)):
            continue
        found = parting(one, other)
        if found is not None:
            return Repeat(original.id, False, f"{name}differs {parts_at(found)}: {found.one} / {found.other}")
    so_far = " as far as it went" if _cut(message) else " as far as the first one went" if _cut(original) else ""
    return Repeat(original.id, True, ", ".join(part for part in (f"same text{so_far}", speeds) if part))


def side(message: StoredMessage, heading: str) -> Side:
    """The answer, as the view of both shows it."""
    timings = message.stats.timings
    figures = f"{timings.tokens_per_second:,.1f} tok/s" if timings is not None else ""
    return Side(heading, figures, message.content or message.thinking)


def _calls(message: StoredMessage) -> str:
    return "\n".join(f"{call.name} {call.arguments}" for call in message.calls)


def _cut(message: StoredMessage) -> bool:
    """True if the answer was cancelled, or interrupted because the engine stopped."""
    return message.stats.reason == "cancelled" or message.state == "interrupted"


def _speeds(one: AnswerStats, other: AnswerStats) -> str:
    speeds = [stats.timings.tokens_per_second for stats in (one, other) if stats.timings is not None]
    return f"{speeds[0]:,.1f} → {speeds[1]:,.1f} tok/s" if len(speeds) == 2 and min(speeds) > 0 else ""
