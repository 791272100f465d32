"""What stands under an answer, in words."""

from __future__ import annotations

from app.history.records import AnswerStats, Message

REASONS = {
    "stop": "finished",
    "length": "length limit",
    "context": "context full",
    "cancelled": "stopped",
    "memory": "out of memory",
    "error": "interrupted",
}


def describe(message: Message, cached: bool = True) -> str:
    """For example "87.4 tok/s · first token 61 ms · 3.2 tokens a step · finished".

    ``cached`` adds how much of the prompt was in the cache already.
    """
    parts = _figures(message.stats)
    if cached and parts and message.stats.usage is not None and message.stats.usage.cached_tokens:
        parts.append(
            f"{message.stats.usage.cached_tokens:,} of {message.stats.usage.prompt_tokens:,} prompt tokens cached"
        )
    if message.state == "interrupted":
        parts.append("interrupted")
    elif message.stats.reason is not None:
        parts.append(REASONS[message.stats.reason])
    return " · ".join(parts)


def explain(message: Message) -> str:
    """The longer account for the tooltip: counts, seed, model, and the engine's own sentence if it gave one."""
    stats, lines = message.stats, []
    if stats.model:
        lines.append(stats.model)
    if stats.usage is not None:
        usage = stats.usage
        thought = f", {usage.thinking_tokens:,} of them thinking," if message.thinking else ""
        lines.append(f"{usage.generated_tokens:,} tokens{thought} after a prompt of {usage.prompt_tokens:,}")
        lines.append(f"{usage.cached_tokens:,} prompt tokens were cached")
    if stats.timings is not None:
        timings = stats.timings
        lines.append(
            f"{timings.steps:,} steps in {timings.total_ms / 1000:.2f} s, {timings.queued_ms:.0f} ms in the queue"
        )
        if timings.proposed:
            lines.append(f"{timings.accepted:,} of {timings.proposed:,} guesses accepted")
        if timings.preemptions:
            lines.append(f"set back {timings.preemptions} times for want of memory")
    if stats.sampling.seed is not None:
        lines.append(f"seed {stats.sampling.seed}")
    if stats.detail:
        lines.append(stats.detail)
    return "\n".join(lines)


def reading_prompt(done: int, total: int) -> str:
    return f"reading the prompt {done:,} / {total:,}"


def _figures(stats: AnswerStats) -> list[str]:
    if stats.timings is None or stats.usage is None or not stats.usage.generated_tokens:
        return []
    timings = stats.timings
    parts = []
    if stats.usage.generated_tokens > 1:  # the rate is of the tokens after the first
        parts.append(f"{timings.tokens_per_second:,.1f} tok/s")
    parts.append(f"first token {_milliseconds(timings.ttft_ms)}")
    if timings.steps:
        parts.append(f"{timings.tokens_per_step:.1f} tokens a step")
    return parts


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"
