"""One prompt replayed with one switch both ways: same seed, in pairs whose order is drawn by lot."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product, zip_longest
from typing import NamedTuple

import msgspec

from engine import catalogue
from engine.cache.pool import PAGE_SIZE
from engine.catalogue import Option, OptionError
from engine.catalogue.metrics import FIRST_TOKEN, SPEED
from engine.catalogue.replay import replayed
from engine.decoding.telemetry import pairs
from engine.decoding.telemetry.processor import OtherPrograms
from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadedModel
from engine.loop.admission import NO_MODEL
from engine.loop.events import Event
from engine.protocol import (
    CallCollector,
    Compare,
    Compared,
    CompareProgress,
    Delta,
    Effect,
    Error,
    Finished,
    Message,
    Metric,
    Options,
    OptionSpec,
    Run,
    Sampling,
    Set,
    Timings,
    Usage,
    Value,
    compared,
    keys,
)
from engine.services.answers.answering import tokenised
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.hub import EngineHub
from engine.text.prompt import PromptForm

MOST_TOKENS = 256
"""Tokens of a run, when the prompt's own limit is not shorter."""
LEAST_TOKENS, WARM_TOKENS = 16, 32
"""Tokens of a run where these take long already, and of the runs that come first and do not count."""
RELOADED_TOKENS = 4
"""Tokens of the answer that warms up a model that has just been loaded."""
RUN_SECONDS = 2.0
"""What a run of more tokens than the least should take, without its prompt."""
SECONDS, MOST_SECONDS = 60.0, 300.0
"""After the first, no pair is added to the least number; after the second, not even that number is run."""
BUSY = "Other answers were being written at the same time, which disturbs the measurement."
SAME_LAW = "The words differ, drawn by the same probabilities."
CHANCE = "This switch is lossy: here it changed no token, elsewhere it may."
NOT_FOUND = (
    f"Nothing of this prompt was found in the cache: it is shorter than a page of {PAGE_SIZE} tokens, "
    "or this cache shares no text."
)


class MeasuredRun(NamedTuple):
    """One run: what it gave and how long it took; ``cut``: the answer would have gone on."""

    run: Run
    ids: list[int]
    text: str = ""
    cut: bool = False


Pair = tuple[MeasuredRun, MeasuredRun]
"""The runs with values[0] and values[1], whichever came first."""


async def compare(hub: EngineHub, message: Compare, send: Callable[[Message], None]) -> Compared:
    """Run the comparison and put the switch back as it was.

    Raises :class:`Refused` or engine.text.template.PromptError; when cancelled, the run in progress is cancelled too.
    """
    option, values = _checked(hub, message)
    if elsewhere := option.metric_of(values[1]).elsewhere:
        raise Refused("bad_option", elsewhere)
    return await replay(hub, message, option, values, send)


async def replay(
    hub: EngineHub, message: Compare, option: Option, values: Sequence[Value], send: Callable[[Message], None]
) -> Compared:
    """Same as :func:`compare`, but without checking the message: the two values may be equal."""
    form = PromptForm(tools=message.tools)
    prompt = await tokenised(hub, message.prompt, message.thinking, form)
    sampling = msgspec.structs.replace(
        message.sampling,
        seed=message.sampling.seed if message.sampling.seed is not None else random.getrandbits(31),
        max_tokens=min(message.sampling.max_tokens or MOST_TOKENS, MOST_TOKENS),
    )
    asked = AnswerRequest(message.prompt, thinking=message.thinking, form=form, adapter=message.adapter)
    runner = _Runner(hub, option, asked, prompt)
    done = 0

    def progress(total: int) -> None:
        nonlocal done
        done += 1
        send(CompareProgress(id=message.id, done=done, total=total))

    rounds = max(0, min(pairs.MOST, message.rounds))
    metric = option.metric_of(values[1])
    measured: list[Pair] = []
    try:
        least = 2 + 2 * (rounds or pairs.LEAST)
        cut = await _warmed_up(runner, values, sampling, lambda: progress(least))
        programs, began = OtherPrograms(), time.monotonic()
        while not _enough(metric, measured, rounds, time.monotonic() - began):
            pair = {}
            for side in random.sample((0, 1), 2):
                pair[side] = await runner.run(values[side], cut)
                progress(max(least, 4 + 2 * len(measured)))
            measured.append((pair[0], pair[1]))
        others = programs.share()
    finally:
        runner.restore()
        task = asyncio.current_task()
        if task is not None and not task.cancelling():  # who cancels waits for nothing
            with contextlib.suppress(TimeoutError):
                await hub.caught_up()
    own_length = cut.max_tokens == message.sampling.max_tokens
    ended = own_length or not any(one.cut for pair in measured for one in pair)
    notes = list(_about_runs(runner.disturbed, others, 0 if ended else cut.max_tokens or 0))
    notes += _about_answers(option, values, measured)
    return summary(message.id, option, values, measured, " ".join(notes))


async def _warmed_up(
    runner: _Runner, values: Sequence[Value], sampling: Sampling, progress: Callable[[], None]
) -> Sampling:
    """Run both ways once; ``sampling`` with as many tokens as the answer has, or as can be measured in good time."""
    tokens, rate = sampling.max_tokens or MOST_TOKENS, float("inf")
    for value in values:
        asked = min(tokens, WARM_TOKENS)
        warm = await runner.run(value, msgspec.structs.replace(sampling, max_tokens=asked))
        if len(warm.ids) < asked:
            tokens = max(1, len(warm.ids))
        rate = min(rate, warm.run.tokens_per_second or rate)
        progress()
    in_time = tokens if rate == float("inf") else max(LEAST_TOKENS, int(RUN_SECONDS * rate))
    return msgspec.structs.replace(sampling, max_tokens=min(tokens, in_time))


def _enough(metric: Metric, measured: Sequence[Pair], rounds: int, seconds: float) -> bool:
    """Return True if no further pair is run: all ``rounds`` were, the switch's own figure is settled, or time is up."""
    count = len(measured)
    if rounds or count < pairs.LEAST:
        return count >= (rounds or pairs.LEAST) or (count > 0 and seconds > MOST_SECONDS)
    return count >= pairs.MOST or seconds > SECONDS or pairs.settled(_estimate(metric, measured))


def _about_runs(disturbed: bool, others: float, cut: int) -> Iterator[str]:
    if disturbed:
        yield BUSY
    if said := compared.busy(others):
        yield said
    if cut:
        yield f"Measured over the first {cut} tokens of the answer."


def _about_answers(option: Option, values: Sequence[Value], measured: Sequence[Pair]) -> Iterator[str]:
    same = first_difference([run.ids for pair in measured for run in pair]) is None
    exactness = {option.exactness_of(value) for value in values}
    if "approximate" in exactness and same:
        yield CHANCE
    if "same distribution" in exactness and not same:
        yield SAME_LAW
    if option.key == keys.PREFIX_CACHE and values[1] and not any(on.run.cached_tokens for _, on in measured):
        yield NOT_FOUND


def summary(id: str, option: Option, values: Sequence[Value], measured: Sequence[Pair], note: str = "") -> Compared:
    """Summarise the pairs, figure by figure; a ratio of speeds only if all runs gave the same tokens."""
    difference = first_difference([run.ids for pair in measured for run in pair])
    speed, own = _estimate(SPEED, measured), option.metric_of(values[1])
    # The switch's own figure, then what is worth knowing of any.
    metrics = dict.fromkeys([own, SPEED, FIRST_TOKEN] if own.figure else [SPEED, FIRST_TOKEN])
    return Compared(
        id=id,
        key=option.key,
        values=list(values),
        runs=[one.run for pair in measured for one in pair],
        same=difference is None,
        before=speed.before,
        after=speed.after,
        ratio=speed.after / speed.before if difference is None and speed.before > 0 else None,
        first_difference=difference,
        note=note,
        effects=[_estimate(metric, measured) for metric in metrics],
        texts=_unlike(measured) if difference is not None else [],
    )


def _estimate(metric: Metric, measured: Sequence[Pair]) -> Effect:
    before, after = ([getattr(pair[side].run, metric.figure) for pair in measured] for side in (0, 1))
    return pairs.estimate(before, after, metric)


def _unlike(measured: Sequence[Pair]) -> list[str]:
    """One answer of each side, which differ."""
    off, on = zip(*measured, strict=True)
    return next([a.text, b.text] for a, b in product(off, on) if a.ids != b.ids)


def first_difference(answers: Sequence[Sequence[int]]) -> int | None:
    """Index of the first token at which the answers are not all equal; None when they are."""
    for index, tokens in enumerate(zip_longest(*answers)):
        if len(set(tokens)) > 1:
            return index
    return None


def run_of(
    value: Value, tokens: int, timings: Timings, usage: Usage, steps: Sequence[StepRecord], loaded: LoadedModel | None
) -> Run:
    """The figures of an answer of so many tokens, written with a switch at ``value``; ``steps`` are those it took."""
    kept = loaded.reads.kv_per_token if loaded is not None else 0.0
    model = loaded.model if loaded is not None else None
    pages = [step.pages.used - step.pages.cached for step in steps]
    live = sum(step.pages.live_tokens - PAGE_SIZE * step.pages.cached for step in steps)
    writing = [step for step in steps if step.rows.prefill == 0]
    return Run(
        value=value,
        tokens_per_second=timings.tokens_per_second,
        ttft_ms=timings.ttft_ms,
        tokens=tokens,
        tokens_per_step=timings.tokens_per_step,
        cached_tokens=usage.cached_tokens,
        kv_bytes_per_token=kept,
        weight_bytes=model.storage_size() if model is not None else 0,
        cache_bytes=max(pages, default=0) * PAGE_SIZE * kept,
        unused_slots=1 - live / (PAGE_SIZE * sum(pages)) if any(pages) else 0.0,
        read_bytes_per_token=sum(s.bytes_read for s in writing) / max(1, sum(s.generated for s in writing)),
    )


def _checked(hub: EngineHub, message: Compare) -> tuple[Option, list[Value]]:
    if hub.loaded is None:
        raise Refused("no_model", NO_MODEL)
    try:
        option = catalogue.option(message.key)
        values = [option.parse(value) for value in message.values or option.measure.compare]
    except OptionError as error:
        raise Refused("bad_option", str(error)) from error
    if len(values) != 2 or _same(*values):
        text = f"A comparison of {option.title.lower()} needs two different values. Name the two to compare."
        raise Refused("bad_option", text)
    return option, values


def text_of(deltas: Sequence[Delta]) -> str:
    """The text of an answer, with the calls of tools behind it."""
    calls = CallCollector()
    for delta in deltas:
        calls.take(delta)
    called = [f"{call.name} {call.arguments}" for call in calls.calls]
    return "\n".join(filter(None, ("".join(delta.text for delta in deltas), *called)))


def _present(state: Sequence[OptionSpec], key: str) -> Value:
    return next(spec.value for spec in state if spec.key == key)


def _same(one: Value, other: Value) -> bool:
    """Equal, and of the same type: False is not 0 here."""
    return type(one) is type(other) and one == other


class _Runner:
    def __init__(self, hub: EngineHub, option: Option, asked: AnswerRequest, tokens: PromptTokens) -> None:
        self._hub, self._option, self._asked, self._tokens = hub, option, asked, tokens
        self.disturbed = False
        self._before = _present(hub.engine.catalogue_state(), option.key)
        self._changed = False

    async def run(self, value: Value, sampling: Sampling) -> MeasuredRun:
        """One answer with the switch at ``value``; after a reload a short one goes before it, which does not count."""
        if self._option.scope == "engine" and not _same(
            _present(self._hub.engine.catalogue_state(), self._option.key), value
        ):
            await self._set(value)
            if self._option.applies == "reload":
                await self._answer(value, msgspec.structs.replace(sampling, max_tokens=RELOADED_TOKENS))
        return await self._answer(value, sampling)

    async def _answer(self, value: Value, sampling: Sampling) -> MeasuredRun:
        optimisations = replayed(self._option.key)
        if self._option.scope == "request":
            optimisations[self._option.key] = value
        self.disturbed = self.disturbed or self._hub.answering > 0
        deltas: list[Delta] = []
        steps: list[StepRecord] = []
        unwatch = self._hub.watch(steps.append)
        asked = self._asked._replace(sampling=sampling, optimisations=optimisations)
        stream = Stream(self._hub, [PromptRequest(asked.command(self._tokens))])
        try:
            async for message in stream.messages():
                if isinstance(message, Delta):
                    deltas.append(message)
                elif isinstance(message, Finished):
                    finished = message
            await self._hub.caught_up()  # the last step's record comes after its end
        finally:
            stream.leave()
            unwatch()
        self.disturbed = self.disturbed or self._hub.answering > 0
        ids = [token.id for delta in deltas for token in delta.tokens]
        run = run_of(value, len(ids), finished.timings, finished.usage, steps, self._hub.loaded)
        return MeasuredRun(run, ids, text_of(deltas), finished.reason == "length")

    def restore(self) -> None:
        """Put an engine-wide switch back, after whatever of this comparison the engine has yet to do.

        The engine says so itself if that fails.
        """
        if self._changed:  # what it is now says nothing: a change may still be waiting
            self._hub.submit(Set(key=self._option.key, value=self._before))

    async def _set(self, value: Value) -> None:
        """Set the switch and wait until it holds (a reload included)."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def listener(event: Event) -> None:
            if done.done():
                return
            if isinstance(event, Options) and _same(_present(event.catalogue, self._option.key), value):
                done.set_result(None)
            elif isinstance(event, Error):
                done.set_exception(Refused(event.code, event.message))

        stop = self._hub.listen(listener)
        self._changed = True
        try:
            self._hub.submit(Set(key=self._option.key, value=value))
            await done
            self._changed = not _same(value, self._before)
        finally:
            stop()
