"""``kvasir bench --scheduling``: the policies on one trace, live and simulated with the costs of the steps it took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.catalogue import records
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.policy import SchedulingTechnique
from engine.decoding.scheduling.scheduler import Limits
from engine.decoding.simulate.figures import TraceSummary, summary
from engine.decoding.simulate.simulator import Done, Simulator
from engine.decoding.simulate.trace import Arrival, TraceSpec, synthetic
from engine.decoding.telemetry.records import StepRecord
from engine.protocol import keys
from engine.services import client as clients
from engine.services.client import EngineClient
from engine.services.experiments.reports.scheduling import PolicyRow, SchedulingFigures
from engine.services.experiments.reports.tables import say
from engine.services.experiments.sides import PLAIN, Switched, greedy
from engine.services.experiments.workloads.traces import words_of

BATCH = 4
"""The batch size, small enough that requests compete for it."""
REQUESTS = 80
LOAD = 0.95
"""Work that arrives, by what steps of whole batches get done."""
CALIBRATION = ((16, 24), (64, 24), (256, 24), (400, 24))
"""Prompts and answers, in tokens, from which the costs of steps are learned."""


def measure_scheduling(client: EngineClient, requests: int = REQUESTS) -> SchedulingFigures:
    """Every policy on the same heavy-tailed trace."""
    state, model = client.state(), client.model
    costs = step_costs(client)
    trace = _trace(costs, requests, model.card.context)
    limits = Limits(int(state[keys.TOKEN_BUDGET].value), max_batch=BATCH)
    rows = []
    for policy in records(SchedulingTechnique):
        say(f"{requests} requests: {policy.choice.title}")
        with Switched(client, {keys.MAX_BATCH: BATCH, keys.ADMISSION: policy.name}):
            live, steps = _live(client, trace)
        simulator = Simulator(policy.policy(), limits, costs, model.pages)
        simulated = summary(simulator.run(trace))
        rows.append(PolicyRow(policy.name, policy.choice.title, live, simulated, len(steps), simulator.steps))
    return SchedulingFigures(model.card.name, requests, BATCH, costs.points, rows)


def step_costs(client: EngineClient) -> StepCosts:
    """What steps cost with the loaded model."""
    words = words_of(client.model, 0)
    costs = StepCosts()
    for prompt, answer in CALIBRATION:
        prompts = [words.some(min(prompt, client.model.card.context // 2)) for _ in range(BATCH)]
        for step in client.together(prompts, greedy(answer), PLAIN)[0].steps:
            costs.learn(_rows(step), step.duration)
    return costs


def _rows(step: StepRecord) -> int:
    return step.decode_rows + step.prefill_rows + step.verify_rows


def _trace(costs: StepCosts, requests: int, context: int) -> list[Arrival]:
    """A trace whose work fills the steps of whole batches."""
    made = list(synthetic(TraceSpec(requests, 1.0, lengths="heavy")))
    cut = [each._replace(prompt=min(each.prompt, context // 4), answer=min(each.answer, context // 2)) for each in made]
    step, row = costs.seconds(BATCH) or 0.0, (costs.seconds(256) or 0.0) / 256
    work = sum(each.prompt * row + each.answer * step / BATCH for each in cut)
    pace = work / LOAD / made[-1].at
    return [each._replace(at=each.at * pace) for each in cut]


def _live(client: EngineClient, trace: Sequence[Arrival]) -> tuple[TraceSummary, list[StepRecord]]:
    words = words_of(client.model, 1)
    arriving = [clients.Arrival(each.at, words.some(each.prompt), greedy(each.answer)) for each in trace]
    answers = client.arriving(arriving, PLAIN)

    def done() -> Iterable[Done]:
        for spec, answer in zip(trace, answers, strict=True):
            times = answer.timings
            worst = max(answer.gaps, default=0.0)
            yield Done(spec, times.ttft_ms / 1e3, times.total_ms / 1e3, worst, times.preemptions)

    return summary(done()), answers[0].steps
