"""What the figures of an answer have to teach: the experiment of the Lab that explains the largest of them."""

from __future__ import annotations

from app.history.records import StoredMessage
from app.language import tr

PREFIXES, SPECULATION = "prefixes", "speculation"
"""Experiments of the Lab."""
LEAST_PER_STEP = 2.0
LEAST_CACHED = 0.5
"""The share of the prompt that came from the cache, from which on it is worth a word."""
LEAST_TOKENS = 64
"""Tokens from the cache below which nothing much was saved."""


def lesson(message: StoredMessage) -> str:
    """Name of the experiment that explains the answer's figures; "" where there is nothing to explain."""
    usage, timings = message.stats.usage, message.stats.timings
    if message.stats.remote is not None or usage is None or timings is None:
        return ""
    if timings.proposed and timings.tokens_per_step >= LEAST_PER_STEP:
        return SPECULATION
    if usage.cached_tokens >= max(LEAST_TOKENS, LEAST_CACHED * usage.prompt_tokens):
        return PREFIXES
    return ""


def about(message: StoredMessage) -> str:
    """The figure that it is about: "3.1 tokens a step"."""
    usage, timings = message.stats.usage, message.stats.timings
    if timings is not None and lesson(message) == SPECULATION:
        return tr("{count:.1f} tokens a step", count=timings.tokens_per_step)
    if usage is None:
        return ""
    return tr("{cached:,} of {prompt:,} tokens from the cache", cached=usage.cached_tokens, prompt=usage.prompt_tokens)
