"""``kvasir bench --speculation``: every draft method of the model, each answer compared with the same one without.

Plain and speculative answers alternate on the same prompts, so that a drift of the machine cancels in their ratios.
From the acceptance and the costs of the steps the formula predicts a speed-up, shown next to the measured one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from engine.protocol import OptionSpec, Value, keys
from engine.services.client import Answer, EngineClient, EngineError
from engine.services.experiments.measures.steps import Drafted, costs, decoding, held, own_steps, predicted
from engine.services.experiments.measures.timing import spread
from engine.services.experiments.measures.verify import measure_verify
from engine.services.experiments.reports.speculation import OverheadRow, SpeculationFigures, TextFigures, WayRow
from engine.services.experiments.reports.tables import say
from engine.services.experiments.workloads.texts import SHORTEST, Prompt, Text, texts

TOKENS = 64
AHEAD = 4
"""The fixed draft length, for which the formula is made."""
BATCHES = (1, 8)
_OFF: dict[str, Value] = {keys.SPECULATION: "off"}
_AUTO: dict[str, Value] = {keys.SPECULATION: "auto"}
_EXACT_TOKENS = 32


class Way(NamedTuple):
    """Overrides of a request for one draft method. ``fixed``: at the fixed length, whether it pays or not."""

    proposer: str
    title: str
    overrides: dict[str, Value]
    fixed: bool = False


def measure_speculation(client: EngineClient, rounds: int, tokens: int = TOKENS) -> SpeculationFigures:
    """All ways on all texts with the model that ``client`` has loaded."""
    model = client.model
    found, absent = ways(client.state()[keys.SPECULATION], [proposer.name for proposer in model.drafting.proposers])
    if model.card.draft_refused:
        absent.append(f"draft model: {model.card.draft_refused}")
    measuring = _Measuring(client, found, rounds, absent)
    kinds = [text for text in map(measuring.answerable, texts(model, tokens)) if text.prompts]
    figures = [measuring.text(text) for text in kinds]
    overhead = measuring.overhead(kinds, figures)
    figures = measuring.exact(kinds, figures)
    say("checking by itself")
    return SpeculationFigures(
        model=model.card.name,
        draft=model.card.draft,
        device=model.device.type,
        dtype=str(model.model.dtype).removeprefix("torch.") if model.model is not None else "",
        rounds=rounds,
        plain_step_ms=1000 * statistics.median(measuring.plain_steps) if measuring.plain_steps else 0.0,
        texts=figures,
        verify=measure_verify(model, rounds),
        overhead=overhead,
        absent=absent,
    )


def ways(spec: OptionSpec, proposers: Sequence[str]) -> tuple[list[Way], list[str]]:
    """Every proposer at a fixed and an adaptive length, then the engine's own choice; and why others cannot draft."""
    found, absent = [], []
    for name, title in zip(spec.choices, spec.choice_titles, strict=True):
        if name in spec.disabled_choices:
            absent.append(f"{title}: {spec.disabled_choices[name]}")
        elif name in proposers:
            alone: dict[str, Value] = {keys.SPECULATION: name, keys.NGRAM_FIRST: False}
            found.append(Way(name, f"{title}, {AHEAD} ahead", {**alone, keys.DRAFT_LENGTH: AHEAD}, fixed=True))
            found.append(Way(name, f"{title}, adaptive", {**alone, keys.DRAFT_LENGTH: 0}))
        elif name == "auto":
            auto = Way(name, title, _AUTO)
    return [*found, auto], absent


class _Measuring:
    def __init__(self, client: EngineClient, ways: Sequence[Way], rounds: int, absent: list[str]) -> None:
        self._client, self._ways, self._rounds, self._absent = client, ways, rounds, absent
        self.plain_steps: list[float] = []

    def answerable(self, text: Text) -> Text:
        """The text without the prompts that the model answers in fewer than :data:`SHORTEST` tokens."""
        said = [self._answer(prompt, _OFF) for prompt in text.prompts]
        kept = [prompt for prompt, answer in zip(text.prompts, said, strict=True) if len(answer.ids) >= SHORTEST]
        if len(kept) < len(said):
            short = f"{len(said) - len(kept)} of {len(said)} prompts are answered in fewer than {SHORTEST} tokens"
            self._absent.append(f"{text.title}: {short}")
        return text._replace(prompts=kept)

    def text(self, text: Text) -> TextFigures:
        """All ways, each answer paired with a plain one to its prompt; in odd rounds the plain one comes second."""
        pairs: list[list[tuple[Answer, Answer]]] = [[] for _ in self._ways]
        for round in range(self._rounds):
            for way, own in zip(self._ways, pairs, strict=True):
                say(f"{text.title}, round {round + 1}: {way.title}")
                if not round:
                    self._answer(text.prompts[0], way.overrides)  # buckets, first lengths
                for prompt in text.prompts:
                    turns = (way.overrides, _OFF) if round % 2 else (_OFF, way.overrides)
                    first, second = (self._answer(prompt, overrides) for overrides in turns)
                    own.append((second, first) if round % 2 else (first, second))
        rows = [self._row(way, own) for way, own in zip(self._ways, pairs, strict=True)]
        tokens = sum(len(plain.ids) for plain, _ in pairs[0]) // self._rounds
        return TextFigures(text.key, text.title, len(text.prompts), tokens, rows)

    def _answer(self, prompt: Prompt, overrides: Mapping[str, Value]) -> Answer:
        return self._client.answer(prompt.ids, prompt.sampling, overrides)

    def _row(self, way: Way, pairs: Sequence[tuple[Answer, Answer]]) -> WayRow:
        steps: list[Drafted] = []
        for plain, answer in pairs:
            plain_step = statistics.median(step.cost for step in decoding(plain.steps))
            self.plain_steps.append(plain_step)
            steps += decoding(answer.steps, unit=plain_step)
        drafting = [step for step in steps if step.depths]
        known, judged = costs(steps), held(steps)
        speeds = [(answer.timings.tokens_per_second, plain.timings.tokens_per_second) for plain, answer in pairs]
        return WayRow(
            proposer=way.proposer,
            title=way.title,
            speed=statistics.median(own for own, _ in speeds),
            plain=statistics.median(plain for _, plain in speeds),
            speedup=spread([own / plain for own, plain in speeds]),
            accepted=[kept / made for kept, made in zip(judged.accepted, judged.proposed, strict=True)],
            acceptance=judged.share,
            tokens_per_step=sum(step.tokens for step in steps) / max(1, len(steps)),
            drafting=len(drafting) / max(1, len(steps)),
            draft_pass=known.draft_pass,
            passes=_median([step.passes for step in drafting]),
            verify_step=_median([step.cost - step.draft_cost for step in drafting]),
            verify_rows=_median([step.rows for step in drafting]),
            predicted=predicted(steps, known),
            equal=sum(plain.ids == answer.ids for plain, answer in pairs),
            answers=len(pairs),
        )

    def exact(self, kinds: Sequence[Text], figures: Sequence[TextFigures]) -> list[TextFigures]:
        """Every way once more, drawn with keyed noise in batch-invariant arithmetic, where nothing may differ."""
        say("the same text, in batch-invariant arithmetic")
        before = self._client.state()[keys.BATCH_INVARIANT].value
        try:
            self._client.set(keys.BATCH_INVARIANT, True)
        except EngineError as error:
            self._absent.append(f"the same text in batch-invariant arithmetic: {error}")
            return list(figures)
        try:
            return [self._exact(text, measured) for text, measured in zip(kinds, figures, strict=True)]
        finally:
            self._client.set(keys.BATCH_INVARIANT, before)

    def _exact(self, text: Text, measured: TextFigures) -> TextFigures:
        prompts = []
        for prompt in text.prompts:
            most = min(_EXACT_TOKENS, prompt.sampling.max_tokens or _EXACT_TOKENS)
            drawn = msgspec.structs.replace(prompt.sampling, temperature=0.7, top_p=0.95, seed=7, max_tokens=most)
            prompts.append(Prompt(prompt.ids, drawn))
        plain = [self._answer(prompt, _OFF).ids for prompt in prompts]
        rows = []
        for way, row in zip(self._ways, measured.rows, strict=True):
            same = sum(
                self._answer(prompt, way.overrides).ids == ids for prompt, ids in zip(prompts, plain, strict=True)
            )
            rows.append(msgspec.structs.replace(row, exact=same, exact_answers=len(plain)))
        return msgspec.structs.replace(measured, rows=rows)

    def overhead(self, kinds: Sequence[Text], figures: Sequence[TextFigures]) -> list[OverheadRow]:
        """The engine's own choice compared with none, on the text where even the best fixed length gains least."""
        if not kinds:
            return []
        fixed = [place for place, way in enumerate(self._ways) if way.fixed]
        gains = [max((text.rows[place].speedup.median for place in fixed), default=1.0) for text in figures]
        best, text = min(zip(gains, kinds, strict=True), key=lambda pair: pair[0])
        return [self._overhead(text, best, batch) for batch in BATCHES]

    def _overhead(self, text: Text, best: float, batch: int) -> OverheadRow:
        say(f"what automatic drafting costs on {text.title}, {batch} at once")
        prompts = [text.prompts[number % len(text.prompts)].ids for number in range(batch)]
        sampling = text.prompts[0].sampling
        sides: dict[bool, list[float]] = {False: [], True: []}
        drafted: list[bool] = []
        for round in range(4 * self._rounds + 1):
            for auto in (True, False) if round % 2 else (False, True):
                steps = own_steps(self._client.together(prompts, sampling, _AUTO if auto else _OFF)[0].steps)
                if round:  # the first is a warm-up
                    sides[auto].append(sum(step.generated for step in steps) / sum(step.duration for step in steps))
                    drafted += [step.verify_rows > 0 for step in steps if auto]
        return OverheadRow(
            batch=batch,
            text=text.title,
            best=best,
            speed=statistics.median(sides[True]),
            plain=statistics.median(sides[False]),
            ratio=spread([own / plain for own, plain in zip(sides[True], sides[False], strict=True)]),
            drafting=sum(drafted) / len(drafted),
        )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
