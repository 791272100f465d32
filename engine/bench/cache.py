"""``kvasir bench --cache``: what each part of the cache is worth on traces that share text.

For every part that the loaded model allows, each trace is answered with it off and on, in turn. What is compared are
times to first token; beside them stands how much of the prompts was found, how many pages that took, and what share of
them held nothing, beside what a reservation of the whole context would have wasted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from engine.bench.client import Answer, EngineClient, EngineError
from engine.bench.measure import median_ratio
from engine.bench.traces import TRACES, Trace, Words
from engine.cache.pool import PAGE_SIZE
from engine.catalogue import BY_KEY
from engine.catalogue.replay import REUSE
from engine.core.events import StepRecord
from engine.protocol import OptionSpec, Sampling, Value

PARTS = (REUSE, "page_reservation", "cascade", "kv_kind", "page_policy", "preemption")
"""Switches that are measured, as far as the catalogue has them."""
ROUNDS = 2


class CacheSide(msgspec.Struct, frozen=True):
    """One way of a switch on one trace: times to first token in ms over all answers; tokens, pages and bytes.

    ``hit_rate`` is the share of prompt tokens that were found, ``saved`` their number in a round. ``waste`` is the
    share of the slots of used pages that held no token, over all steps. ``pages`` and ``bytes`` are the most in use.
    """

    value: Value
    ttft_median: float
    ttft_p95: float
    hit_rate: float
    saved: int
    waste: float
    pages: int
    bytes: int


class CacheRow(msgspec.Struct, frozen=True):
    """One part off (``before``) and on; ``ratio`` is of the median times to first token, before / after, by round.

    ``same``: every answer had the same tokens both ways; None where the texts were different ones.
    """

    part: str
    title: str
    before: CacheSide
    after: CacheSide
    ratio: float
    same: bool | None


class TraceFigures(msgspec.Struct, frozen=True):
    """``reserved_waste``: share of the slots that would hold nothing if each answer reserved the whole context."""

    name: str
    title: str
    requests: int
    prompt_tokens: int
    reserved_waste: float
    rows: list[CacheRow]


class CacheFigures(msgspec.Struct, frozen=True):
    """``absent`` says which parts were left out, and why."""

    model: str
    context: int
    rounds: int
    traces: list[TraceFigures]
    absent: list[str] = []


def measure_cache(
    client: EngineClient,
    *,
    rounds: int = ROUNDS,
    seed: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> CacheFigures:
    """Every trace with every part off and on, with the model that ``client`` has loaded."""
    loaded = client.engine.loaded
    assert loaded is not None
    card = loaded.card
    measuring = _Measuring(client, seed, say)
    traces: list[TraceFigures] = []
    absent: list[str] = []
    for number, make in enumerate(TRACES):
        rows = []
        for spec, values in _parts(client):
            try:
                rows.append(measuring.row(number, spec, values, rounds))
            except EngineError as error:
                absent.append(f"{spec.title} on {make.__name__.replace('_', ' ')}: {error}")
                client.set(spec.key, spec.value)
        trace = measuring.trace(number)
        answers = measuring.last.answers
        traces.append(
            TraceFigures(
                trace.name,
                trace.title,
                trace.requests,
                sum(answer.usage.prompt_tokens for answer in answers),
                _reserved_waste(answers, card.context),
                rows,
            )
        )
    return CacheFigures(card.name, card.context, rounds, traces, absent)


def _parts(client: EngineClient) -> Iterator[tuple[OptionSpec, tuple[Value, Value]]]:
    """The switches that can be compared with this model now, and their values off and on."""
    state = {spec.key: spec for spec in client.engine.catalogue_state()}
    for key in PARTS:
        if key in state and state[key].compare:
            yield state[key], (state[key].compare[0], state[key].compare[1])


class _Run(NamedTuple):
    answers: list[Answer]
    steps: list[StepRecord]

    @property
    def first_ms(self) -> float:
        return statistics.median(answer.timings.ttft_ms for answer in self.answers)


class _Measuring:
    """Runs traces; ``last`` is the latest run."""

    def __init__(self, client: EngineClient, seed: int, say: Callable[[str], None]) -> None:
        loaded = client.engine.loaded
        assert loaded is not None
        self._client, self._seed, self._say = client, seed, say
        self._context, self._kv_bytes = loaded.card.context, loaded.kv_bytes_per_token
        named = loaded.tokenizer.special_ids if loaded.tokenizer is not None else frozenset()
        # Special tokens would end a text, or mark its parts.
        self._vocabulary = [id for id in range(loaded.card.vocabulary) if id not in named]
        self._texts = 0
        self.last = _Run([], [])

    def trace(self, number: int) -> Trace:
        """Its lengths are those of every run; its texts are those of the newest."""
        return TRACES[number](Words(self._vocabulary, self._seed, self._texts), self._context)

    def row(self, number: int, spec: OptionSpec, values: tuple[Value, Value], rounds: int) -> CacheRow:
        """One part both ways in turn. Raises EngineError.

        No run may find in the cache what another left there, so each has texts of its own. Only where the reuse itself
        is measured both ways of a round have the same: it comes off first, and then leaves nothing.
        """
        self._say(f"{self.trace(number).title}: {spec.title}")
        sides: tuple[list[_Run], list[_Run]] = ([], [])
        shared = spec.key == REUSE
        order = [0] * rounds + [1] * rounds if spec.applies == "reload" else [0, 1] * rounds
        for side in order:
            self._texts += not (shared and side)
            sides[side].append(self._run(self.trace(number), spec, values[side]))
        self._client.set(spec.key, spec.value)
        before, after = (self._side(value, runs) for value, runs in zip(values, sides, strict=True))
        ratio = median_ratio([run.first_ms for run in sides[0]], [run.first_ms for run in sides[1]])
        ids = [[answer.ids for run in runs for answer in run.answers] for runs in sides]
        return CacheRow(spec.key, spec.title, before, after, ratio, ids[0] == ids[1] if shared else None)

    def _run(self, trace: Trace, spec: OptionSpec, value: Value) -> _Run:
        """One trace from its first request to its last answer."""
        overrides: dict[str, Value] = {REUSE: True} if REUSE in BY_KEY else {}
        if spec.scope == "engine":
            self._client.set(spec.key, value)
        else:
            overrides[spec.key] = value
        self.last = _answered(self._client, trace, overrides)
        return self.last

    def _side(self, value: Value, runs: Sequence[_Run]) -> CacheSide:
        answers = [answer for run in runs for answer in run.answers]
        steps = [step for run in runs for step in run.steps]
        firsts = sorted(answer.timings.ttft_ms for answer in answers)
        asked = sum(answer.usage.prompt_tokens for answer in answers)
        found = sum(answer.usage.cached_tokens for answer in answers)
        slots = sum(step.pages_used for step in steps) * PAGE_SIZE
        pages = max((step.pages_used for step in steps), default=0)
        return CacheSide(
            value=value,
            ttft_median=statistics.median(firsts),
            ttft_p95=firsts[-(-95 * len(firsts) // 100) - 1],
            hit_rate=found / asked,
            saved=found // len(runs),
            waste=1 - sum(step.live_tokens for step in steps) / slots if slots else 0.0,
            pages=pages,
            bytes=round(pages * PAGE_SIZE * self._kv_bytes),
        )


def _answered(client: EngineClient, trace: Trace, overrides: dict[str, Value]) -> _Run:
    """All answers of a trace, in the order of its requests."""
    sampling = Sampling(temperature=0.0, max_tokens=trace.answer, ignore_eos=True, seed=1)
    threads = [list(opening) for opening in trace.openings]
    run = _Run([], [])
    for wave in trace.waves:
        prompts = [[*threads[ask.thread], *ask.tokens] for ask in wave]
        given = client.together(prompts, sampling, overrides)
        run.answers.extend(given)
        run.steps.extend(given[0].steps)  # which are those of all of them
        if trace.grows:
            for ask, prompt, answer in zip(wave, prompts, given, strict=True):
                threads[ask.thread] = [*prompt, *answer.ids]
    return run


def _reserved_waste(answers: Sequence[Answer], context: int) -> float:
    """At their ends, when they hold most."""
    held = [answer.usage.prompt_tokens + answer.usage.generated_tokens for answer in answers]
    return 1 - statistics.mean(held) / context if held else 0.0
