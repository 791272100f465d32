"""What the speed of answers is made of: sentences from what was measured lately, none from what was not."""

from __future__ import annotations

from engine.base.sizes import figure, human
from engine.decoding.telemetry.why.facts import Facts

OWN_WORK = 0.25
"""Share of a step that the program's own work takes, from which it is named as what sets the pace."""
NEAR_LIMIT = 0.6
"""Share of the memory's speed from which reading sets the pace."""


def made_of(facts: Facts) -> list[str]:
    """How long a step takes, what it reads, how many tokens it gives, and how much of the last prompt was there."""
    found = (_step(facts), _reads(facts), _tokens(facts), _prompt(facts), _pace(facts))
    return [each for each in found if each]


def _step(facts: Facts) -> str:
    frame = facts.frame
    if frame.latency.step_ms is None:
        return ""
    own = (
        f", of which Kvasir's own work around the model takes {figure(frame.latency.host_ms)} ms"
        if frame.latency.host_ms
        else ""
    )
    return f"A step takes {figure(frame.latency.step_ms)} ms{own}."


def _reads(facts: Facts) -> str:
    once = facts.frame.bytes_per_pass
    if once is None:
        return f"A pass over the model reads {human(facts.weights)} of weights." if facts.weights else ""
    kept = once - facts.weights
    if not facts.weights or kept <= 0:
        return f"A pass over the model reads {human(int(once))}."
    return (
        f"A pass over the model reads {human(int(once))}: {human(facts.weights)} of weights and {human(int(kept))} of "
        "keys and values."
    )


def _tokens(facts: Facts) -> str:
    """How many tokens an answer gets of a step."""
    frame = facts.frame
    if frame.bytes_per_pass is None:  # nothing was written
        return ""
    drafted = [one for one in frame.acceptance if one.proposed]
    if not drafted:
        return "Each gives an answer one token: nothing was drafted."
    best = max(drafted, key=lambda one: one.proposed)
    share = 100 * best.accepted / best.proposed
    return (
        f"One that checks drafts gives an answer {best.tokens_per_step:.1f} tokens, others one: {share:.0f} % of "
        f"{best.proposed:,} drafted ones were accepted."
    )


def _prompt(facts: Facts) -> str:
    prompt = facts.prompt
    if prompt is None or not prompt.tokens:
        return ""
    if not prompt.cached:
        return f"None of the last prompt's {prompt.tokens:,} tokens were in the cache: all were read."
    return (
        f"Of the last prompt's {prompt.tokens:,} tokens {prompt.cached:,} came from the cache, and "
        f"{prompt.tokens - prompt.cached:,} were read."
    )


def _pace(facts: Facts) -> str:
    """What limits it, where the figures say so."""
    frame = facts.frame
    if facts.cached:  # the memory's speed says nothing of what the processor's cache gives
        return ""
    if frame.bandwidth_share is not None and frame.bandwidth_share >= NEAR_LIMIT:
        return f"Memory sets the pace: {100 * frame.bandwidth_share:.0f} % of its speed is used."
    if frame.latency.step_ms and frame.latency.host_ms and frame.latency.host_ms >= OWN_WORK * frame.latency.step_ms:
        share = 100 * frame.latency.host_ms / frame.latency.step_ms
        return f"Kvasir's own work sets the pace as much as the model does: it is {share:.0f} % of a step."
    if frame.bandwidth_share is not None:
        share = 100 * frame.bandwidth_share
        return f"Arithmetic sets the pace: {share:.0f} % of the memory's speed is used."
    return ""
