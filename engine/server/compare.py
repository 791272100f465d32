"""One prompt replayed with one switch both ways: same seed, interleaved, unlike answers never compared."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from itertools import zip_longest
from statistics import median
from typing import NamedTuple

import msgspec

from engine import catalogue
from engine.catalogue import Option, OptionError
from engine.catalogue.replay import replayed
from engine.core.commands import SetOption
from engine.core.events import ErrorEvent, Event, FinishedEvent, OptionsEvent, TokensEvent
from engine.protocol import Compare, Compared, CompareProgress, Message, OptionSpec, Run, Sampling, Value
from engine.server.answering import NO_MODEL, Refused, tokenised
from engine.server.hub import EngineHub, RequestEvent

MAX_ROUNDS = 20
MOST_TOKENS = 256
"""Tokens of a run, when the prompt's own limit is not shorter."""
GROUPED = "Switching reloads the model, so the runs of each side followed each other instead of taking turns."
BUSY = "Other answers were being written at the same time, which disturbs the measurement."
SHORT = f"Measured over the first {MOST_TOKENS} tokens of the answer."
SAME_LAW = "The words differ, drawn by the same probabilities; speeds are compared on equal texts only."
CHANCE = "This switch is approximate: here it changed no token, elsewhere it may."
MANY = frozenset({"admission", "preemption", "host_cache", "cascade"})
"""Switches of what many answers do to each other."""
ALONE = "One answer alone makes no use of this switch: kvasir bench --cache measures it on many."


class Measured(NamedTuple):
    """One run: what it gave and how long it took."""

    run: Run
    ids: list[int]


async def compare(hub: EngineHub, message: Compare, send: Callable[[Message], None]) -> Compared:
    """Run the comparison and put the switch back as it was.

    Raises :class:`Refused` or engine.text.template.PromptError; when cancelled, the run in progress is cancelled too.
    """
    option, values = _checked(hub, message)
    prompt = await tokenised(hub, message.prompt, message.thinking)
    sampling = msgspec.structs.replace(
        message.sampling,
        seed=message.sampling.seed if message.sampling.seed is not None else random.getrandbits(31),
        max_tokens=min(message.sampling.max_tokens or MOST_TOKENS, MOST_TOKENS),
    )
    runner = _Runner(hub, option, prompt, isinstance(message.prompt, str))
    rounds = max(1, min(MAX_ROUNDS, message.rounds))
    total = 2 * rounds + 2
    done = 0

    def progress() -> None:
        nonlocal done
        done += 1
        send(CompareProgress(id=message.id, done=done, total=total))

    measured: list[Measured] = []
    try:
        for group in _order(option, values, rounds):
            for value in dict.fromkeys(group):  # each way is warmed up first, and the first answer sets the length
                warm = await runner.run(value, sampling)
                sampling = msgspec.structs.replace(sampling, max_tokens=max(1, len(warm.ids)))
                progress()
            for value in group:
                measured.append(await runner.run(value, sampling))
                progress()
    finally:
        runner.restore()
        task = asyncio.current_task()
        if task is not None and not task.cancelling():  # who cancels waits for nothing
            with contextlib.suppress(TimeoutError):
                await hub.caught_up()
    notes = [GROUPED] if option.applies == "reload" else []
    if runner.disturbed:
        notes.append(BUSY)
    if sampling.max_tokens == MOST_TOKENS and message.sampling.max_tokens != MOST_TOKENS:
        notes.append(SHORT)
    if option.key in MANY:
        notes.append(ALONE)
    exactness = {option.exactness_of(value) for value in values}
    same = first_difference([m.ids for m in measured]) is None
    if "approximate" in exactness and same:
        notes.append(CHANCE)
    if "same distribution" in exactness and not same:
        notes.append(SAME_LAW)
    return summary(message.id, option.key, values, measured, " ".join(notes))


def summary(id: str, key: str, values: Sequence[Value], measured: Sequence[Measured], note: str = "") -> Compared:
    """Medians per side; a ratio only if all runs gave the same tokens."""
    difference = first_difference([m.ids for m in measured])
    off = [m.run for m in measured if _same(m.run.value, values[0])]
    on = [m.run for m in measured if _same(m.run.value, values[1])]
    before, after = (median(run.tokens_per_second for run in side) for side in (off, on))
    return Compared(
        id=id,
        key=key,
        values=list(values),
        runs=[m.run for m in measured],
        same=difference is None,
        before=before,
        after=after,
        ratio=after / before if difference is None and before > 0 else None,
        ttft_before=median(run.ttft_ms for run in off),
        ttft_after=median(run.ttft_ms for run in on),
        first_difference=difference,
        note=note,
    )


def first_difference(answers: Sequence[Sequence[int]]) -> int | None:
    """Index of the first token at which the answers are not all equal; None when they are."""
    for index, tokens in enumerate(zip_longest(*answers)):
        if len(set(tokens)) > 1:
            return index
    return None


def _checked(hub: EngineHub, message: Compare) -> tuple[Option, list[Value]]:
    if hub.loaded is None:
        raise Refused("no_model", NO_MODEL)
    try:
        option = catalogue.option(message.key)
        values = [option.parse(value) for value in message.values or option.compare]
    except OptionError as error:
        raise Refused("bad_option", str(error)) from error
    if len(values) != 2 or _same(*values):
        text = f"A comparison of {option.title.lower()} needs two different values. Name the two to compare."
        raise Refused("bad_option", text)
    return option, values


def _order(option: Option, values: Sequence[Value], rounds: int) -> list[list[Value]]:
    """Groups of runs: turns taken within one group, or where switching is a reload, one group for each side."""
    if option.applies == "reload":
        return [[value] * rounds for value in values]
    return [list(values) * rounds]


def _present(state: Sequence[OptionSpec], key: str) -> Value:
    return next(spec.value for spec in state if spec.key == key)


def _same(one: Value, other: Value) -> bool:
    """Equal, and of the same type: False is not 0 here."""
    return type(one) is type(other) and one == other


class _Runner:
    def __init__(self, hub: EngineHub, option: Option, prompt: list[int], continues: bool) -> None:
        self._hub, self._option, self._prompt, self._continues = hub, option, prompt, continues
        self.disturbed = False
        self._before = _present(hub.engine.catalogue_state(), option.key)
        self._changed = False

    async def run(self, value: Value, sampling: Sampling) -> Measured:
        """One answer with the switch at ``value``."""
        optimisations = replayed(self._option.key)
        if self._option.scope == "request":
            optimisations[self._option.key] = value
        else:
            await self._set(value)
        self.disturbed = self.disturbed or self._hub.answering > 0
        ids: list[int] = []
        ended: asyncio.Future[FinishedEvent] = asyncio.get_running_loop().create_future()

        def listener(event: RequestEvent) -> None:
            if isinstance(event, TokensEvent):
                ids.extend(token.id for token in event.tokens)
            elif ended.done():
                return
            elif isinstance(event, ErrorEvent):
                ended.set_exception(Refused(event.code, event.message))
            elif isinstance(event, FinishedEvent):
                ended.set_result(event)

        name = self._hub.add(self._prompt, listener, sampling, 1, optimisations, self._continues)
        try:
            finished = await ended
        except asyncio.CancelledError:
            self._hub.cancel(name)
            raise
        self.disturbed = self.disturbed or self._hub.answering > 0
        if finished.reason in ("error", "memory", "cancelled"):
            reason = finished.detail or "A run was stopped. Start the comparison again."
            raise Refused("compare_failed", reason)
        timings = finished.timings
        run = Run(
            value=value,
            tokens_per_second=timings.tokens_per_second,
            ttft_ms=timings.ttft_ms,
            tokens=len(ids),
            tokens_per_step=timings.tokens_per_step,
            prefill_ms=max(0.0, timings.ttft_ms - timings.queued_ms),
        )
        return Measured(run, ids)

    def restore(self) -> None:
        """Put an engine-wide switch back, after whatever of this comparison the engine has yet to do.

        The engine says so itself if that fails.
        """
        if self._changed:  # what it is now says nothing: a change may still be waiting
            self._hub.submit(SetOption(self._option.key, self._before))

    def _now(self) -> Value:
        return _present(self._hub.engine.catalogue_state(), self._option.key)

    async def _set(self, value: Value) -> None:
        """Set the switch and wait until it holds (a reload included)."""
        if _same(self._now(), value):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def listener(event: Event) -> None:
            if done.done():
                return
            if isinstance(event, OptionsEvent) and _same(_present(event.catalogue, self._option.key), value):
                done.set_result(None)
            elif isinstance(event, ErrorEvent):
                done.set_exception(Refused(event.code, event.message))

        stop = self._hub.listen(listener)
        self._changed = True
        try:
            self._hub.submit(SetOption(self._option.key, value))
            await done
            self._changed = not _same(value, self._before)
        finally:
            stop()
