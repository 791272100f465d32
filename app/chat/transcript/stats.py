"""Texts of the line under an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from PySide6.QtCore import QDateTime, QLocale

from app.history.records import AnswerStats, StoredMessage
from engine.protocol import Loading, Timings, Usage

REASONS = {
    "stop": "",
    "length": "length limit",
    "context": "the context is full",
    "cancelled": "stopped",
    "memory": "out of memory",
    "error": "interrupted",
}

_SHORT = QLocale.FormatType.ShortFormat


class Share(NamedTuple):
    """Choice of the facts a line holds.

    ``prompt`` "cached" or "short" adds the number of prompt tokens that were in the prefix cache already, "whole" also
    the token from which it was read again. ``speculation`` is the number of speculation figures, ``first`` True if the
    time to the first token is there.
    """

    prompt: Literal["whole", "cached", "short", ""]
    speculation: int
    first: bool = True


SHARES = (
    Share("whole", 3),
    Share("cached", 3),
    Share("short", 3),
    Share("short", 2),
    Share("", 2),
    Share("", 1),
    Share("", 1, first=False),
)
"""Facts of a line as its room gets less."""


def writer(message: StoredMessage) -> str:
    """The model of this machine that gave an answer, with its adapter; "" for a text of another origin."""
    stats = message.stats
    if message.role != "assistant" or stats.remote is not None:
        return ""
    return f"{stats.model} + {stats.adapter}" if stats.model and stats.adapter else stats.model


def time_of(message: StoredMessage) -> str:
    """The time of day of a message in the system's own form; "" if it is not known."""
    return QLocale.system().toString(_moment(message).time(), _SHORT) if message.created else ""


def date_of(message: StoredMessage) -> str:
    """The date and time of a message in words; "" if they are not known."""
    return QLocale.system().toString(_moment(message), QLocale.FormatType.LongFormat) if message.created else ""


def _moment(message: StoredMessage) -> QDateTime:
    return QDateTime.fromSecsSinceEpoch(round(message.created))


def describe(message: StoredMessage, share: Share = SHARES[0]) -> str:
    """Describe the answer, such as "87.4 tok/s · TTFT 61 ms · 3.2 tokens per step · 31 forward passes saved"."""
    stats, prompt = message.stats, share.prompt
    parts = [*_from_elsewhere(stats), *_figures(stats, share.first)]
    if stats.timings is not None and stats.usage is not None:
        parts += speculation(stats.timings, stats.usage)[: share.speculation]
    if prompt and parts and stats.usage is not None and stats.usage.cached_tokens:
        parts.append(_short(stats.usage) if prompt == "short" else from_cache(stats.usage))
    if prompt == "whole" and parts and stats.diverged is not None:
        parts.append(f"read again from token {stats.diverged:,}")
    parts = [*_origin(stats), *parts]
    if message.state == "interrupted":
        parts.append("interrupted")
    elif stats.reason == "context":
        parts.insert(0, REASONS[stats.reason])  # first, as what comes last is cut off in a narrow window
    elif stats.reason is not None:
        parts.append(REASONS[stats.reason])
    return " · ".join(part for part in parts if part)


def _origin(stats: AnswerStats) -> list[str]:
    """Words for text that the model did not write in one go."""
    return [*(["edited"] if stats.edited else []), *(["continued"] if stats.continued_at else [])]


def _from_elsewhere(stats: AnswerStats) -> list[str]:
    """Name the model of another server, with the tokens that it counted."""
    if stats.remote is None:
        return []
    tokens = stats.usage.generated_tokens if stats.usage is not None else 0
    count = [f"{tokens:,} {_plural('token', tokens)}"] if tokens else []
    return [f"{stats.remote.model} on {stats.remote.server}", *count]


def explain(message: StoredMessage) -> str:
    """The longer account for the tooltip: counts, seed, model, and the engine's own sentence if it gave one."""
    stats, lines = message.stats, []
    if stats.remote is not None:
        lines.append(f"{stats.remote.model} on {stats.remote.server}; counts are that server's, times are from here")
    elif stats.model:
        lines.append(f"{stats.model} with the adapter {stats.adapter}" if stats.adapter else stats.model)
    lines += _origin_explained(stats)
    if stats.beside is not None:
        lines.append(f"one of several answers: {stats.beside.heading}")
    if stats.usage is not None:
        usage = stats.usage
        thought = f", {usage.thinking_tokens:,} of them thinking," if message.thinking else ""
        lines.append(f"{usage.generated_tokens:,} tokens{thought} after a prompt of {usage.prompt_tokens:,}")
        lines.append(from_cache(usage))
    if stats.diverged is not None:
        lines.append(diverged(stats.diverged, stats.divergence))
    if stats.timings is not None:
        timings = stats.timings
        lines.append(f"time to first token (TTFT) {_milliseconds(timings.ttft_ms)}")
        if stats.remote is None:
            lines.append(_course(timings))
        if timings.proposed and stats.usage is not None:
            lines += _speculation_explained(timings, stats.usage)
        if timings.preemptions:
            lines.append(f"set back {timings.preemptions} times for want of memory")
    if stats.sampling.seed is not None:
        lines.append(f"seed {stats.sampling.seed}")
    if stats.detail:
        lines.append(stats.detail)
    return "\n".join(lines)


def _origin_explained(stats: AnswerStats) -> list[str]:
    if not stats.continued_at:
        return ["your text, and not the model's"] if stats.edited else []
    wrote = "yours" if stats.edited else f"of {stats.begun_by}" if stats.begun_by else ""
    where = f"continued after {stats.continued_at:,} characters"
    whose = f", which are {wrote}" if wrote else ""
    return [f"{where}{whose}; all figures are those of the last part"]


def _course(timings: Timings) -> str:
    steps = f"{timings.steps:,} {_plural('step', timings.steps)}"
    return f"{steps} in {timings.total_ms / 1000:.2f} s, {timings.queued_ms:.0f} ms in the queue"


def speculation(timings: Timings, usage: Usage) -> list[str]:
    """Gains of speculative decoding, the first figure first; empty if no token was drafted.

    Each step reads the model's weights once (a forward pass); without drafts there is one for each token.
    """
    if not timings.proposed or not timings.steps:
        return []
    return [
        f"{timings.tokens_per_step:.1f} tokens per step",
        f"{_saved(timings, usage)} saved",
        f"{100 * timings.accepted / timings.proposed:.0f} % of drafts accepted",
    ]


def _speculation_explained(timings: Timings, usage: Usage) -> list[str]:
    rate = f"{timings.tokens_per_step:.1f} tokens per step"
    return [
        f"{timings.accepted:,} of {timings.proposed:,} drafted {_plural('token', timings.proposed)} accepted",
        f"{_saved(timings, usage)} saved: {rate}, where a step without speculation gives one token",
    ]


def _saved(timings: Timings, usage: Usage) -> str:
    saved = max(0, usage.generated_tokens - timings.steps)
    return f"{saved:,} forward {_plural('pass', saved)}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + ("es" if word.endswith("s") else "s")


def from_cache(usage: Usage) -> str:
    return f"prompt: {usage.cached_tokens:,} cached + {usage.prompt_tokens - usage.cached_tokens:,} new tokens"


def _short(usage: Usage) -> str:
    return f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} cached"


def diverged(token: int, why: str) -> str:
    """Say at which token the prompt left the earlier conversation, beyond which the cache served nothing, and why."""
    reason = f": {why.strip().rstrip('.')}" if why.strip() else ""
    return f"The prompt leaves the earlier conversation at token {token:,}{reason}."


def reading_prompt(done: int, total: int) -> str:
    return f"reading the prompt {done:,} / {total:,}"


def loading_model(loading: Loading) -> str:
    return f"loading {Path(loading.model).name}: {loading.stage} {loading.fraction:.0%}"


def _figures(stats: AnswerStats, first: bool) -> list[str]:
    if stats.timings is None or stats.usage is None or not stats.usage.generated_tokens:
        return []
    timings = stats.timings
    parts = []
    if stats.usage.generated_tokens > 1:  # the rate is of the tokens after the first
        parts.append(f"{timings.tokens_per_second:,.1f} tok/s")
    if first or not parts:
        parts.append(f"TTFT {_milliseconds(timings.ttft_ms)}")
    return parts


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"
