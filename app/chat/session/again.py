"""Outcome of running an answer again exactly: the same text, or the place where it parts from the first one."""

from __future__ import annotations

from typing import Literal

from app.history.records import AnswerStats, Repeat, StoredMessage
from app.language import tr
from app.texts.difference import Parting, parting, parts_at
from app.texts.side_by_side import Side

_Part = Literal["text", "thinking", "calls"]


def repeat(original: StoredMessage, message: StoredMessage) -> Repeat:
    """The verdict on ``message``, which was asked for as ``original`` was. One that was cut off has no more to show."""
    speeds = _speeds(original.stats, message.stats)
    parts: dict[_Part, tuple[str, str]] = {
        "text": (original.content, message.content),
        "thinking": (original.thinking, message.thinking),
        "calls": (_calls(original), _calls(message)),
    }
    for part, (one, other) in parts.items():
        if (_cut(message) and one.startswith(other)) or (_cut(original) and other.startswith(one)):
            continue
        found = parting(one, other)
        if found is not None:
            return Repeat(original.id, False, _differs(part, found))
    if _cut(message):
        same = tr("same text as far as it went")
    else:
        same = tr("same text as far as the first one went") if _cut(original) else tr("same text")
    return Repeat(original.id, True, ", ".join(part for part in (same, speeds) if part))


def side(message: StoredMessage, heading: str) -> Side:
    """The answer, as the view of both shows it."""
    timings = message.stats.timings
    figures = tr("{rate:,.1f} tok/s", rate=timings.tokens_per_second) if timings is not None else ""
    return Side(heading, figures, message.content or message.thinking)


def _differs(part: _Part, found: Parting) -> str:
    values = {"where": parts_at(found), "one": found.one, "other": found.other}
    if part == "thinking":
        return tr("thinking differs {where}: {one} / {other}", **values)
    if part == "calls":
        return tr("tool calling differs {where}: {one} / {other}", **values)
    return tr("differs {where}: {one} / {other}", **values)


def _calls(message: StoredMessage) -> str:
    return "\n".join(f"{call.name} {call.arguments}" for call in message.calls)


def _cut(message: StoredMessage) -> bool:
    """True if the answer was cancelled, or interrupted because the engine stopped."""
    return message.stats.reason == "cancelled" or message.state == "interrupted"


def _speeds(one: AnswerStats, other: AnswerStats) -> str:
    speeds = [stats.timings.tokens_per_second for stats in (one, other) if stats.timings is not None]
    if len(speeds) < 2 or min(speeds) <= 0:
        return ""
    return tr("{before:,.1f} → {after:,.1f} tok/s", before=speeds[0], after=speeds[1])
