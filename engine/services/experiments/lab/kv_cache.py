"""The KV cache: one answer, with the keys and values of its text kept, or computed again for every token."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from engine.loading.model import LoadedModel
from engine.protocol import Effect, Metric, OptionSpec, keys
from engine.protocol.compared import decided
from engine.protocol.lab import Axis, Cells, LabPage, LabProgress, Plot, Series
from engine.services.client import Answer
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs, Side
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import long_answer, reading_speed, rounds, too_short, unread

LENGTHS = (128, 96, 64, 32, 16, 8)
"""Tokens of the answer: the longest that the model writes without a cache in the time there is."""
LEAST_CONTEXT = 64
PROMPT = 64
"""About so many tokens a question has, for what an answer without a cache takes."""
LATE = 16
"""The last tokens of the answer, whose time the question is about."""
BIN = 8
"""Tokens to a point of the plot."""
LATE_MS = Measured("late_ms", Metric(title="a token near the end", unit="ms", lower_is_better=True))
EARLY_MS = Measured("early_ms", Metric(title="a token near the beginning", unit="ms", lower_is_better=True))
SPEED = Measured("speed", Metric(title="speed", unit="tokens/s"))
COMPUTED = Measured("computed", Metric(title="tokens computed", lower_is_better=True, counted=True))


class KVCache:
    """The same answer twice. A step's time is the engine's own, without what passes between two steps."""

    page = LabPage(
        name="kv_cache",
        number=1,
        title="KV cache",
        group="The basics",
        keys=[keys.KV_CACHE],
        problem="A model writes one token at a time, and for each it looks back at the whole text: without a memory it "
        "would compute all of that text again. The KV cache keeps what attention needs of every token (its keys and "
        "values), so that each new token costs one row of work.",
        question="Near the end of an answer, how much sooner does each token come with the KV cache?",
        choices=["not at all", "2 times", "5 times", "20 times"],
        bounds=[1.4, 3.2, 10.0],
        lesson="Without a KV cache each token computes the whole text again, and that grows; with it, each token "
        "computes one row.",
        fails="It does not help the prompt, which is read once either way, and it takes memory that grows with the "
        "text.",
        sides=["without a KV cache", "with the KV cache"],
        seconds=30,
        use={keys.KV_CACHE: True},
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return too_short(model, LEAST_CONTEXT, "the answer needs") or unread(model)

    def run(self, lab: Lab) -> Run:
        yield LabProgress(name=self.page.name, done=0, total=0, sentence="looking for a long answer")
        prompt, length = long_answer(lab, _length(lab))
        sides = [_Written(lab, prompt, length, kept=kept) for kept in (False, True)]
        pairs = Pairs(lab, self.page.name, (COMPUTED, LATE_MS, EARLY_MS, SPEED), LATE_MS)
        yield from pairs.run([side.run for side in sides], lambda side: sides[side].picture())
        figures = pairs.figures()
        answers = [[side.answers[-1]] for side in sides]
        writes = [lambda side=side: [side.write()] for side in sides]
        text = yield from exact_text(self.page.name, lab, writes, answers, [prompt])
        computed, late, early = (figures[place].effects[0] for place in (0, 1, 2))
        return Found(
            headline=headline(computed, "fewer tokens computed", "more tokens computed"),
            second=timed(late, "sooner for each token near the end", "later for each token near the end", lab.pairs),
            asked=1,
            others=pairs.others,
            figures=figures,
            text=text,
            taken=f"One answer of {length} tokens to a prompt of {len(prompt)}, greedy. Tokens are counted by the "
            f"engine, in every step. The time near the end is the median of the last {_late(length)} steps.",
            same=["one answer, greedy, lossless" if text.same else "one answer, greedy"],
            other=[f"the answer has {length} tokens"],
            why=[
                f"{computed.before:,.0f} tokens were computed without the cache, {computed.after:,.0f} with it.",
                *_grew(early, late),
            ],
            settings={"prompt": len(prompt), "answer": length},
            pictures=[side.picture() for side in sides],
            plots=[
                Plot(
                    title="Time of each token",
                    x=Axis(title="tokens of the text so far"),
                    y=Axis(title="time of the next token", unit="ms"),
                    series=[side.series(name) for side, name in zip(sides, self.page.sides, strict=True)],
                    note=f"medians over the runs and over {BIN} tokens, the lowest and the highest run around them",
                )
            ],
        )


def _grew(early: Effect, late: Effect) -> list[str]:
    """Say how a token's time grew over the answer; empty if times cannot be told."""
    if not decided(late):
        return []
    return [
        f"From its beginning to its end a token without the cache went from {early.before:.1f} to {late.before:.1f} "
        f"ms, with it from {early.after:.1f} to {late.after:.1f} ms. Rows that are computed together share what is "
        "read of the weights, so that time grows more slowly than their number."
    ]


class _Written:
    """One side: the same answer in every run. ``answers`` are those of all runs, the warm-up first."""

    def __init__(self, lab: Lab, prompt: list[int], length: int, *, kept: bool) -> None:
        self._lab, self._prompt, self._length = lab, prompt, length
        self._switches = {**PLAIN, keys.KV_CACHE: kept}
        self.answers: list[Answer] = []

    def write(self) -> Answer:
        return self._lab.client.answer(self._prompt, greedy(self._length), self._switches)

    def run(self) -> Side:
        answer = self.write()
        self.answers.append(answer)
        times, late = _times(answer), _late(self._length)
        return {
            LATE_MS.key: statistics.median(times[-late:]),
            EARLY_MS.key: statistics.median(times[1 : 1 + late]),
            COMPUTED.key: float(sum(step.rows.prefill + step.rows.decode for step in answer.steps)),
            SPEED.key: answer.timings.tokens_per_second,
        }

    def picture(self) -> Cells:
        steps = [step for step in self.answers[-1].steps if step.generated]
        computed = [step.rows.prefill + step.rows.decode for step in steps]
        return Cells(computed=computed, present=[len(self._prompt) + place for place in range(len(steps))])

    def series(self, name: str) -> Series:
        """Milliseconds over tokens; the prompt's own step, which both sides have, is left out."""
        runs = [_times(answer) for answer in self.answers[1:]]
        points, low, high = [], [], []
        for start in range(1, self._length, BIN):
            medians = sorted(statistics.median(times[start : start + BIN]) for times in runs)
            points.append((float(len(self._prompt) + start), statistics.median(medians)))
            low.append(medians[0])
            high.append(medians[-1])
        return Series(name=name, points=points, low=low, high=high)


def _late(length: int) -> int:
    return min(LATE, length // 4)


def _times(answer: Answer) -> list[float]:
    """Milliseconds of each step that gave a token, the prompt's first."""
    return [1000 * step.duration for step in answer.steps if step.generated]


def _length(lab: Lab) -> int:
    """The most tokens of the answer, such that the least number of runs takes no longer than the budget."""
    rate, context = reading_speed(lab), lab.model.card.context
    fitting = [length for length in LENGTHS if 2 * length <= context] or [LENGTHS[-1]]
    for length in fitting:
        if rounds(lab) * length * (PROMPT + length / 2) / rate <= lab.budget:
            return length
    return fitting[-1]
