"""``kvasir bench --cache``: what each part of the cache is worth on traces that share text.

Each part is measured in all its ways that the model allows, in turn, on the same texts, each time from an empty cache.
In addition to the times it reports how much of the prompts was found, how many pages that took, and what share of them
held nothing, compared with what a reservation of the whole context would have wasted.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.catalogue import BY_KEY
from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadedModel
from engine.protocol import Value, keys
from engine.services.client import Answer, EngineClient, EngineError
from engine.services.experiments.measures.hits import MOST_SEQUENCES, measure_hit, measure_host
from engine.services.experiments.measures.parts import CacheFeature, FeatureVariant, parts
from engine.services.experiments.measures.timing import median_ratio, timed
from engine.services.experiments.pairs import turns
from engine.services.experiments.reports.cache import CacheFigures, CacheRow, CacheSide, TraceFigures
from engine.services.experiments.reports.tables import say
from engine.services.experiments.sides import Switched, greedy, with_cache
from engine.services.experiments.workloads.traces import ROOMY, TIGHT, TIGHT_ROOM, Trace, Words, words_of

TIGHT_CONTEXT = 2048
"""Tokens of context where the cache is made small."""
_Make = Callable[[Words, int], Trace]


def measure_cache(client: EngineClient, rounds: int) -> CacheFigures:
    """Every part on its traces, with the model that ``client`` has loaded; it is loaded anew with a smaller cache."""
    loaded = client.model
    card = loaded.card
    measuring = _TraceRunner(client, rounds)
    traces = [measuring.trace(make) for make in ROOMY]
    say(f"bookkeeping of {MOST_SEQUENCES} answers")
    host = measure_host(client)
    hit = measure_hit(client, rounds) if card.context >= 4200 else None
    tight, path = min(card.context, TIGHT_CONTEXT), loaded.command.path
    options = with_cache(loaded, int(TIGHT_ROOM * tight * loaded.reads.kv_per_token) + 1, tight)
    del loaded
    try:
        client.load(path, "", options)
        traces += [measuring.trace(make) for make in TIGHT]
    except EngineError as error:
        measuring.absent.append(f"a small cache: {error}")
    return CacheFigures(card.name, card.context, rounds, traces, list(dict.fromkeys(measuring.absent)), hit, host)


class _TraceRun(NamedTuple):
    """One way on a trace: the median time to first token, tokens a second of all answers together, the most in use."""

    answers: list[Answer]
    steps: list[StepRecord]
    first_ms: float
    tokens_per_second: float
    pages: int
    bytes: int
    swapped: int


class _TraceRunner:
    """Runs traces with one client; ``absent`` collects what could not be done."""

    def __init__(self, client: EngineClient, rounds: int) -> None:
        self._client, self._rounds = client, rounds
        self.absent: list[str] = []
        self._draw = random.Random(1)

    def trace(self, make: _Make) -> TraceFigures:
        """All parts that this trace shows."""
        card, fit = self._client.model.card, self._client.model.fit
        made = make(words_of(self._client.model, 0), card.context)
        rows: list[CacheRow] = []
        answers: list[Answer] = []
        for part in parts(self._client.state(), card.context):
            if isinstance(part, str):
                self.absent.append(part)
            elif made.name in part.traces:
                say(f"{made.title}: {part.title}")
                sides = self._sides(make, part)
                if len(sides) > 1:
                    rows.append(CacheRow(part.key, part.title, [_side(way, runs, sides[0][1]) for way, runs in sides]))
                answers = answers or [answer for _, runs in sides for answer in runs[0].answers][: made.requests]
        prompts = sum(answer.usage.prompt_tokens for answer in answers)
        # What each answer holds when it holds most, of a reservation of the whole context.
        held = [answer.usage.prompt_tokens + answer.usage.generated_tokens for answer in answers]
        wasted = 1 - statistics.mean(held) / card.context if held else 0.0
        return TraceFigures(made.name, made.title, made.requests, prompts, wasted, rows, fit.kv_tokens)

    def _sides(self, make: _Make, part: CacheFeature) -> list[tuple[FeatureVariant, list[_TraceRun]]]:
        """The runs of each way, taken in turn; a way that fails is left out."""
        runs: dict[str, list[_TraceRun]] = {way.title: [] for way in part.ways}
        for round, place in turns(len(part.ways), self._rounds, self._draw):
            way = part.ways[place]
            if way.title not in runs:
                continue
            try:
                runs[way.title].append(self._run(make, way, round))
            except EngineError as error:
                del runs[way.title]
                self.absent.append(f"{part.title}, {way.title}, on {make.__name__.replace('_', ' ')}: {error}")
        return [(way, runs[way.title]) for way in part.ways if way.title in runs]

    def _run(self, make: _Make, way: FeatureVariant, round: int) -> _TraceRun:
        """One trace from an empty cache, from its first request to its last answer. Raises EngineError."""
        client = self._client
        client.empty_cache()
        own = {key: value for key, value in way.settings.items() if BY_KEY[key].scope == "request"}
        overrides: dict[str, Value] = {keys.PREFIX_CACHE: True, **own}
        with Switched(client, {key: value for key, value in way.settings.items() if key not in own}):
            words = words_of(client.model, round)  # lengths are the same in every round, texts are not
            trace = make(words, client.model.card.context)
            client.answer(words.some(24), greedy(4))
            swapped = client.engine.cache_stats().swapped_out
            with timed() as whole:
                answers, steps = _answered(client, trace, overrides)
            pages = max((step.pages.used for step in steps), default=0)
            running = max((step.queue.running for step in steps), default=0)
            return _TraceRun(
                answers,
                steps,
                first_ms=statistics.median(answer.timings.ttft_ms for answer in answers),
                tokens_per_second=sum(len(answer.ids) for answer in answers) / whole.seconds,
                pages=pages,
                bytes=_bytes(client.model, pages, running),
                swapped=client.engine.cache_stats().swapped_out - swapped,
            )


def _answered(client: EngineClient, trace: Trace, overrides: dict[str, Value]) -> tuple[list[Answer], list[StepRecord]]:
    """All answers of a trace, in the order of its requests, and the steps that they took."""
    sampling = greedy(trace.answer)
    threads = [list(opening) for opening in trace.openings]
    answers: list[Answer] = []
    steps: list[StepRecord] = []
    for wave in trace.waves:
        prompts = [[*threads[ask.thread], *ask.tokens] for ask in wave]
        given = client.together(prompts, sampling, overrides)
        answers.extend(given)
        steps.extend(given[0].steps)  # each answer's steps are those of all of them
        if trace.grows:
            for ask, prompt, answer in zip(wave, prompts, given, strict=True):
                threads[ask.thread] = [*prompt, *answer.ids]
    return answers, steps


def _bytes(model: LoadedModel, pages: int, running: int) -> int:
    """Bytes that ``pages`` pages take in all arenas. Includes the recent tokens that ``running`` answers can have where
    those are kept apart; layers with a window count the windows of all answers."""
    total = 0
    for store in model.stores:
        total += pages * store.whole_bytes
        if store.windowed is not None:
            total += min(pages, running * (pages_for(store.window - 1) + 1)) * store.windowed.page_bytes
        if store.recent is not None:
            total += running * (pages_for(store.residual + CHANNEL_GROUP) + 1) * store.recent.page_bytes
    return total


def _side(way: FeatureVariant, runs: Sequence[_TraceRun], base: Sequence[_TraceRun]) -> CacheSide:
    answers = [answer for run in runs for answer in run.answers]
    others = [answer for run in base for answer in run.answers]
    steps = [step for run in runs for step in run.steps]
    firsts = sorted(answer.timings.ttft_ms for answer in answers)
    found = sum(answer.usage.cached_tokens for answer in answers)
    slots = sum(step.pages.used for step in steps) * PAGE_SIZE
    return CacheSide(
        title=way.title,
        approximate=way.approximate,
        ttft_median=statistics.median(firsts),
        ttft_p95=firsts[-(-95 * len(firsts) // 100) - 1],
        tokens_per_second=statistics.median(run.tokens_per_second for run in runs),
        hit_rate=found / sum(answer.usage.prompt_tokens for answer in answers),
        saved=found // len(runs),
        waste=1 - sum(step.pages.live_tokens for step in steps) / slots if slots else 0.0,
        pages=max(run.pages for run in runs),
        bytes=max(run.bytes for run in runs),
        preemptions=sum(step.preemptions for step in steps) // len(runs),
        swapped=sum(run.swapped for run in runs) // len(runs),
        first_ratio=median_ratio([run.first_ms for run in base], [run.first_ms for run in runs]),
        speed_ratio=median_ratio([run.tokens_per_second for run in runs], [run.tokens_per_second for run in base]),
        equal=sum(one.ids == other.ids for one, other in zip(answers, others, strict=True)),
        answers=len(answers),
    )
