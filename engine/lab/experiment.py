"""What an experiment is, and what it is given: a loaded model, a seed, and how to run pairs fairly.

An experiment is a fixed workload that is run with a technique and without it, in pairs whose order is drawn by lot
(engine/telemetry/pairs.py); a figure that is counted has no noise and needs one pair. It yields progress and pictures,
and returns what it found.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from engine.bench.client import Answer, EngineClient
from engine.cache.policies import KEEP_ALL
from engine.loading.model import LoadedModel
from engine.protocol import Effect, KnownModel, LoadOptions, Metric, OptionSpec, Sampling, Value
from engine.protocol.compared import gain_of
from engine.protocol.lab import LabFigure, LabPage, LabPicture, LabProgress, LabText, Picture, Plot
from engine.runner.perplexity import chunks
from engine.server.continuing import common
from engine.telemetry.pairs import LEAST, MOST, estimate, settled

RunEvent = LabProgress | LabPicture
Side = Mapping[str, float]
"""Figures of one run of one side, by :attr:`Measured.key`."""
GREEDY = Sampling(temperature=0.0, ignore_eos=True, seed=1)
NEAR_TIE = 1e-4
"""Between two log-probabilities, in nats: below it, rounding decides which token comes first."""
NEAR = 0.05
"""And so near that rounding may be why two texts part; 0.02 was seen."""
CLOSE = " So close, rounding may decide between them, which depends on what is computed together."
"""Of a technique that changes nothing else."""
PATIENCE = 2.0
"""Budgets after which no further round begins, whatever is known by then."""


class Refusal(NamedTuple):
    """Why a model cannot show an experiment, and what can, each a sentence."""

    why: str
    instead: str


class Measured(NamedTuple):
    """A figure that runs give, under ``key``."""

    key: str
    metric: Metric


class Found(NamedTuple):
    """What an experiment found; the rest of a :class:`~engine.protocol.LabResult` is the same for all."""

    headline: str
    figures: list[LabFigure]
    text: LabText | None
    taken: str
    same: list[str]
    other: list[str]
    why: list[str]
    settings: dict[str, Value]
    pictures: list[Picture] = []
    plots: list[Plot] = []
    sides: list[str] = []
    """Those that ran, where the model lacks some of the page's."""
    told_of: int = -1
    lesson: str = ""
    """What is said instead of the page's lesson, where the run cannot show that."""


Run = Generator[RunEvent, None, Found]


class Lab(NamedTuple):
    """``pairs``: the most pairs of runs, 0 for as many as a verdict takes. ``budget``: seconds that they may take in
    all: past it no further pair begins, once there are :data:`~engine.telemetry.pairs.LEAST`; past
    :data:`PATIENCE` times as many none at all, and then there may be too few for a verdict."""

    client: EngineClient
    seed: int = 1
    pairs: int = 0
    budget: float = 40.0
    chosen: Mapping[str, int] = {}
    """Settings of the experiment that are other than usual."""

    @property
    def model(self) -> LoadedModel:
        return self.client.model

    @property
    def random(self) -> random.Random:
        """The same numbers for the same seed."""
        return random.Random(f"lab {self.seed}")

    def switched(self, values: Mapping[str, Value]) -> Switched:
        """Switches of the engine for a while; what they were comes back."""
        return Switched(self.client, values)


class Switched:
    """A context in which switches have other values."""

    def __init__(self, client: EngineClient, values: Mapping[str, Value]) -> None:
        self._client, self._values = client, values
        self._before: dict[str, Value] = {}

    def __enter__(self) -> None:
        state = self._client.state()
        self._before = {key: state[key].value for key in self._values}
        for key, value in self._values.items():
            self._client.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, value in reversed(self._before.items()):
            self._client.set(key, value)


class Reloaded:
    """A context in which the model is loaded with other options, or another one is; what was loaded before comes back.

    Entering it raises EngineError where the engine refuses.
    """

    def __init__(self, client: EngineClient, options: LoadOptions, other: KnownModel | None = None) -> None:
        model = client.model  # which is not held, so that its memory is free meanwhile
        self._client = client
        self._before = (model.path, model.draft_path, model.options)
        self._meanwhile = (*((other.path, other.draft) if other is not None else self._before[:2]), options)

    def __enter__(self) -> None:
        self._client.load(*self._meanwhile)

    def __exit__(self, *_: object) -> None:
        self._client.load(*self._before)


class Experiment(Protocol):
    """One of the ten."""

    page: LabPage

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        """Whether the loaded model cannot show it; ``state`` are the engine's switches by their keys."""

    def run(self, lab: Lab) -> Run:
        """Run it: progress and pictures, at last what was found. Raises EngineError, LabError."""


class LabError(RuntimeError):
    """Why an experiment could not be run, as a sentence."""


class Pairs:
    """Runs of several sides, side by side until each differs clearly from the first one or does not."""

    def __init__(self, lab: Lab, name: str, measured: Sequence[Measured]) -> None:
        self._lab, self._name, self._measured = lab, name, measured
        self.runs: list[list[Side]] = []
        """Of each side; filled by :meth:`run`, or by an experiment that times nothing."""

    def run(
        self, sides: Sequence[Callable[[], Side]], picture: Callable[[int], Picture] | None = None
    ) -> Iterator[RunEvent]:
        """Warm each side up once, then run all of them in rounds, their order drawn by lot. After each run comes the
        ``picture`` of its side, by the side's place.

        It ends when the headline is settled for every side, at :attr:`Lab.pairs`, or where the budget ends.
        """
        order, rng = list(range(len(sides))), self._lab.random
        self.runs = [[] for _ in sides]
        counted = all(each.metric.counted for each in self._measured)
        most = 1 if counted else self._lab.pairs or MOST
        began = time.monotonic()
        for side in order:
            yield LabProgress(name=self._name, done=0, total=most * len(sides), side=side, sentence="warming up")
            if not counted:
                sides[side]()
                yield from self._shown(side, picture)
        end, latest = time.monotonic() + self._lab.budget, began + PATIENCE * self._lab.budget
        for turn in range(most):
            rng.shuffle(order)
            for place, side in enumerate(order):
                done = turn * len(sides) + place
                yield LabProgress(name=self._name, done=done, total=most * len(sides), side=side)
                self.runs[side].append(sides[side]())
                yield from self._shown(side, picture)
            now = time.monotonic()
            if now > latest:
                break
            if turn + 1 >= min(LEAST, most) and (now > end or all(map(settled, self._effects(0)))):
                break
        yield LabProgress(name=self._name, done=most * len(sides), total=most * len(sides))

    def _shown(self, side: int, picture: Callable[[int], Picture] | None) -> Iterator[LabPicture]:
        if picture is not None:
            yield LabPicture(name=self._name, side=side, picture=picture(side))

    def figures(self) -> list[LabFigure]:
        """What was found, in the order of what is measured."""
        return [
            LabFigure(effects=self._effects(place), runs=[[run[each.key] for run in side] for side in self.runs])
            for place, each in enumerate(self._measured)
        ]

    def _effects(self, place: int) -> list[Effect]:
        key, metric = self._measured[place]
        first, *others = ([run[key] for run in side] for side in self.runs)
        return [estimate(first, other, metric) for other in others]


def once(metric: Metric, values: Sequence[float]) -> LabFigure:
    """A figure that is taken once for each side: of one that has noise that is too few for a verdict."""
    first, *others = values
    return LabFigure(
        effects=[estimate([first], [other], metric) for other in others], runs=[[value] for value in values]
    )


def headline(effect: Effect, better: str, worse: str) -> str:
    """A sentence: ``better`` and ``worse`` go on after "2.1 times" and a range."""
    if effect.metric.counted and effect.verdict not in ("better", "worse"):
        if effect.before == effect.after:
            return "The same on both sides."
        nearly = "Nearly the same on both sides" if effect.ratio is not None else "No ratio can be given"
        return f"{nearly}: {effect.before:,.4g} and {effect.after:,.4g}."
    pairs, gain = f"{effect.pairs} pair{'s' * (effect.pairs != 1)}", gain_of(effect)
    if gain is None or effect.verdict in ("none", "few"):
        few = "too few pairs to tell" if effect.verdict == "few" else "what it shows lies within the noise"
        between = "" if gain is None else f" ({effect.low:.2f} to {effect.high:.2f} times in {pairs})"
        return f"No clear difference here: {few}{between}."
    between = "" if effect.metric.counted else f" ({gain.low:.2f} to {gain.high:.2f} in {pairs})"
    return f"{gain.ratio:.2f} times {better if gain.better else worse}{between}."


def same_text(answers: Sequence[Sequence[Answer]], lab: Lab, prompts: Sequence[Sequence[int]] = ()) -> LabText:
    """Compare what all sides wrote: ``answers[side][number]``, each pair of answers to the same prompt.

    With ``prompts[number]`` a difference is told with the scores of both tokens, where the model can give them.
    """
    first, *others = answers
    count = sum(len(answer.ids) for answer in first)
    assert lab.model.tokenizer is not None
    decode = lab.model.tokenizer.decode
    for side in others:
        for number, (one, two) in enumerate(zip(first, side, strict=True)):
            if one.ids != two.ids:
                at = common(one.ids, two.ids)
                sentence = f"The texts differ from token {at + 1} on."
                near = False
                if prompts and at < min(len(one.ids), len(two.ids)):
                    gap = gap_of(lab.model, [*prompts[number], *one.ids[:at]], one.ids[at], two.ids[at])
                    near, sentence = gap < NEAR_TIE, sentence + apart(gap) + CLOSE * (gap < NEAR)
                texts = [decode(answers_of[number].ids) for answers_of in answers]
                return LabText(same=False, tokens=count, sentence=sentence, at=at, near_tie=near, texts=texts)
    texts = [decode(side[0].ids) for side in answers]
    return LabText(same=True, tokens=count, sentence=f"The same text: identical, {count} tokens.", texts=texts)


def gap_of(model: LoadedModel, text: Sequence[int], one: int, other: int) -> float:
    """Between the log-probabilities of two tokens after a text, by the model's exact arithmetic; infinite where the
    model cannot be asked."""
    if model.readers is None:
        return math.inf
    read = model.readers(KEEP_ALL).exact(len(text) + 1)
    for start, rows in chunks([*text, 0], model.card.vocabulary):
        logits = read(rows, start)
    scores = logits[-1].double().log_softmax(-1)
    return abs(float(scores[one] - scores[other]))


def apart(gap: float) -> str:
    """After a sentence that two texts differ: how far apart the two tokens were."""
    if gap == math.inf:
        return ""
    if gap < NEAR_TIE:
        return f" A near-tie: the two tokens' log-probabilities were {gap:.1e} apart there."
    return f" The two tokens' log-probabilities were {gap:.3f} apart there."
