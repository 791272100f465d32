"""``kvasir bench --scheduling``: the policies on one trace, live and simulated with what those steps took; and
chats beside a flood of batch requests."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import fmean

from engine import catalogue
from engine.catalogue import records
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import Limits
from engine.decoding.scheduling.policy import SchedulingTechnique
from engine.decoding.scheduling.service import BATCH as BATCH_CLASS
from engine.decoding.scheduling.service import INTERACTIVE
from engine.decoding.simulate.figures import TraceSummary, at_share, summary
from engine.decoding.simulate.simulator import Done, Simulator
from engine.decoding.simulate.trace import TraceRequest, TraceSpec, synthetic
from engine.decoding.telemetry.records import StepRecord
from engine.protocol import keys
from engine.services import client as clients
from engine.services.client import EngineClient
from engine.services.experiments.reports.scheduling import FloodRow, PolicyRow, SchedulingFigures
from engine.services.experiments.reports.tables import say
from engine.services.experiments.roofline.work import settings_of
from engine.services.experiments.sides import PLAIN, Switched, greedy
from engine.services.experiments.workloads.traces import words_of

BATCH = 4
"""The batch size, small enough that requests compete for it."""
REQUESTS = 200
LOAD = 1.2
"""Work that arrives, by what steps of whole batches get done."""
CONTEXT = 512
"""Tokens before those that answers write in steps whose costs are computed."""
CALIBRATION = ((16, 24), (64, 24), (256, 24), (400, 24))
"""Prompts and answers, in tokens, from which the costs of steps are learned."""
CHATS, CHAT = 40, (10, 8)
"""Interactive requests beside a flood, and the tokens of their prompts and answers."""
FLOODED = (64, 128)
"""Tokens of prompts and answers of the flood."""
APART = 4.0
"""Time between two chats on average, in times that one takes alone."""


def measure_scheduling(client: EngineClient, requests: int = REQUESTS) -> SchedulingFigures:
    """Every policy on the same heavy-tailed trace."""
    state, model = client.state(), client.model
    trace = _trace(step_costs(client), requests, model.card.context)
    limits = Limits(int(state[keys.TOKEN_BUDGET].value), max_batch=BATCH)
    live: list[tuple[SchedulingTechnique, TraceSummary, list[StepRecord]]] = []
    for policy in records(SchedulingTechnique):
        say(f"{requests} requests: {policy.choice.title}")
        with Switched(client, {keys.MAX_BATCH: BATCH, keys.ADMISSION: policy.name}):
            live.append((policy, *_live(client, trace)))
    costs = mean_costs(step for *_, steps in live for step in steps)
    rows = []
    for policy, served, steps in live:
        simulator = Simulator(policy.policy(), limits, costs, model.pages)
        simulated = summary(simulator.run(trace))
        rows.append(PolicyRow(policy.name, policy.choice.title, served, simulated, len(steps), simulator.steps))
    floods = _floods(client, min(CHATS, requests))
    return SchedulingFigures(model.card.name, requests, BATCH, costs.points, rows, floods)


def _floods(client: EngineClient, count: int) -> list[FloodRow]:
    """First tokens of the same chats alone, and beside batch requests of which one waits at all times."""
    words, rng = words_of(client.model, 2), random.Random(1)
    alone = client.answer(words.some(CHAT[0]), greedy(CHAT[1]), PLAIN).timings.total_ms / 1e3
    moments = list(accumulate(rng.expovariate(1 / (APART * alone)) for _ in range(count)))
    chats = [clients.Arrival(at, words.some(CHAT[0]), greedy(CHAT[1]), INTERACTIVE.name) for at in moments]
    one = client.answer(words.some(FLOODED[0]), greedy(FLOODED[1]), PLAIN).timings.total_ms / 1e3
    many = BATCH + round(
        3 * BATCH * moments[-1] / one
    )  # a full batch is less than three times as fast as one after one
    flood = [clients.Arrival(0.0, words.some(FLOODED[0]), greedy(FLOODED[1]), BATCH_CLASS.name) for _ in range(many)]

    def row(title: str, policy: str, beside: Sequence[clients.Arrival]) -> FloodRow:
        say(f"{count} chats: {title}")
        with Switched(client, {keys.MAX_BATCH: BATCH, keys.ADMISSION: policy}):
            answers = client.arriving([*beside, *chats], PLAIN)
        waits = sorted(answer.timings.ttft_ms / 1e3 for answer in answers[len(beside) :])
        return FloodRow(title, len(beside), at_share(waits, 0.5), at_share(waits, 0.99))

    return [
        row("an idle machine", "first_come", []),
        *(
            row(f"beside batch requests, {catalogue.record(SchedulingTechnique, policy).choice.title}", policy, flood)
            for policy in ("first_come", "classes")
        ),
    ]


def step_costs(client: EngineClient) -> StepCosts:
    """What steps cost with the loaded model."""
    words = words_of(client.model, 0)
    costs = StepCosts()
    for prompt, answer in CALIBRATION:
        prompts = [words.some(min(prompt, client.model.card.context // 2)) for _ in range(BATCH)]
        for step in client.together(prompts, greedy(answer), PLAIN)[0].steps:
            costs.learn(rows_of(step), step.duration)
    return costs


def mean_costs(steps: Iterable[StepRecord]) -> StepCosts:
    """What these steps took in the mean: those together that are as large, or up to twice as large."""
    alike: defaultdict[int, list[StepRecord]] = defaultdict(list)
    for step in steps:
        alike[rows_of(step).bit_length()].append(step)
    means = ((fmean(map(rows_of, some)), fmean(step.duration for step in some)) for some in alike.values())
    return StepCosts(*((round(rows), seconds) for rows, seconds in means))


def roof_costs(client: EngineClient, memory: float, arithmetic: float, batch: int, most: int) -> StepCosts:
    """What steps of up to ``most`` rows take with the loaded model on a machine that reads ``memory`` bytes a second
    and does ``arithmetic`` operations, at the least (Williams et al. 2009): up to ``batch`` rows are of answers after
    :data:`CONTEXT` tokens, more are of a prompt."""
    settings, costs = settings_of(client.model, client.state()), StepCosts()
    for rows in (1 << power for power in range(most.bit_length())):
        work = settings.decode(CONTEXT, rows) if rows <= batch else settings.prompt(rows)
        costs.learn(rows, max(work.bytes / memory, work.operations / arithmetic))
    return costs


def rows_of(step: StepRecord) -> int:
    return step.rows.decode + step.rows.prefill + step.rows.verify


def _trace(costs: StepCosts, requests: int, context: int) -> list[TraceRequest]:
    """A trace whose work fills the steps of whole batches."""
    made = list(synthetic(TraceSpec(requests, 1.0, lengths="heavy")))
    cut = [each._replace(prompt=min(each.prompt, context // 4), answer=min(each.answer, context // 2)) for each in made]
    step, row = costs.seconds(BATCH) or 0.0, (costs.seconds(256) or 0.0) / 256
    work = sum(each.prompt * row + each.answer * step / BATCH for each in cut)
    pace = work / LOAD / made[-1].at
    return [each._replace(at=each.at * pace) for each in cut]


def _live(client: EngineClient, trace: Sequence[TraceRequest]) -> tuple[TraceSummary, list[StepRecord]]:
    words = words_of(client.model, 1)
    arriving = [clients.Arrival(each.at, words.some(each.prompt), greedy(each.answer)) for each in trace]
    answers = client.arriving(arriving, PLAIN)

    def done() -> Iterable[Done]:
        for spec, answer in zip(trace, answers, strict=True):
            times = answer.timings
            worst = max(answer.gaps, default=0.0)
            yield Done(spec, times.ttft_ms / 1e3, times.total_ms / 1e3, worst, times.preemptions)

    return summary(done()), answers[0].steps
