"""Points of passes under the roof: those that are measured, and those that more rows or other switches would make."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE
from engine.decoding.options import EngineOptions
from engine.loading.model import LoadedModel
from engine.protocol import OptionSpec, Value, keys
from engine.protocol.lab import PointGroup, RoofPoint
from engine.services.client import EngineClient, whole_steps
from engine.services.experiments.roofline.ceilings import Roof
from engine.services.experiments.roofline.work import ForwardWork, WorkSettings, experts_of
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.traces import words_of

PROMPT, LEAST_PROMPT, ANSWER = 512, 32, 32
"""Tokens of what is measured."""
MANY = 8
"""Answers that are measured together."""
BATCHES, DRAFTS = (1, 2, 4, 8), (1, 3, 7)
"""Answers together, and draft tokens verified in one pass, of the points that are computed."""
ROUNDS = 3
PROMPT_SECONDS = 15.0
"""What the prompts of answers together may take in a round; they are shorter where the machine is slow."""


class MeasuredPoint(NamedTuple):
    """Seconds of each pass, and the work in it."""

    name: str
    what: str
    """The same for a sentence."""
    context: str
    """After how many tokens, or of how many."""
    passes: list[float]
    work: ForwardWork

    def point(self, roof: Roof) -> RoofPoint:
        """The median pass, from the slower quarter to the fastest."""
        seconds, slow = statistics.median(self.passes), max(self.passes)
        if len(self.passes) > 1:
            slow = max(seconds, statistics.quantiles(self.passes, n=4)[2])
        return RoofPoint(
            name=self.name,
            group="measured",
            intensity=self.work.intensity,
            operations=self.work.operations / seconds,
            low=self.work.operations / slow,
            high=self.work.operations / min(self.passes),
            tokens=self.work.tokens / seconds,
            setting=f"measured, {self.context}: the median of {len(self.passes)} passes",
            roof=roof.over(self.work),
        )


class MeasuredPasses(NamedTuple):
    """``together`` is None where the pool is too small for :data:`MANY` answers to be written side by side."""

    one: MeasuredPoint
    together: MeasuredPoint | None
    prompt: MeasuredPoint

    @property
    def all(self) -> list[MeasuredPoint]:
        return [each for each in self if each is not None]


def measure(client: EngineClient, settings: WorkSettings) -> MeasuredPasses:
    """One answer, several together, and a prompt; nothing is drafted. Raises EngineError."""
    model = client.model
    length = length_of(model)
    sampling, words = greedy(ANSWER), words_of(model, 77)
    client.answer(words.some(length), sampling, PLAIN)  # compiles, and takes its buffers
    reading: dict[tuple[int, int], list[float]] = {}
    alone: list[float] = []
    for _ in range(ROUNDS):
        steps = client.answer(words.some(length), sampling, PLAIN).steps
        alone += [step.duration for step in whole_steps(steps, 1)]
        before = 0
        for step in steps:
            if step.rows.prefill and not step.rows.decode:
                reading.setdefault((step.rows.prefill, -before), []).append(step.duration)
                before += step.rows.prefill
    (rows, before), chunks = max(reading.items())
    share = int(PROMPT_SECONDS * rows / statistics.median(chunks) / MANY)
    room = model.pages * PAGE_SIZE // MANY - ANSWER - PAGE_SIZE
    shorter = max(LEAST_PROMPT, min(length, share, room))
    together: list[float] = []
    for _ in range(ROUNDS):
        found = client.together([words.some(shorter) for _ in range(MANY)], sampling, PLAIN)
        together += [step.duration for step in whole_steps(found[0].steps, MANY)]
    one, many = context_of(length), context_of(shorter)
    return MeasuredPasses(
        MeasuredPoint("decode, batch 1", "one answer", f"after {one:,} tokens", alone, settings.decode(one)),
        MeasuredPoint(
            f"decode, batch {MANY}",
            f"{MANY} answers together",
            f"after {many:,} tokens",
            together,
            settings.decode(many, MANY),
        )
        if together
        else None,
        MeasuredPoint("prefill", "a prompt", f"{rows:,} tokens in a pass", chunks, settings.prompt(rows, -before)),
    )


def length_of(model: LoadedModel) -> int:
    """Tokens of the prompts that are measured."""
    return max(LEAST_PROMPT, min(PROMPT, model.card.context // 4))


def context_of(prompt: int) -> int:
    """Tokens before the middle one of an answer."""
    return prompt + ANSWER // 2


class Computed(NamedTuple):
    name: str
    group: PointGroup
    keys: dict[str, Value]
    work: ForwardWork

    def point(self, roof: Roof) -> RoofPoint:
        most = roof.over(self.work)
        assumes = ", if all draft tokens are accepted and drafting takes no time" if self.group == "drafts" else ""
        return RoofPoint(
            name=self.name,
            group=self.group,
            intensity=self.work.intensity,
            operations=most,
            low=most,
            high=most,
            tokens=self.work.tokens * most / self.work.operations,
            setting=f"computed, the most that the ceilings allow{assumes}",
            keys=self.keys,
            roof=most,
        )


def compute(settings: WorkSettings, context: int, switches: Mapping[str, OptionSpec]) -> list[Computed]:
    """Compute where each switch would move one answer, and what comes of several answers or drafts."""
    batches = [
        Computed(f"batch {count}{', the limit' * (count == 1)}", "batch", {}, settings.decode(context, count))
        for count in BATCHES
    ]
    others = (*_of_weights(settings, switches), *_of_kinds(settings, switches))
    moved = [Computed(name, "switch", set_to, other.decode(context)) for name, set_to, other in others]
    drafts = [
        Computed(
            f"verify {count} draft token{'s' * (count > 1)}",
            "drafts",
            {keys.DRAFT_LENGTH: count},
            settings.decode(context, drafts=count),
        )
        for count in DRAFTS
    ]
    return [*batches, *(each for each in moved if each.work != batches[0].work), *drafts]


class Other(NamedTuple):
    """Settings with one switch the other way."""

    name: str
    keys: dict[str, Value]
    settings: WorkSettings


def _values(switches: Mapping[str, OptionSpec], key: str) -> list[str]:
    """The values that a choice could have now and has not."""
    spec = switches[key]
    if spec.disabled_reason or spec.hidden:
        return []
    return [choice for choice in spec.titles if choice not in spec.disabled_choices and choice != spec.value]


def _of_weights(settings: WorkSettings, switches: Mapping[str, OptionSpec]) -> Iterator[Other]:
    """The model planned with its weights unpacked. The other way round no packed products are there to be measured."""
    files, lm = settings.model.files, settings.lm
    if files is None or "16bit" not in _values(switches, keys.WEIGHTS):
        return
    planned = files.checkpoint.planned(lm.dtype, "16bit", settings.model.device)
    planned.kv_dtype = lm.kv_dtype
    weights = float(planned.bytes_read_per_step())
    other = replace(settings, lm=planned, weights=weights, experts=experts_of(planned))
    yield Other("unpacked weights", {keys.WEIGHTS: "16bit"}, other)


def _of_kinds(settings: WorkSettings, switches: Mapping[str, OptionSpec]) -> Iterator[Other]:
    for name in _values(switches, keys.KV_KIND):
        options = EngineOptions()
        options.values.update({key: spec.value for key, spec in switches.items()})
        options.values[keys.KV_KIND] = name
        kind = options.kv_kind
        yield Other(f"KV {kind.title}", {keys.KV_KIND: name}, replace(settings, kind=kind))
