"""Texts of the line under an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from PySide6.QtCore import QDateTime, QLocale

from app.history.records import AnswerStats, StoredMessage
from app.language import code, locale, plural, tr
from engine.protocol import Loading, Timings, Usage

REASONS = {
    "stop": "",
    "length": tr("length limit"),
    "context": tr("the context is full"),
    "cancelled": tr("stopped"),
    "memory": tr("out of memory"),
    "error": tr("interrupted"),
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
    words = QLocale.system() if code() in ("en", QLocale.system().name()[:2]) else locale()
    return words.toString(_moment(message), QLocale.FormatType.LongFormat) if message.created else ""


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
        parts.append(tr("read again from token {token:,}", token=stats.diverged))
    parts = [*_origin(stats), *parts]
    if message.state == "interrupted":
        parts.append(tr("interrupted"))
    elif stats.reason == "context":
        parts.insert(0, REASONS[stats.reason])  # first, as what comes last is cut off in a narrow window
    elif stats.reason is not None:
        parts.append(REASONS[stats.reason])
    return " · ".join(part for part in parts if part)


def _origin(stats: AnswerStats) -> list[str]:
    """Words for text that the model did not write in one go."""
    return [*([tr("edited")] if stats.edited else []), *([tr("continued")] if stats.continued_at else [])]


def _from_elsewhere(stats: AnswerStats) -> list[str]:
    """Name the model of another server, with the tokens that it counted."""
    if stats.remote is None:
        return []
    tokens = stats.usage.generated_tokens if stats.usage is not None else 0
    count = [plural("1 token", "{n:,} tokens", tokens)] if tokens else []
    return [tr("{model} on {server}", model=stats.remote.model, server=stats.remote.server), *count]


def explain(message: StoredMessage) -> str:
    """The longer account for the tooltip: counts, seed, model, and the engine's own sentence if it gave one."""
    stats, lines = message.stats, []
    if stats.remote is not None:
        model, server = stats.remote.model, stats.remote.server
        words = tr("{model} on {server}; counts are that server's, times are from here", model=model, server=server)
        lines.append(words)
    elif stats.model and stats.adapter:
        lines.append(tr("{model} with the adapter {adapter}", model=stats.model, adapter=stats.adapter))
    elif stats.model:
        lines.append(stats.model)
    lines += _origin_explained(stats)
    if stats.beside is not None:
        lines.append(tr("one of several answers: {heading}", heading=stats.beside.heading))
    if stats.usage is not None:
        usage = stats.usage
        values = {"tokens": usage.generated_tokens, "prompt": usage.prompt_tokens}
        if message.thinking:
            words = tr(
                "{tokens:,} tokens, {thinking:,} of them thinking, after a prompt of {prompt:,}",
                thinking=usage.thinking_tokens,
                **values,
            )
            lines.append(words)
        else:
            lines.append(tr("{tokens:,} tokens after a prompt of {prompt:,}", **values))
        lines.append(from_cache(usage))
    if stats.diverged is not None:
        lines.append(diverged(stats.diverged, stats.divergence))
    if stats.timings is not None:
        timings = stats.timings
        lines.append(tr("time to first token (TTFT) {time}", time=_milliseconds(timings.ttft_ms)))
        if stats.remote is None:
            lines.append(_course(timings))
        if timings.proposed and stats.usage is not None:
            lines += _speculation_explained(timings, stats.usage)
        if timings.preemptions:
            lines.append(tr("set back {times} times for want of memory", times=timings.preemptions))
    if stats.sampling.seed is not None:
        lines.append(tr("seed {seed}", seed=stats.sampling.seed))
    if stats.detail:
        lines.append(stats.detail)
    return "\n".join(lines)


def _origin_explained(stats: AnswerStats) -> list[str]:
    if not stats.continued_at:
        return [tr("your text, and not the model's")] if stats.edited else []
    chars = stats.continued_at
    if stats.edited:
        return [
            tr(
                "continued after {chars:,} characters, which are yours; all figures are those of the last part",
                chars=chars,
            )
        ]
    if stats.begun_by:
        return [
            tr(
                "continued after {chars:,} characters, which are of {model}; all figures are those of the last part",
                chars=chars,
                model=stats.begun_by,
            )
        ]
    return [tr("continued after {chars:,} characters; all figures are those of the last part", chars=chars)]


def _course(timings: Timings) -> str:
    return plural(
        "1 step in {seconds:.2f} s, {queued:.0f} ms in the queue",
        "{n:,} steps in {seconds:.2f} s, {queued:.0f} ms in the queue",
        timings.steps,
        seconds=timings.total_ms / 1000,
        queued=timings.queued_ms,
    )


def speculation(timings: Timings, usage: Usage) -> list[str]:
    """Gains of speculative decoding, the first figure first; empty if no token was drafted.

    Each step reads the model's weights once (a forward pass); without drafts there is one for each token.
    """
    if not timings.proposed or not timings.steps:
        return []
    return [
        tr("{rate:.1f} tokens per step", rate=timings.tokens_per_step),
        plural("1 forward pass saved", "{n:,} forward passes saved", _saved(timings, usage)),
        tr("{share:.0f} % of drafts accepted", share=100 * timings.accepted / timings.proposed),
    ]


def _speculation_explained(timings: Timings, usage: Usage) -> list[str]:
    return [
        plural(
            "{accepted:,} of 1 drafted token accepted",
            "{accepted:,} of {n:,} drafted tokens accepted",
            timings.proposed,
            accepted=timings.accepted,
        ),
        plural(
            "1 forward pass saved: {rate:.1f} tokens per step, where a step without speculation gives one token",
            "{n:,} forward passes saved: {rate:.1f} tokens per step, where a step without speculation gives one token",
            _saved(timings, usage),
            rate=timings.tokens_per_step,
        ),
    ]


def _saved(timings: Timings, usage: Usage) -> int:
    """Forward passes that speculation saved."""
    return max(0, usage.generated_tokens - timings.steps)


def from_cache(usage: Usage) -> str:
    cached = usage.cached_tokens
    return tr("prompt: {cached:,} cached + {new:,} new tokens", cached=cached, new=usage.prompt_tokens - cached)


def _short(usage: Usage) -> str:
    return tr("{cached:,} of {prompt:,} cached", cached=usage.cached_tokens, prompt=usage.prompt_tokens)


def diverged(token: int, why: str) -> str:
    """Say at which token the prompt left the earlier conversation, beyond which the cache served nothing, and why."""
    reason = why.strip().rstrip(".")
    if not why.strip():
        return tr("The prompt leaves the earlier conversation at token {token:,}.", token=token)
    return tr("The prompt leaves the earlier conversation at token {token:,}: {reason}.", token=token, reason=reason)


def reading_prompt(done: int, total: int) -> str:
    return tr("reading the prompt {done:,} / {total:,}", done=done, total=total)


def loading_model(loading: Loading) -> str:
    name = Path(loading.model).name
    return tr("loading {name}: {stage} {share:.0%}", name=name, stage=loading.stage, share=loading.fraction)


def _figures(stats: AnswerStats, first: bool) -> list[str]:
    if stats.timings is None or stats.usage is None or not stats.usage.generated_tokens:
        return []
    timings = stats.timings
    parts = []
    if stats.usage.generated_tokens > 1:  # the rate is of the tokens after the first
        parts.append(tr("{rate:,.1f} tok/s", rate=timings.tokens_per_second))
    if first or not parts:
        parts.append(tr("TTFT {time}", time=_milliseconds(timings.ttft_ms)))
    return parts


def _milliseconds(value: float) -> str:
    return tr("{time:,.0f} ms", time=value) if value < 10_000 else tr("{time:,.1f} s", time=value / 1000)
