"""Definition of an experiment and its inputs: a loaded model, a seed, and a way to run pairs fairly.

An experiment is a fixed workload that is run with a technique and without it, in pairs whose order is random
(engine/decoding/telemetry/pairs.py); a figure that is counted has no noise and needs one pair. It yields progress and
pictures, and returns what it found.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import psutil
from msgspec import structs

from engine.cache.policies import KEEP_ALL
from engine.compute.runner.perplexity import chunks
from engine.decoding.telemetry.pairs import LEAST, MOST, estimate, settled
from engine.decoding.telemetry.processor import OtherPrograms
from engine.loading.model import LoadedModel
from engine.protocol import Effect, KnownModel, LoadOptions, Metric, OptionSpec, Sampling, Value, keys
from engine.protocol.compared import FAULT, Gain, amount, gain_of, is_busy, times, wide
from engine.protocol.lab import LabFigure, LabPage, LabPicture, LabProgress, LabText, Picture, Plot
from engine.services.answers.continuing import common
from engine.services.client import Answer, EngineClient

RunEvent = LabProgress | LabPicture
Side = Mapping[str, float]
"""Figures of one run of one side, by :attr:`Measured.key`."""
GREEDY = Sampling(temperature=0.0, ignore_eos=True, seed=1)
NEAR_TIE = 1e-4
"""Between two log-probabilities, in nats: below it, rounding decides which token comes first."""
ROUNDED = "the fast kernels, which round otherwise when rows are computed together"
"""Why a technique that is exact changes a token all the same."""
AS_THEY_MAY = ", as they may: what is rounded changes a model"
"""Of a technique that is lossy, after the sentence that texts differ."""
PATIENCE, LONGER = 2.0, 6.0
"""Budgets after which no further round begins, whatever is known by then; and those while other programs keep the
processor busy."""
LONGER_BUSY = "running longer because this computer is busy"
LONGER_WIDE = "running longer because the times differ widely"
PARTS = 1000
"""Of which progress counts those that are done."""


class Refusal(NamedTuple):
    """Reason a model cannot show an experiment, and what can, each a sentence."""

    why: str
    instead: str


class Measured(NamedTuple):
    """A figure that runs give, under ``key``."""

    key: str
    metric: Metric


class Found(NamedTuple):
    """Findings of an experiment; the rest of a :class:`~engine.protocol.LabResult` is the same for all."""

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
    asked: int = 0
    second: str = ""
    others: float | None = None


Run = Generator[RunEvent, None, Found]


class Lab(NamedTuple):
    """``pairs``: the most pairs of runs, 0 for as many as a verdict takes. ``budget``: seconds that they may take in
    all: past it no further pair begins, once there are :data:`~engine.decoding.telemetry.pairs.LEAST` and their range
    says something; past :data:`PATIENCE` times as many none at all, or :data:`LONGER` on a busy computer, and then
    there may be too few for a verdict."""

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
        with self._client.uninterrupted():
            for key, value in reversed(self._before.items()):
                self._client.set(key, value)


class Reloaded:
    """A context in which the model is loaded with other options, or another one is; what was loaded before comes back.

    Entering it raises EngineError where the engine refuses.
    """

    def __init__(self, client: EngineClient, options: LoadOptions, other: KnownModel | None = None) -> None:
        model = client.model  # which is not held, so that its memory is free meanwhile
        self._client = client
        self._before = model.command
        self._meanwhile = (*((other.path, other.draft) if other is not None else self._before[:2]), options)

    def __enter__(self) -> None:
        self._client.load(*self._meanwhile)

    def __exit__(self, *_: object) -> None:
        with self._client.uninterrupted():
            self._client.load(*self._before)


class Experiment(Protocol):
    """One of the ten."""

    page: LabPage

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        """Return the refusal of a loaded model that cannot show it, or None; ``state``: engine switches by key."""

    def run(self, lab: Lab) -> Run:
        """Run it: progress and pictures, at last what was found. Raises EngineError, LabError."""


class LabError(RuntimeError):
    """Raised if an experiment could not be run; the message is the reason, as a sentence."""


class Pairs:
    """Runs of several sides, side by side until each differs clearly from the first one or does not."""

    def __init__(self, lab: Lab, name: str, measured: Sequence[Measured], decides: Measured | None = None) -> None:
        """``decides``: the figure that is waited for; the first one if left out."""
        self._lab, self._name, self._measured = lab, name, measured
        self._decides = measured.index(decides) if decides is not None else 0
        self.runs: list[list[Side]] = []
        """Of each side; filled by :meth:`run`, or by an experiment that times nothing."""
        self.others: float | None = None
        """The share of the processor that other programs took during the runs; None where nothing was timed."""

    def run(
        self, sides: Sequence[Callable[[], Side]], picture: Callable[[int], Picture] | None = None
    ) -> Iterator[RunEvent]:
        """Warm each side up once, then run all of them in rounds, their order drawn by lot. After each run comes the
        ``picture`` of its side, by the side's place.

        It ends when the deciding figure is settled for every side, at :attr:`Lab.pairs`, or where the budget ends.
        """
        order, rng = list(range(len(sides))), self._lab.random
        self.runs = [[] for _ in sides]
        counted = all(each.metric.counted for each in self._measured)
        most = 1 if counted else self._lab.pairs or MOST
        began = time.monotonic()
        for side in order:
            yield LabProgress(name=self._name, done=0, total=PARTS, side=side, sentence="warming up")
            if not counted:
                sides[side]()
                yield from self._shown(side, picture)
        programs, measuring, share, longer = OtherPrograms(psutil.Process().parent()), time.monotonic(), 0.0, ""
        for turn in range(most):
            rng.shuffle(order)
            for place, side in enumerate(order):
                runs = turn * len(sides) + place
                share = max(share, self._share(runs / len(sides), most, time.monotonic() - measuring))
                done = int(PARTS * share)
                yield LabProgress(name=self._name, done=done, total=PARTS, run=runs + 1, side=side, sentence=longer)
                self.runs[side].append(sides[side]())
                yield from self._shown(side, picture)
            self.others = None if counted else programs.share()
            if self._enough(turn + 1, most, began, measuring):
                break
            longer = self._longer(turn + 1, measuring)
        yield LabProgress(name=self._name, done=PARTS, total=PARTS)

    def _share(self, rounds: float, most: int, seconds: float) -> float:
        """Progress, 0 to 0.99, by time: as if it took the budget, or longer where too few rounds are done by then."""
        if not rounds:
            return 0.0
        each = seconds / rounds
        return min(0.99, seconds / max(min(LEAST, most) * each, min(self._lab.budget, most * each), 1e-9))

    def _enough(self, rounds: int, most: int, began: float, measuring: float) -> bool:
        """Return True if no further round begins, by what is known after ``rounds`` rounds."""
        now, effects = time.monotonic(), self._effects(self._decides)
        if rounds >= min(LEAST, most):
            told = now > measuring + self._lab.budget and not any(map(wide, effects))
            if told or all(map(settled, effects)):
                return True
        return now > began + (LONGER if is_busy(self.others) else PATIENCE) * self._lab.budget

    def _longer(self, rounds: int, measuring: float) -> str:
        """Reason a further round begins although the budget is spent; else empty."""
        if time.monotonic() <= measuring + self._lab.budget:
            return ""
        return LONGER_BUSY if is_busy(self.others) else LONGER_WIDE if rounds >= LEAST else ""

    def _shown(self, side: int, picture: Callable[[int], Picture] | None) -> Iterator[LabPicture]:
        if picture is not None:
            yield LabPicture(name=self._name, side=side, picture=picture(side))

    def figures(self) -> list[LabFigure]:
        """List the figures found, in the order of what is measured."""
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
    """A sentence on what was counted, with both counts: ``better`` and ``worse`` go on after "2.1 times"."""
    before, after = (_count(value, effect.metric) for value in (effect.before, effect.after))
    gain = gain_of(effect)
    if effect.before == effect.after:
        return "The same on both sides."
    if gain is None or gain.ratio < 1.005:
        nearly = "Nearly the same on both sides" if gain is not None else "No ratio can be given"
        return f"{nearly}: {before} and {after}."
    between = f" ({_from_to(gain)} in {effect.pairs} pairs)" if times(gain.low) != times(gain.high) else ""
    return f"{_times(gain.ratio)} times {better if gain.better else worse}{between}: {after} instead of {before}."


def timed(effect: Effect, better: str, worse: str, pairs: int = 0) -> str:
    """A sentence on a figure with noise, the median first: ``better`` and ``worse`` as for :func:`headline`.

    ``pairs``: how many were asked for, 0 for as many as a verdict takes.
    """
    gain = gain_of(effect)
    if gain is None:
        before, after = (amount(value, effect.metric) for value in (effect.before, effect.after))
        same = effect.before == effect.after
        return "The same on both sides." if same else f"No ratio can be given: {before} and {after}."
    said = f"{times(gain.ratio)} times {better if gain.better else worse}"
    if times(gain.ratio) == times(1.0) and effect.verdict in ("none", "few"):
        said = "the same"
    many = f"{effect.pairs} pairs"
    if effect.verdict == "few" and effect.pairs == 1:
        there = "that was asked for" if pairs else "there was time for"
        return f"About {said} in the one run of each side {there}. Run it again to be sure."
    if effect.verdict == "few":
        return f"About {said}, {_from_to(gain)} in {many}: too few for a verdict. Run it again to be sure."
    if effect.verdict == "none":
        why = "too noisy for a verdict" if wide(effect) else "no clear difference"
        return f"About {said}, {_from_to(gain)} in {many}: {why}."
    return f"{said[:1].upper()}{said[1:]} ({_from_to(gain)} in {many})."


def steady(effect: Effect, others: float | None) -> bool:
    """Return True if the mean time of steps may be told although their ratio has no verdict: few pairs of many steps
    each say it, unless other programs were in the way."""
    return not wide(effect) or (effect.verdict == "few" and not is_busy(others))


def _count(value: float, metric: Metric) -> str:
    """A median may lie between two counts."""
    return f"{value:,.0f}" if value >= 100 and not metric.unit else amount(value, metric)


def _times(ratio: float) -> str:
    """Format a ratio in three digits, as counts have no noise."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2f}"


def _from_to(gain: Gain) -> str:
    return f"from {times(gain.low)} to {times(gain.high)}"


Writes = Callable[[], Sequence[Answer]]
"""Lets a side write its answers once more."""


def exact_text(
    name: str,
    lab: Lab,
    sides: Sequence[Writes],
    answers: Sequence[Sequence[Answer]],
    prompts: Sequence[Sequence[int]],
) -> Generator[RunEvent, None, LabText]:
    """Compare what all sides of a lossless technique wrote, ``answers`` and ``prompts`` as for :func:`same_text`.

    Fast kernels round otherwise when rows are computed together, which may change a token. Where it did, all sides
    write once more in batch-invariant arithmetic, in which the technique is exact, and those texts are shown.
    """
    fast = same_text(answers, lab, prompts)
    spec = lab.client.state()[keys.BATCH_INVARIANT]
    if fast.same:
        return fast
    if spec.value is True:
        return structs.replace(fast, sentence=f"{fast.sentence} {FAULT}")
    if not spec.disabled_reason:
        yield LabProgress(name=name, done=PARTS, total=PARTS, sentence="writing the text in batch-invariant arithmetic")
        with lab.switched({keys.BATCH_INVARIANT: True}):
            exact = same_text([side() for side in sides], lab)
        if exact.same:
            told = (
                f"{exact.sentence.removesuffix('.')}, in batch-invariant arithmetic, in which the technique is exact."
            )
            return structs.replace(exact, sentence=f"{told} With {ROUNDED}, {lowered(fast.sentence)}")
        return structs.replace(exact, sentence=f"{exact.sentence} Batch-invariant arithmetic was on. {FAULT}")
    exactly = f"The technique is exact; with {ROUNDED}, that was enough to change a token here."
    return structs.replace(fast, sentence=f"{fast.sentence} {exactly}")


def lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def same_text(
    answers: Sequence[Sequence[Answer]], lab: Lab, prompts: Sequence[Sequence[int]] = (), differ: str = ""
) -> LabText:
    """Compare what all sides wrote: ``answers[side][number]``, each pair of answers to the same prompt.

    With ``prompts[number]`` a difference is told with the scores of both tokens, where the model can give them;
    ``differ`` is said of it after that.
    """
    first, *others = answers
    count = sum(len(answer.ids) for answer in first)
    assert lab.model.files is not None
    decode = lab.model.files.tokenizer.decode
    for side in others:
        for number, (one, two) in enumerate(zip(first, side, strict=True)):
            if one.ids != two.ids:
                at = common(one.ids, two.ids)
                near, sentence = False, f"The texts differ from token {at + 1} on{differ}."
                if prompts and at < min(len(one.ids), len(two.ids)):
                    gap = gap_of(lab.model, [*prompts[number], *one.ids[:at]], one.ids[at], two.ids[at])
                    near, sentence = gap < NEAR_TIE, sentence + apart(gap)
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
        far = f"were {gap:.1e} apart" if gap else "were equal"
        return f" A near-tie: the two tokens' log-probabilities {far} there."
    return f" The two tokens' log-probabilities were {gap:.3f} apart there."
