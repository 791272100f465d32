"""Continuous batching (Orca): requests that come one by one, answered alone, in fixed batches, or as slots get free."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE
from engine.decoding.telemetry.pairs import LEAST, estimate
from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadedModel
from engine.protocol import Effect, Metric, OptionSpec, Sampling
from engine.protocol.compared import decided
from engine.protocol.lab import Doing, LabPage, LabProgress, Lane, Lanes, Span
from engine.services.client import Answer, Arrival
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.measures.courses import on_one_axis
from engine.services.experiments.pairs import Measured, Pairs, Side
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline, lowered, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import questions, too_short, wordless

REQUESTS, SLOTS = 8, 4
SHORTEST, LONGEST = 10, 200
LEAST_CONTEXT = 128
TRIED, TRYING = 24, 0.25
"""Questions whose answers may be tried for their lengths, and the share of the budget that this may take."""
PROBE, PROBES = 12, 5
"""Tokens of an answer that tells how fast the model writes, and how many of them."""
ROUND = 2.5
"""A round of all sides takes about so many times as long as one by one alone."""
BUSY = 0.25
"""All requests arrive within this share of the time that answering them one by one takes."""

DONE = Measured("done", Metric(title="requests done", unit="a minute"))
FIRST = Measured("first", Metric(title="wait for the first word, mean", unit="s", lower_is_better=True))
COMPLETE = Measured("complete", Metric(title="wait for the last word, mean", unit="s", lower_is_better=True))
PASSES = Measured("passes", Metric(title="passes through the model", lower_is_better=True))
"""Not "counted", which has no noise: moments of arrival decide who shares a pass."""
PASS = Measured("pass", Metric(title="a pass, median", unit="ms", lower_is_better=True))


class Batching:
    """The same requests with the same arrivals for all sides."""

    page = LabPage(
        name="batching",
        number=8,
        title="Continuous batching",
        group="Sharing",
        keys=[],
        problem="One pass through the model can write a word for several people at once, but people come at different "
        "times and want answers of different lengths. Continuous batching lets each join at the next word and leave "
        "with its last one, instead of waiting until a whole group begins and ends together.",
        question=f"{REQUESTS} requests arrive in short order. How many more are done in a minute than one by one?",
        choices=["no more", "1.5 times", "2 times", "4 times"],
        bounds=[1.1, 1.75, 2.8],
        lesson="Answers that share each pass through the model are done sooner, and nobody waits for the longest one.",
        fails="With one chat at a time there is nobody to share with; where arithmetic is the limit and not memory, as "
        "on a processor with few cores, each further answer makes the pass longer.",
        sides=["one by one", f"static batches of {SLOTS}", "continuous batching"],
        seconds=60,
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return too_short(model, LEAST_CONTEXT, "these requests need") or wordless(model)

    def run(self, lab: Lab) -> Run:
        yield LabProgress(name=self.page.name, done=0, total=0, sentence="looking for answers of unlike length")
        asked = _asked(lab)
        sides = [
            _BatchingSide(lab, asked, slots, waits=waits)
            for slots, waits in ((1, False), (SLOTS, True), (SLOTS, False))
        ]
        pairs = Pairs(lab, self.page.name, (PASSES, DONE, FIRST, COMPLETE, PASS), DONE)
        yield from pairs.run([side.run for side in sides], lambda side: sides[side].picture())
        figures = pairs.figures()
        passed, done, first, _, _ = (figure.runs for figure in figures)
        beside = estimate(done[1], done[2], DONE.metric)
        tokens = sum(arrival.sampling.max_tokens or 0 for arrival in asked)
        passes = [statistics.median(side) for side in passed]
        rate = figures[1].effects[1]
        drawn = on_one_axis([side.picture() for side in sides])
        answers, writes = [side.answers for side in sides], [side.write for side in sides]
        text = yield from exact_text(self.page.name, lab, writes, answers, [each.prompt_ids for each in asked])
        many = ("as many requests done in a minute", "fewer requests done in a minute")
        return Found(
            headline=headline(figures[0].effects[1], "fewer passes through the model", "more passes through the model"),
            second=timed(rate, *many, lab.pairs),
            asked=1,
            others=pairs.others,
            figures=figures,
            text=text,
            lesson=_lesson(rate),
            taken=f"{REQUESTS} questions, whose answers have {_lengths(asked)} tokens, arrive within "
            f"{asked[-1].seconds:.2f} s, at the same moments on every side. Passes are counted by the engine. A wait "
            "counts from arrival to word. Requests a minute: all of them, over the time from the first arrival to the "
            "last word.",
            same=["requests of unlike length that arrive by chance", f"both kinds of batches have {SLOTS} slots"],
            other=[
                f"{REQUESTS} requests, where the paper's servers get them for minutes, on GPUs",
                "a slot that is empty costs nothing here, so that the static batch is faster than the paper's, "
                "which computes empty slots too",
            ],
            why=[
                f"The {tokens} tokens took {passes[0]:.0f} passes one by one, {passes[1]:.0f} in static batches and "
                f"{passes[2]:.0f} with continuous batching, which wrote {tokens / passes[2]:.1f} tokens a pass.",
                *_longer(figures[4].effects[1]),
                "Beside static batches: "
                f"{lowered(timed(beside, 'as many requests a minute', 'fewer requests a minute', lab.pairs))}",
                f"The first word came after {statistics.median(first[1]):.2f} s in static batches, whose first request "
                f"waits for number {SLOTS}, and after {statistics.median(first[2]):.2f} s in continuous ones.",
            ],
            settings={
                "requests": REQUESTS,
                "slots": SLOTS,
                "lengths": _lengths(asked),
                "arrivals": ", ".join(f"{arrival.seconds:.2f}" for arrival in asked),
            },
            pictures=drawn,
        )


def _longer(effect: Effect) -> list[str]:
    """Say what sharing a pass costs, by a pass with continuous batching; empty if times cannot be told."""
    if not decided(effect):
        return []
    longer = effect.after / effect.before
    return [
        f"With continuous batching a pass took {longer:.2f} times as long as for one answer: what sharing a pass costs "
        "on this machine."
    ]


def _lesson(rate: Effect) -> str:
    """Lesson that replaces the page's where the run does not show that; else ""."""
    fewer = "Answers that share each pass through the model need fewer passes in all"
    match rate.verdict:
        case "better":
            return ""
        case "worse":
            return f"{fewer}, but here each pass took so much longer that they were not done sooner."
    return f"{fewer}; whether they were done sooner could not be told here."


class _Times(NamedTuple):
    """Times of one request, in seconds from the start of its run. ``freed``: when its slot was there for another."""

    arrived: float
    admitted: float
    first: float
    last: float
    freed: float


class _BatchingSide:
    """One side: ``slots`` at a time; ``waits``: until a batch is full, and until its longest answer ends."""

    def __init__(self, lab: Lab, asked: list[Arrival], slots: int, *, waits: bool) -> None:
        self._lab, self._asked, self._slots, self._waits = lab, asked, slots, waits
        self.answers: list[Answer] = []
        self.times: list[_Times] = []

    def write(self) -> list[Answer]:
        """The answers of one more run."""
        self.run()
        return self.answers

    def run(self) -> Side:
        began, client = time.perf_counter(), self._lab.client
        freed: list[float] = []
        steps: list[StepRecord] = []
        if self._waits:
            self.answers = []
            for start in range(0, len(self._asked), self._slots):
                batch = self._asked[start : start + self._slots]
                time.sleep(max(0.0, began + batch[-1].seconds - time.perf_counter()))
                self.answers += client.arriving([each._replace(seconds=0.0) for each in batch], PLAIN)
                steps += self.answers[-1].steps
                freed += [time.perf_counter() - began] * len(batch)
        else:
            self.answers = client.arriving(self._asked, PLAIN, self._slots)
            steps += self.answers[-1].steps
        self.times = []
        for place, (arrival, answer) in enumerate(zip(self._asked, self.answers, strict=True)):
            submitted, timings = answer.submitted - began, answer.timings
            admitted, first, last = (
                submitted + ms / 1000 for ms in (timings.queued_ms, timings.ttft_ms, timings.total_ms)
            )
            self.times.append(_Times(arrival.seconds, admitted, first, last, freed[place] if freed else last))
        return {
            DONE.key: 60 * len(self.times) / max(each.last for each in self.times),
            FIRST.key: statistics.mean(each.first - each.arrived for each in self.times),
            COMPLETE.key: statistics.mean(each.last - each.arrived for each in self.times),
            PASSES.key: float(len(steps)),
            PASS.key: 1000 * statistics.median(step.duration for step in steps if not step.rows.prefill),
        }

    def picture(self) -> Lanes:
        """Draw when each request waited, was read and was written, and how long its slot was then empty."""
        lanes = [
            Lane(name=f"{place + 1}: {arrival.sampling.max_tokens} tokens", spans=_spans(times))
            for place, (arrival, times) in enumerate(zip(self._asked, self.times, strict=True))
        ]
        return Lanes(lanes=lanes, seconds=max(times.freed for times in self.times))


def _spans(times: _Times) -> list[Span]:
    doing: tuple[Doing, ...] = ("waiting", "reading", "writing", "idle")
    spans = [Span(start=start, end=end, doing=each) for each, (start, end) in zip(doing, pairwise(times), strict=True)]
    return [span for span in spans if span.end > span.start]


def _asked(lab: Lab) -> list[Arrival]:
    """Questions in the order of their arrival, whose answers are as long as the model writes in the time that there
    is."""
    prompts = questions(lab, TRIED)
    longest = max(map(len, prompts))
    probe = greedy(PROBE)
    speeds = sorted(lab.client.answer(prompts[0], probe, PLAIN).timings.tokens_per_second for _ in range(PROBES))
    speed = statistics.median(speeds)
    ladder = [(LONGEST / SHORTEST) ** (place / (REQUESTS - 1)) for place in range(REQUESTS)]  # from 1 to the longest
    room = min(lab.model.card.context, lab.model.pages * PAGE_SIZE // SLOTS - PAGE_SIZE) - longest
    most = min(LONGEST, room, speed * lab.budget / (LEAST + 1) / ROUND * ladder[-1] / sum(ladder))
    wanted = [round(max(2.0, most / ladder[-1]) * each) for each in ladder]
    requests = _chosen(lab, prompts, wanted, int(TRYING * lab.budget * speed / wanted[-1]))
    rng = lab.random
    rng.shuffle(requests)
    gaps = [0.0, *(rng.expovariate(1.0) for _ in requests[1:])]
    total = sum(length for _, length in requests)
    spread = BUSY * total / speeds[-1] / sum(gaps)  # of the fastest: other programs only ever slow it down
    return [
        Arrival(seconds, prompt, greedy(length))
        for seconds, (prompt, length) in zip(accumulate(gap * spread for gap in gaps), requests, strict=True)
    ]


def _chosen(lab: Lab, prompts: list[list[int]], wanted: Sequence[int], affordable: int) -> list[tuple[list[int], int]]:
    """A question for each length that is wanted, with how many tokens of its answer are written: no more than it has.

    ``affordable``: how many answers may be tried; where those are fewer than the lengths, answers are cut or go on.
    """
    if affordable < len(wanted):
        return list(zip(prompts, wanted, strict=False))
    sampling = greedy(max(wanted), ends=True)
    tried = prompts[:affordable]
    left = [(prompt, len(answer.ids)) for prompt, answer in zip(tried, _tried(lab, tried, sampling), strict=True)]
    found = []
    for length in sorted(wanted, reverse=True):
        place = min(range(len(left)), key=lambda at: (left[at][1] < length, abs(left[at][1] - length)))
        prompt, has = left.pop(place)
        found.append((prompt, max(2, min(length, has))))
    return found


def _tried(lab: Lab, prompts: Sequence[list[int]], sampling: Sampling) -> list[Answer]:
    """Their answers, as many at a time as a batch has slots."""
    return lab.client.arriving([Arrival(0.0, prompt, sampling) for prompt in prompts], PLAIN, SLOTS)


def _lengths(asked: Sequence[Arrival]) -> str:
    return ", ".join(f"{arrival.sampling.max_tokens}" for arrival in asked)
