"""Skip-join MLFQ (FastServe): a few long answers and many short ones, in order of arrival or by feedback queues."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from engine import catalogue
from engine.cache.pool import PAGE_SIZE
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import Limits
from engine.decoding.scheduling.policy import SchedulingTechnique
from engine.decoding.simulate.figures import summary
from engine.decoding.simulate.simulator import Simulator
from engine.decoding.simulate.trace import TraceRequest
from engine.decoding.telemetry.pairs import LEAST
from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadedModel
from engine.protocol import Effect, Metric, OptionSpec, Value, keys
from engine.protocol.lab import Axis, LabPage, LabProgress, LabSetting, Lanes, Plot, Series
from engine.services.client import Answer, Arrival, whole_steps
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.measures.courses import Course, courses, lanes, on_one_axis
from engine.services.experiments.measures.scheduling import mean_costs
from engine.services.experiments.pairs import PARTS, PATIENCE, Measured, Pairs, Side
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import questions, reading_speed, too_short, wordless

LONG, SLOTS = 2, 2
"""Long answers, and the places of the batch."""
SHORT, FEWEST = 12, 4
"""Short answers, and the fewest where a model is slow: their prompts are read in a share of the time that there is."""
READING = 0.25
RATIO, SPREAD = 32, 4.0
"""A long answer has so many times the tokens of the shortest; the longest of the short ones has this many times."""
LONGEST, SHORTEST = 1024, 2
LEAST_CONTEXT = 256
LOAD = 300
"""Work that arrives, in percent of what the model does in that time."""
TRIED, PROBE = 48, 12
"""Questions, of which the shortest are asked, and the tokens that tell how fast the model writes."""
SHARE = 0.8
"""The runs of a verdict take this share of the seconds after which no further pair begins."""
SIMULATED = 300
"""Requests of each simulated trace."""
LOADS = (40, 50, 60, 70, 80, 90, 100, 120)
"""Of the simulated traces, in percent."""
POLICIES = ("first_come", "mlfq", "shortest")
"""Those that are simulated, the sides' first."""
CURVES = {
    "Simulated: mean time to the last word": "mean time to the last word",
    "Simulated: mean wait for the first word": "mean wait for the first word",
}
"""Title of each simulated plot -> that of its axis."""

PASSES = Measured("passes", Metric(title="passes through the model until an answer is done", lower_is_better=True))
"""The mean. Not "counted", which has no noise: queues go by seconds."""
COMPLETE = Measured("complete", Metric(title="time to the last word, mean", unit="s", lower_is_better=True))
FIRST = Measured("first", Metric(title="wait for the first word, mean", unit="s", lower_is_better=True))
SLOWEST = Measured("slowest", Metric(title="time to the last word, slowest request", unit="s", lower_is_better=True))


class FeedbackQueues:
    """The same requests with the same arrivals for both sides; other loads are simulated with what steps took."""

    page = LabPage(
        name="mlfq",
        number=11,
        title="Skip-join MLFQ",
        group="Sharing",
        keys=[keys.ADMISSION],
        problem="Answers have very different lengths, which nobody knows in advance: in order of arrival, a few long "
        "ones keep everybody behind them waiting. A multi-level feedback queue serves first who had little so far: an "
        "answer that goes on for long gives way, keeps its KV pages, and comes back.",
        question=f"{LONG} long answers fill the batch when short requests arrive. How much sooner is a request done, "
        "in the mean?",
        choices=["no sooner", "1.5 times", "2 times", "4 times"],
        bounds=[1.1, 1.75, 2.8],
        lesson="Short answers need not wait for long ones, even if nobody knows which are which: whoever had little "
        "goes first.",
        fails="Where nobody waits, the order does not matter; where all answers are about as long, taking turns makes "
        "most of them later. The long answers themselves are done later.",
        sides=["first come, first served", "skip-join MLFQ"],
        seconds=75,
        use={keys.ADMISSION: "mlfq"},
        adjustable=[
            LabSetting(key="load", title="Load, % of what the model does", least=50, most=400, step=50, usual=LOAD),
            LabSetting(key="ratio", title="A long answer, times the shortest", least=1, most=64, step=1, usual=RATIO),
        ],
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return too_short(model, LEAST_CONTEXT, "a long answer needs") or wordless(model)

    def run(self, lab: Lab) -> Run:
        yield LabProgress(name=self.page.name, done=0, total=0, sentence="looking how fast the model writes")
        asked = _asked(lab)
        sides = [_Queued(lab, asked, policy) for policy in POLICIES[: len(self.page.sides)]]
        pairs = Pairs(lab, self.page.name, (PASSES, COMPLETE, FIRST, SLOWEST), COMPLETE)
        yield from pairs.run([side.run for side in sides], lambda side: sides[side].picture())
        figures = pairs.figures()
        passes, complete, first, slowest = figures
        drawn = on_one_axis([side.picture() for side in sides])
        costs = mean_costs(step for side in sides for step in side.steps)
        order = sorted(range(len(asked)), key=lambda place: asked[place].sampling.max_tokens or 0)
        writes = [lambda side=side: side.write(order) for side in sides]
        answers = [[side.answers[place] for place in order] for side in sides]
        prompts = [asked[place].prompt_ids for place in order]
        text = yield from exact_text(self.page.name, lab, writes, answers, prompts)
        yield LabProgress(name=self.page.name, done=PARTS, total=PARTS, sentence="simulating other loads")
        lengths = ", ".join(f"{arrival.sampling.max_tokens}" for arrival in asked)
        simulated = [
            summary(_simulator(policy, lab, costs).run(_trace(asked))).mean for policy in POLICIES[: len(sides)]
        ]
        return Found(
            headline=headline(
                passes.effects[0], "fewer passes until an answer is done", "more passes until one is done"
            ),
            second=timed(complete.effects[0], "sooner done, in the mean", "later done, in the mean", lab.pairs),
            asked=1,
            others=pairs.others,
            figures=figures,
            text=text,
            lesson=_lesson(complete.effects[0]),
            taken=f"{len(asked)} questions, whose answers have {lengths} tokens, arrive within "
            f"{asked[-1].seconds:.2f} s, at the same moments on both sides, and share {SLOTS} places. Passes are "
            "counted by the engine, from a request's arrival to its last word. The simulated lines have these lengths "
            f"in random order, {SIMULATED} requests at each load, which arrive at random; the engine's own "
            "scheduler serves them on virtual time, and passes take what they took in these runs.",
            same=[
                "an answer joins the queue whose quantum its prompt fits, each quantum twice the one before",
                "KV pages of answers that give way are kept",
            ],
            other=[
                f"{len(asked)} requests, the longest of which come first, where the paper's come at random for minutes",
                f"{SLOTS} answers at a time, where the paper has batches of 16 and more on GPUs",
            ],
            why=[
                "In the mean the first word came after {:.2f} s instead of {:.2f} s; the slowest request was done "
                "after {:.2f} s instead of {:.2f} s.".format(*reversed(first.medians), *reversed(slowest.medians)),
                "The ratio depends on load and lengths; the paper's is one of requests a second at a latency that is "
                "allowed, and of unlike engines, too.",
                "Simulated with what passes took here, these requests take {:.2f} and {:.2f} s in the mean; the engine "
                "took {:.2f} and {:.2f} s.".format(*simulated, *complete.medians),
            ],
            settings={
                "requests": len(asked),
                "slots": SLOTS,
                "lengths": lengths,
                "arrivals": ", ".join(f"{arrival.seconds:.2f}" for arrival in asked),
            },
            pictures=drawn,
            plots=_curves(lab, costs, asked),
        )


def _lesson(complete: Effect) -> str:
    """Lesson that replaces the page's where the run does not show that; else ""."""
    match complete.verdict:
        case "better":
            return ""
        case "worse":
            return "Taking turns makes most answers later where all are about as long, as here."
    return "Whoever had little goes first; whether answers were done sooner for it could not be told here."


class _Queued:
    """One side: requests that compete for :data:`SLOTS` places by a policy. ``steps`` are those of all runs."""

    def __init__(self, lab: Lab, asked: list[Arrival], policy: str) -> None:
        self._lab, self._asked = lab, asked
        self._switches: dict[str, Value] = {keys.ADMISSION: policy, keys.MAX_BATCH: SLOTS}
        self.answers: list[Answer] = []
        self.steps: list[StepRecord] = []
        self._courses: list[Course] = []

    def run(self) -> Side:
        with self._lab.switched(self._switches):
            self.answers = self._lab.client.arriving(self._asked, PLAIN)
        steps = self.answers[-1].steps
        self.steps += steps
        self._courses = courses(steps)
        ends = [answer.timings.total_ms / 1000 for answer in self.answers]
        return {
            PASSES.key: statistics.mean(len(course.steps) for course in self._courses),
            COMPLETE.key: statistics.mean(ends),
            FIRST.key: statistics.mean(answer.timings.ttft_ms / 1000 for answer in self.answers),
            SLOWEST.key: max(ends),
        }

    def write(self, order: Sequence[int]) -> list[Answer]:
        """The answers of one more run, in another order."""
        self.run()
        return [self.answers[place] for place in order]

    def picture(self) -> Lanes:
        """Draw when each request waited, was read, was written and gave way."""
        return lanes(self._courses, [f"{arrival.sampling.max_tokens} tokens" for arrival in self._asked])


def _asked(lab: Lab) -> list[Arrival]:
    """Questions in the order of their arrival, the long answers' at once: all as long as there is time for."""
    speed, seconds = reading_speed(lab), SHARE * PATIENCE * lab.budget / (2 * (LEAST + 1))
    prompts = sorted(questions(lab, TRIED), key=len)[: LONG + SHORT]
    count = min(SHORT, max(FEWEST, int(READING * seconds * speed / len(prompts[-1])) - LONG))
    prompts = prompts[: LONG + count]
    steps = lab.client.together(prompts[:SLOTS], greedy(PROBE), PLAIN)[0].steps
    step = min(each.duration for each in whole_steps(steps, SLOTS))  # other programs only ever make it longer
    reading = sum(map(len, prompts)) / speed
    ratio, rng = lab.chosen.get("ratio", RATIO), lab.random
    short = [min(float(ratio), SPREAD ** (place / (count - 1))) for place in range(count)]
    rng.shuffle(short)
    relative = [*[float(ratio)] * LONG, *short]
    timely = max(seconds - reading, seconds / 2) * SLOTS / step / sum(relative)
    model, held = lab.model, max(map(len, prompts)) + PAGE_SIZE
    room = min(LONGEST, model.card.context - held) / ratio
    fitting = (model.pages * PAGE_SIZE - len(prompts) * held) / sum(relative)  # answers that give way keep their pages
    lengths = [max(SHORTEST, round(min(timely, room, fitting) * each)) for each in relative]
    gaps = [0.0] * LONG + [rng.expovariate(1.0) for _ in short]
    work = reading + sum(lengths) * step / SLOTS
    pace = 100 * work / lab.chosen.get("load", LOAD) / sum(gaps)
    return [
        Arrival(at * pace, prompt, greedy(length))
        for at, prompt, length in zip(accumulate(gaps), prompts, lengths, strict=True)
    ]


def _trace(asked: Sequence[Arrival]) -> list[TraceRequest]:
    return [TraceRequest(each.seconds, len(each.prompt_ids), each.sampling.max_tokens or 0) for each in asked]


def _simulator(policy: str, lab: Lab, costs: StepCosts) -> Simulator:
    limits = Limits(int(lab.client.state()[keys.TOKEN_BUDGET].value), max_batch=SLOTS)
    return Simulator(catalogue.record(SchedulingTechnique, policy).policy(), limits, costs, lab.model.pages)


def _curves(lab: Lab, costs: StepCosts, asked: Sequence[Arrival]) -> list[Plot]:
    """Means over loads, simulated. All loads have the same requests in the same order, closer together."""
    rng = lab.random
    drawn = rng.choices(_trace(asked), k=SIMULATED)
    moments = list(accumulate(rng.expovariate(1.0) for _ in drawn))
    together = _simulator(POLICIES[0], lab, costs)
    deque(together.run(each._replace(at=0.0) for each in drawn), maxlen=0)
    pace = 100 * together.now / moments[-1]
    found = {
        policy: [
            summary(
                _simulator(policy, lab, costs).run(
                    each._replace(at=at * pace / load) for each, at in zip(drawn, moments, strict=True)
                )
            )
            for load in LOADS
        ]
        for policy in POLICIES
    }
    return [
        Plot(
            title=title,
            x=Axis(title="load", unit="%"),
            y=Axis(title=what, unit="s", log=True),
            series=[
                Series(
                    name=catalogue.record(SchedulingTechnique, policy).choice.title,
                    points=[(float(load), figure(each)) for load, each in zip(LOADS, of_loads, strict=True)],
                )
                for policy, of_loads in found.items()
            ],
            note="on virtual time, with what passes took in these runs; 100 %: all that the model does. Shortest "
            "remaining first knows the lengths.",
        )
        for (title, what), figure in zip(
            CURVES.items(), (lambda each: each.mean, lambda each: each.first_mean), strict=True
        )
    ]
