"""``kvasir bench --speculation``: every way to guess that the model has, each answer beside the same one without.

Plain and guessing answers alternate on the same prompts, so that a drift of the machine cancels in their ratios. What
the steps say of acceptance and costs goes through the formula, whose speed-up stands beside the measured one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from engine.bench.client import Answer, EngineClient, EngineError
from engine.bench.speculation_conclusions import conclusions
from engine.bench.speculation_figures import OverheadRow, SpeculationFigures, TextFigures, WayRow
from engine.bench.speculation_steps import Guessed, Watch, costs, decoding, held, predicted, spread
from engine.bench.speculation_texts import SHORTEST, Prompt, Text, texts
from engine.bench.speculation_verify import measure_verify
from engine.core.events import StepRecord
from engine.protocol import OptionSpec, Sampling, Value

ROUNDS = 3
TOKENS = 64
AHEAD = 4
"""The fixed length: what the formula is about."""
BATCHES = (1, 8)
_OFF: dict[str, Value] = {"speculation": "off"}
_AUTO: dict[str, Value] = {"speculation": "auto"}
_EXACT_TOKENS = 32


class Way(NamedTuple):
    """Overrides of a request that guess in one way. ``fixed``: as far as it is told, whether it pays or not."""

    proposer: str
    title: str
    overrides: dict[str, Value]
    fixed: bool = False


def measure_speculation(
    client: EngineClient,
    watch: Watch,
    *,
    rounds: int = ROUNDS,
    tokens: int = TOKENS,
    say: Callable[[str], None] = lambda line: None,
) -> SpeculationFigures:
    """All ways on all texts with the model that ``client`` has loaded; ``watch`` hears the client's events."""
    model = client.model
    watch.attach(model.proposers)
    state = {spec.key: spec for spec in client.engine.catalogue_state()}
    found, absent = ways(state["speculation"], [proposer.name for proposer in model.proposers])
    if model.card.draft_refused:
        absent.append(f"draft model: {model.card.draft_refused}")
    measuring = _Measuring(client, watch, found, rounds, say, absent)
    kinds = [text for text in map(measuring.answerable, texts(model, tokens)) if text.prompts]
    figures = [measuring.text(text) for text in kinds]
    overhead = measuring.overhead(kinds, figures)
    figures = measuring.exact(kinds, figures)
    say("checking by itself")
    measured = SpeculationFigures(
        model=model.card.name,
        draft=model.card.draft,
        device=model.device.type,
        dtype=str(model.model.dtype).removeprefix("torch.") if model.model is not None else "",
        rounds=rounds,
        plain_step_ms=1000 * statistics.median(measuring.plain_steps) if measuring.plain_steps else 0.0,
        texts=figures,
        verify=measure_verify(model, rounds),
        overhead=overhead,
        assisted=[],
        absent=absent,
    )
    return msgspec.structs.replace(measured, conclusions=conclusions(measured))


def ways(spec: OptionSpec, proposers: Sequence[str]) -> tuple[list[Way], list[str]]:
    """Every proposer at a fixed length and by itself, then the engine's own choice; and who cannot guess, and why."""
    found, absent = [], []
    for name, title in zip(spec.choices, spec.choice_titles, strict=True):
        if name in spec.disabled_choices:
            absent.append(f"{title}: {spec.disabled_choices[name]}")
        elif name in proposers:
            alone: dict[str, Value] = {"speculation": name, "ngram_first": False}
            found.append(Way(name, f"{title}, {AHEAD} ahead", {**alone, "draft_length": AHEAD}, fixed=True))
            found.append(Way(name, f"{title}, adaptive", {**alone, "draft_length": 0}))
        elif name == "auto":
            auto = Way(name, title, _AUTO)
    return [*found, auto], absent


class _Measuring:
    def __init__(
        self,
        client: EngineClient,
        watch: Watch,
        ways: Sequence[Way],
        rounds: int,
        say: Callable[[str], None],
        absent: list[str],
    ) -> None:
        self._client, self._watch, self._ways = client, watch, ways
        self._rounds, self._say, self._absent = rounds, say, absent
        self.plain_steps: list[float] = []

    def answerable(self, text: Text) -> Text:
        """Without the prompts that the model has next to nothing to say to."""
        said = [self._answer(prompt, _OFF) for prompt in text.prompts]
        kept = [prompt for prompt, answer in zip(text.prompts, said, strict=True) if len(answer.ids) >= SHORTEST]
        if len(kept) < len(said):
            short = f"{len(said) - len(kept)} of {len(said)} prompts are answered in fewer than {SHORTEST} tokens"
            self._absent.append(f"{text.title}: {short}")
        return text._replace(prompts=kept)

    def text(self, text: Text) -> TextFigures:
        """All ways, each answer beside a plain one of the same prompt; in odd rounds the plain one comes second."""
        pairs: list[list[tuple[Answer, Answer]]] = [[] for _ in self._ways]
        for round in range(self._rounds):
            for way, own in zip(self._ways, pairs, strict=True):
                self._say(f"{text.title}, round {round + 1}: {way.title}")
                if not round:
                    self._answer(text.prompts[0], way.overrides)  # buckets, first lengths
                own += [self._pair(prompt, way, backwards=round % 2 == 1) for prompt in text.prompts]
        rows = [self._row(way, own) for way, own in zip(self._ways, pairs, strict=True)]
        tokens = sum(len(plain.ids) for plain, _ in pairs[0]) // self._rounds
        return TextFigures(text.key, text.title, len(text.prompts), tokens, rows)

    def _pair(self, prompt: Prompt, way: Way, backwards: bool) -> tuple[Answer, Answer]:
        """(plain, guessed)"""
        if backwards:
            guessed = self._answer(prompt, way.overrides)
            return self._answer(prompt, _OFF), guessed
        return self._answer(prompt, _OFF), self._answer(prompt, way.overrides)

    def _answer(self, prompt: Prompt, overrides: Mapping[str, Value]) -> Answer:
        return self._client.answer(prompt.ids, prompt.sampling, overrides)

    def _row(self, way: Way, pairs: Sequence[tuple[Answer, Answer]]) -> WayRow:
        steps: list[Guessed] = []
        for plain, answer in pairs:
            plain_step = statistics.median(step.cost for step in decoding(plain.steps, self._watch))
            self.plain_steps.append(plain_step)
            steps += decoding(answer.steps, self._watch, unit=plain_step)
        guessing = [step for step in steps if step.depths]
        known, judged = costs(steps), held(steps)
        speeds = [(speed(answer), speed(plain)) for plain, answer in pairs]
        return WayRow(
            proposer=way.proposer,
            title=way.title,
            speed=statistics.median(own for own, _ in speeds),
            plain=statistics.median(plain for _, plain in speeds),
            speedup=spread([own / plain for own, plain in speeds]),
            accepted=[kept / made for kept, made in zip(judged.accepted, judged.proposed, strict=True)],
            acceptance=judged.share,
            tokens_per_step=sum(step.tokens for step in steps) / max(1, len(steps)),
            guessing=len(guessing) / max(1, len(steps)),
            draft_pass=known.draft_pass,
            passes=_median([step.passes for step in guessing]),
            verify_step=_median([step.cost - step.draft_cost for step in guessing]),
            verify_rows=_median([step.rows for step in guessing]),
            predicted=predicted(steps, known),
            equal=sum(plain.ids == answer.ids for plain, answer in pairs),
            answers=len(pairs),
            exact=0,
            exact_answers=0,
        )

    def exact(self, kinds: Sequence[Text], figures: Sequence[TextFigures]) -> list[TextFigures]:
        """Every way once more, drawn with keyed noise in batch-invariant arithmetic, where nothing may differ."""
        self._say("the same text, in batch-invariant arithmetic")
        before = {spec.key: spec.value for spec in self._client.engine.catalogue_state()}["batch_invariant"]
        try:
            self._client.set("batch_invariant", True)
        except EngineError as error:
            self._absent.append(f"the same text in batch-invariant arithmetic: {error}")
            return list(figures)
        try:
            return [self._exact(text, measured) for text, measured in zip(kinds, figures, strict=True)]
        finally:
            self._client.set("batch_invariant", before)

    def _exact(self, text: Text, measured: TextFigures) -> TextFigures:
        prompts = [prompt._replace(sampling=_drawn(prompt)) for prompt in text.prompts]
        plain = [self._answer(prompt, _OFF).ids for prompt in prompts]
        rows = []
        for way, row in zip(self._ways, measured.rows, strict=True):
            own = [self._answer(prompt, way.overrides).ids for prompt in prompts]
            same = sum(one == other for one, other in zip(own, plain, strict=True))
            rows.append(msgspec.structs.replace(row, exact=same, exact_answers=len(own)))
        return msgspec.structs.replace(measured, rows=rows)

    def overhead(self, kinds: Sequence[Text], figures: Sequence[TextFigures]) -> list[OverheadRow]:
        """The engine's own choice beside none, on the text where even the best fixed length gains least."""
        fixed = [place for place, way in enumerate(self._ways) if way.fixed]
        gains = [max((text.rows[place].speedup.median for place in fixed), default=1.0) for text in figures]
        if not gains:
            return []
        least = min(range(len(gains)), key=gains.__getitem__)
        return [self._overhead(kinds[least], gains[least], batch) for batch in BATCHES]

    def _overhead(self, text: Text, best: float, batch: int) -> OverheadRow:
        self._say(f"what automatic guessing costs on {text.title}, {batch} at once")
        prompts = [text.prompts[number % len(text.prompts)].ids for number in range(batch)]
        sampling = text.prompts[0].sampling
        sides: dict[bool, list[float]] = {False: [], True: []}
        guessed: list[bool] = []
        for round in range(4 * self._rounds + 1):
            for auto in (True, False) if round % 2 else (False, True):
                answers = self._client.together(prompts, sampling, _AUTO if auto else _OFF)
                steps = _own(answers[0].steps)
                if not round:
                    continue  # warm-up
                sides[auto].append(sum(step.generated for step in steps) / sum(step.duration for step in steps))
                guessed += [step.verify_rows > 0 for step in steps if auto]
        return OverheadRow(
            batch=batch,
            text=text.title,
            best=best,
            speed=statistics.median(sides[True]),
            plain=statistics.median(sides[False]),
            ratio=spread([own / plain for own, plain in zip(sides[True], sides[False], strict=True)]),
            guessing=sum(guessed) / len(guessed),
        )


def speed(answer: Answer) -> float:
    """Tokens a second after the first."""
    return answer.timings.tokens_per_second


def _own(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """Of these answers, without the steps that read prompts: the record of a last step comes after its answer."""
    first = next((place for place, step in enumerate(steps) if step.prefill_rows), 0)
    return [step for step in steps[first:] if not step.prefill_rows and step.decode_rows]


def _drawn(prompt: Prompt) -> Sampling:
    most = min(_EXACT_TOKENS, prompt.sampling.max_tokens or _EXACT_TOKENS)
    return msgspec.structs.replace(prompt.sampling, temperature=0.7, top_p=0.95, seed=7, max_tokens=most)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
