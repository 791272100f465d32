"""Every switch of the catalogue on and off, side by side: the same prompts, the same seed, in turn.

In addition to speed, each switch is measured by what it is for: the share of empty slots for page reservation, the
longest wait of a running answer while another prompt is read for chunked prefill, the bytes of the weights, the share
of draft tokens accepted.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from engine.bench.client import Answer, EngineClient
from engine.catalogue import CATALOGUE, keys
from engine.protocol import OptionSpec, Sampling, Value
from engine.telemetry.pairs import estimate

PAGE_TOKENS = 16
DRAFTERS: Mapping[str, tuple[str, ...]] = {
    keys.DRAFT_LENGTH: ("draft", "ngram"),
    keys.NGRAM_FIRST: ("draft", "exit", "skip", "eagle", "medusa", "mtp"),
    keys.NGRAM_CHATS: ("ngram",),
    keys.TREE_NODES: ("eagle", "medusa"),
    keys.EXIT_LAYER: ("exit",),
    keys.ACCEPTANCE: ("draft", "exit", "skip", "eagle"),
}
"""Switches of speculation, and the draft methods that can show their effect; the first that the model has is used."""


class SwitchRow(msgspec.Struct, frozen=True):
    """One switch: medians before (values[0]) and after (values[1]); ``ratio`` of decoding speed by rounds, and the
    interval around it.

    ``same`` says whether every answer had the same tokens both ways; ``shown`` is the switch's own figure.
    """

    key: str
    title: str
    values: tuple[Value, Value]
    speed: tuple[float, float]
    first_ms: tuple[float, float]
    ratio: float
    same: bool
    shown: str
    interval: tuple[float, float] = (0.0, 0.0)


class BundledFigures(msgspec.Struct, frozen=True):
    """The model that ships with the program: seconds and bytes."""

    name: str
    load_seconds: float
    peak: int
    rest: int
    switches: list[SwitchRow]
    absent: list[str] = []
    """What could not be measured with this model, and why."""


def measure_switches(
    client: EngineClient,
    prompts: Sequence[list[int]],
    long_prompt: list[int],
    *,
    tokens: int = 96,
    rounds: int = 3,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[SwitchRow], list[str]]:
    """One row for each pair of values that can be compared with the model that ``client`` has loaded.

    And the switches that nothing of this model can show, with the reason.
    """
    sampling = Sampling(temperature=0.0, max_tokens=tokens, seed=1, ignore_eos=True)
    state = {spec.key: spec for spec in client.engine.catalogue_state()}
    rows, absent = [], []
    for entry in CATALOGUE:
        kinds = DRAFTERS.get(entry.key)
        if kinds is not None and not _drafter(entry.key, state[keys.SPECULATION]):
            absent.append(f"{entry.title}: {state[keys.SPECULATION].disabled_choices[kinds[0]]}")
            continue
        for before, after in _pairs(state[entry.key]):
            say(f"{entry.title}: {before} against {after}")
            rows.append(_measure(client, state[entry.key], (before, after), prompts, long_prompt, sampling, rounds))
    return rows, absent


def _drafter(key: str, speculation: OptionSpec) -> str:
    """The draft method that shows the switch ``key`` with the loaded model; an empty string where there is none."""
    return next((kind for kind in DRAFTERS[key] if kind not in speculation.disabled_choices), "")


def _pairs(spec: OptionSpec) -> list[tuple[Value, Value]]:
    """The declared comparison, and the first choice against every other that can apply."""
    if not spec.compare:
        return []
    if spec.kind == "choice" and spec.applies != "reload" and spec.default == spec.choices[0] == spec.compare[0]:
        return [(spec.default, choice) for choice in spec.choices[1:] if choice not in spec.disabled_choices]
    return [(spec.compare[0], spec.compare[1])]


class _Side(NamedTuple):
    value: Value
    answers: list[Answer]
    stalls: list[float]
    speeds: list[float]
    """One for each round."""


def _measure(
    client: EngineClient,
    spec: OptionSpec,
    values: tuple[Value, Value],
    prompts: Sequence[list[int]],
    long_prompt: list[int],
    sampling: Sampling,
    rounds: int,
) -> SwitchRow:
    before, after = (_Side(value, [], [], []) for value in values)
    weights: dict[Value, int] = {}
    for side in [side for _ in range(rounds) for side in random.sample([before, after], 2)]:
        overrides = _apply(client, spec, side.value)
        weights[side.value] = client.weight_bytes()
        client.answer(prompts[0], sampling, overrides)  # warm-up: caches, buckets, draft length
        answers = [client.answer(prompt, sampling, overrides) for prompt in prompts]
        side.answers.extend(answers)
        side.speeds.append(_median_speed(answers))
        if spec.key == keys.CHUNKED_PREFILL:
            side.stalls.append(_longest_wait(client, prompts[0], long_prompt, sampling))
    client.set(spec.key, spec.value)
    gain = estimate(before.speeds, after.speeds)
    return SwitchRow(
        spec.key,
        spec.title,
        values,
        (_median_speed(before.answers), _median_speed(after.answers)),
        (_median_first(before), _median_first(after)),
        gain.ratio or 0.0,
        all(a.ids == b.ids for a, b in zip(before.answers, after.answers, strict=True)),
        _shown(spec.key, before, after, weights),
        (gain.low, gain.high),
    )


def _apply(client: EngineClient, spec: OptionSpec, value: Value) -> dict[str, Value]:
    """Set an engine-wide switch now; a switch of each answer becomes an override of the request."""
    if spec.scope == "engine":
        client.set(spec.key, value)
        return {}
    overrides: dict[str, Value] = {spec.key: value}
    if spec.key in DRAFTERS:
        speculation = next(spec for spec in client.engine.catalogue_state() if spec.key == keys.SPECULATION)
        overrides[keys.SPECULATION] = _drafter(spec.key, speculation)
    return overrides


def _longest_wait(client: EngineClient, prompt: list[int], long_prompt: list[int], sampling: Sampling) -> float:
    """Seconds of the longest gap between two tokens of a running answer while a long prompt arrives."""
    return max(client.interrupted(prompt, long_prompt, sampling).gaps)


def _median_speed(answers: Sequence[Answer]) -> float:
    return statistics.median(answer.timings.tokens_per_second for answer in answers)


def _median_first(side: _Side) -> float:
    return statistics.median(answer.timings.ttft_ms for answer in side.answers)


def _shown(key: str, before: _Side, after: _Side, weights: dict[Value, int]) -> str:
    match key:
        case keys.PAGE_RESERVATION:
            return f"empty slots {_waste(before):.0%} -> {_waste(after):.0%}"
        case keys.CHUNKED_PREFILL:
            first, second = statistics.median(before.stalls), statistics.median(after.stalls)
            return f"longest wait {first * 1000:.0f} -> {second * 1000:.0f} ms"
        case keys.WEIGHTS:
            return f"weights {weights[before.value] / 1e6:.1f} -> {weights[after.value] / 1e6:.1f} MB"
        case _ if key == keys.SPECULATION or key in DRAFTERS:
            return f"tokens per step {_per_step(before):.2f} -> {_per_step(after):.2f}, accepted {_accepted(after)}"
    return f"tokens per step {_per_step(before):.2f} -> {_per_step(after):.2f}"


def _waste(side: _Side) -> float:
    """Share of the slots of used pages that hold no token, over all steps."""
    used = sum(step.pages_used for answer in side.answers for step in answer.steps) * PAGE_TOKENS
    live = sum(step.live_tokens for answer in side.answers for step in answer.steps)
    return 1 - live / used if used else 0.0


def _per_step(side: _Side) -> float:
    return statistics.median(answer.timings.tokens_per_step for answer in side.answers)


def _accepted(side: _Side) -> str:
    proposed = sum(answer.timings.proposed for answer in side.answers)
    return f"{sum(answer.timings.accepted for answer in side.answers) / proposed:.0%}" if proposed else "none proposed"
