"""Chunked prefill (Sarathi-Serve): a long prompt that arrives while answers are written, read whole or in chunks."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from engine.cache.pool import PAGE_SIZE
from engine.decoding.scheduling.service import INTERACTIVE, LEAST_READ
from engine.decoding.telemetry.pairs import LEAST, estimate
from engine.loading.model import LoadedModel
from engine.protocol import Effect, Metric, OptionSpec, Value, keys
from engine.protocol.lab import Axis, LabPage, LabProgress, LabSetting, Lanes, Plot, Series
from engine.services.client import Answer, whole_steps
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.measures.courses import courses, lanes, on_one_axis
from engine.services.experiments.measures.scheduling import rows_of
from engine.services.experiments.pairs import PATIENCE, Measured, Pairs, Side
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline, lowered, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import (
    asked,
    questions,
    reading_speed,
    too_short,
    wordless,
)

STREAMS, CHUNKS = 4, 8
LONGEST, SHORTEST = 4000, 200
"""Tokens of the long prompt, at most and at least."""
LEAST_CONTEXT = 512
SMALLEST, LARGEST_CHUNK = 32, 512
BEFORE, AFTER = 8, 24
"""Tokens that each answer has before the long prompt arrives, and once it is read, at least."""
PROBE = 12
TARGET_MS = round(1000 * INTERACTIVE.between_tokens)
SHARE = 0.8
"""The runs of a verdict take this share of the seconds after which no further pair begins."""
DEARER = 1.3
"""A prompt in chunks takes so many times as long to read."""

WAITS = ("less to wait for a word at the worst", "more to wait for a word at the worst")

LARGEST = Measured("largest", Metric(title="tokens of the largest pass", lower_is_better=True))
"""Not "counted", which has no noise: what targets allow follows the times of steps."""
WORST = Measured("worst", Metric(title="longest pause between two words", unit="ms", lower_is_better=True))
USUAL = Measured(
    "usual", Metric(title="time between two words while it is read, median", unit="ms", lower_is_better=True)
)
FIRST = Measured("first", Metric(title="first word of the long prompt", unit="s", lower_is_better=True))
SPEED = Measured("speed", Metric(title="speed of all answers together", unit="tokens/s"))


class ChunkedPrefill:
    """The same answers and the same long prompt for all sides."""

    page = LabPage(
        name="chunked",
        number=10,
        title="Chunked prefill",
        group="Sharing",
        keys=[keys.CHUNKED_PREFILL, keys.STEP_TARGETS],
        problem="A long prompt takes many times as long to read as a word takes to write, and while a pass through the "
        "model reads all of it, everybody else's answer stands still. Chunked prefill cuts it into chunks, each of "
        "which shares a pass with the answers under way; step targets make them as small as a target time between "
        "words asks for.",
        question=f"A long prompt arrives while {STREAMS} answers are written. How much shorter is their longest pause?",
        choices=["no shorter", "2 times", "5 times", "20 times"],
        bounds=[1.4, 3.2, 10.0],
        lesson="A prompt that is read in chunks makes nobody wait longer than a chunk takes.",
        fails="With one chat at a time nobody waits, and a prompt that is no longer than a chunk is read whole anyway. "
        "The long prompt itself has its first word later, the more so the smaller the chunks are.",
        sides=["whole prompts", "chunked prefill", "chunked, with step targets"],
        seconds=60,
        use={keys.CHUNKED_PREFILL: True, keys.STEP_TARGETS: True},
        adjustable=[
            LabSetting(
                key="prompt", title="Tokens of the long prompt, at most", least=200, most=8000, step=200, usual=LONGEST
            ),
            LabSetting(key="chunks", title="Chunks of the prompt", least=2, most=32, step=1, usual=CHUNKS),
            LabSetting(
                key="target", title="Target between two words, ms", least=10, most=500, step=10, usual=TARGET_MS
            ),
            LabSetting(key="streams", title="Answers that are written", least=1, most=16, step=1, usual=STREAMS),
        ],
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return too_short(model, LEAST_CONTEXT, "a prompt worth cutting needs") or wordless(model)

    def run(self, lab: Lab) -> Run:
        yield LabProgress(name=self.page.name, done=0, total=0, sentence="looking for a prompt of fitting length")
        streams = questions(lab, lab.chosen.get("streams", STREAMS))
        arriving = asked(lab.model, _length(lab, streams), lab.random)
        chunk = min(LARGEST_CHUNK, max(SMALLEST, len(arriving) // lab.chosen.get("chunks", CHUNKS)))
        target = lab.chosen.get("target", TARGET_MS)
        switches: list[dict[str, Value]] = [
            {
                keys.CHUNKED_PREFILL: chunked,
                keys.STEP_TARGETS: targets,
                keys.TOKEN_BUDGET: chunk,
                keys.INTERACTIVE_ITL: target,
            }
            for chunked, targets in ((False, False), (True, False), (True, True))
        ]
        sides = [_Interrupted(lab, streams, arriving, each) for each in switches]
        pairs = Pairs(lab, self.page.name, (LARGEST, WORST, USUAL, FIRST, SPEED), WORST)
        yield from pairs.run([side.run for side in sides], lambda side: sides[side].picture())
        figures = pairs.figures()
        largest, worst, _, first, _ = figures
        at_once, cut, held = worst.medians
        fixed = estimate(worst.runs[1], worst.runs[2], WORST.metric)
        drawn, plot = on_one_axis([side.picture() for side in sides]), _plot(self.page.sides, sides)
        answers, writes = [side.answers[::-1] for side in sides], [side.write_short for side in sides]
        text = yield from exact_text(self.page.name, lab, writes, answers, [arriving, *reversed(streams)])
        tokens = _tokens([*streams, arriving])
        return Found(
            headline=headline(
                largest.effects[0], "fewer tokens in the largest pass", "more tokens in the largest pass"
            ),
            second=timed(worst.effects[0], *WAITS, lab.pairs),
            told_of=0,
            asked=1,
            others=pairs.others,
            figures=figures,
            text=text,
            lesson=_lesson(worst.effects[0]),
            taken=f"{len(streams)} answers of {tokens} tokens; when each has {BEFORE}, a prompt of "
            f"{len(arriving):,} tokens arrives. Tokens of a pass are counted by the engine; pauses are taken of all "
            f"{len(streams)} answers, where their tokens arrive.",
            same=["chunks share passes with the answers under way, whose tokens come first", "greedy, lossless"],
            other=[
                f"one long prompt and {len(streams)} answers, where the paper has requests that arrive for minutes, on "
                "GPUs",
                f"chunks of {chunk} tokens, where the paper has 512 or 2,048",
            ],
            why=[
                f"The longest pause between two words was {at_once:.0f} ms where the prompt was read whole, "
                f"{cut:.0f} ms in chunks of {chunk} tokens, and {held:.0f} ms with a target of {target} "
                f"ms{_missed(held / target, largest.medians[2], len(streams))}.",
                "The price is the long prompt's: its first word came after {:.2f} s, {:.2f} s and {:.2f} s.".format(
                    *first.medians
                ),
                f"Targets beside chunks of one size: {lowered(timed(fixed, *WAITS, lab.pairs))}",
            ],
            settings={
                "prompt": len(arriving),
                "chunk": chunk,
                "target": target,
                "streams": len(streams),
                "tokens": tokens,
            },
            pictures=drawn,
            plots=[plot],
        )


def _lesson(worst: Effect) -> str:
    """Lesson that replaces the page's where the run does not show that; else ""."""
    match worst.verdict:
        case "better":
            return ""
        case "worse":
            return "Chunks bound how much a pass reads, but here the longest pause was longer with them."
    return "Chunks bound how much a pass reads; whether that made the longest pause shorter could not be told here."


class _Interrupted:
    """One side: ``switches`` hold while answers to ``streams`` are written and ``arriving`` comes."""

    def __init__(self, lab: Lab, streams: list[list[int]], arriving: list[int], switches: Mapping[str, Value]) -> None:
        self._lab, self._streams, self._arriving, self._switches = lab, streams, arriving, switches
        self.answers: list[Answer] = []

    def _write(self, arriving: Sequence[int]) -> list[Answer]:
        sampling = greedy(_tokens([*self._streams, arriving]))
        with self._lab.switched(self._switches):
            return self._lab.client.interrupted(self._streams, arriving, sampling, BEFORE, PLAIN, INTERACTIVE.name)

    def write_short(self) -> list[Answer]:
        """The answers beside a shorter prompt, that one's first: exact arithmetic is slow."""
        return self._write(self._arriving[-SHORTEST:])[::-1]

    def run(self) -> Side:
        meanwhile: list[float] = []
        while not meanwhile:  # where other programs held the client up, all answers had ended when the prompt arrived
            self.answers = self._write(self._arriving)
            *streams, long = self.answers
            first = long.submitted + long.timings.ttft_ms / 1000
            steps = [step for answer in streams for step in _steps(answer)]
            meanwhile = [1000 * (at - start) for start, at in steps if at > long.submitted and start < first]
        seconds = max(at for _, at in steps) - min(answer.submitted for answer in streams)
        return {
            LARGEST.key: float(max(map(rows_of, courses(long.steps)[-1].steps))),
            WORST.key: max(meanwhile),
            USUAL.key: statistics.median(meanwhile),
            FIRST.key: long.timings.ttft_ms / 1000,
            SPEED.key: sum(len(answer.ids) for answer in streams) / seconds,
        }

    def picture(self) -> Lanes:
        """Draw when each answer was written and paused, and how long the prompt was read."""
        names = [f"answer {place + 1}" for place in range(len(self._streams))]
        return lanes(courses(self.answers[-1].steps), [*names, f"prompt of {len(self._arriving):,}"])

    def series(self, name: str) -> Series:
        """Milliseconds between tokens of the first answer, over seconds since the long prompt arrived."""
        answer, long = self.answers[0], self.answers[-1]
        ended = long.submitted + long.timings.total_ms / 1000
        steps = [(start, at) for start, at in _steps(answer) if long.submitted < at and start < ended]
        points = [(end - long.submitted, 1000 * (at - start)) for start, at in steps for end in (start, at)]
        return Series(name=name, points=points)


def _steps(answer: Answer) -> Iterator[tuple[float, float]]:
    """When each of its tokens but the first came, after when the one before did, by time.perf_counter()."""
    return pairwise(accumulate(answer.gaps, initial=answer.submitted + answer.timings.ttft_ms / 1000))


def _plot(names: Sequence[str], sides: Sequence[_Interrupted]) -> Plot:
    return Plot(
        title="Time between the words of one answer, last run",
        x=Axis(title="since the long prompt arrived", unit="s"),
        y=Axis(title="time between words", unit="ms", log=True),
        series=[side.series(name) for name, side in zip(names, sides, strict=True)],
    )


def _tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens of each answer, so that it is still being written when the slowest side has read all prompts."""
    return BEFORE + sum(map(len, prompts)) // LEAST_READ + AFTER


def _missed(times: float, largest: float, streams: int) -> str:
    """After the longest pause with a target: why it is so many ``times`` as long, if it is far above."""
    if times < 1.5:
        return ""
    if largest > LEAST_READ + streams:
        return ", which some passes exceeded"
    return f", which could not be kept: each pass reads {LEAST_READ} tokens of a prompt, however long that takes"


def _length(lab: Lab, streams: Sequence[list[int]]) -> int:
    """Tokens of the long prompt: as many as there is time for, and room beside the other answers."""
    steps = lab.client.together(streams, greedy(PROBE), PLAIN)[0].steps
    step = min(each.duration for each in whole_steps(steps, len(streams)))  # others only ever make it longer
    seconds = SHARE * PATIENCE * lab.budget / (len(ChunkedPrefill.page.sides) * (LEAST + 1))
    timely = (seconds - _tokens(streams) * step) / (DEARER / reading_speed(lab) + step / LEAST_READ)
    held = sum(map(len, streams)) + (len(streams) + 1) * (_tokens(streams) + PAGE_SIZE)
    room = (lab.model.pages * PAGE_SIZE - held) / (1 + len(streams) / LEAST_READ)
    longest = min(lab.model.card.context * 5 // 8, lab.chosen.get("prompt", LONGEST))
    return min(longest, max(SHORTEST, int(min(timely, room))))
