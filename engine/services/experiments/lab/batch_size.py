"""Batch size: tokens a second of all answers together against the time between the tokens of each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate

from engine.base.sizes import figure
from engine.cache.pool import pages_for
from engine.decoding.scheduling.plan import MAX_RUNNING
from engine.decoding.scheduling.service import classes_of
from engine.decoding.telemetry.pairs import LEAST
from engine.loading.model import LoadedModel
from engine.protocol import Metric, OptionSpec, keys
from engine.protocol.lab import Axis, LabPage, LabProgress, Plot, Series
from engine.services.client import EngineClient, whole_steps
from engine.services.experiments.experiment import Found, Lab, LabError, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs, Side
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import too_short, wordless
from engine.services.experiments.workloads.traces import words_of

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ASKED = 8
"""The batch that the question is about."""
PROMPT, ANSWER = 8, 24
"""Tokens; the shortest prompts, so that answers soon are written together."""
EXTRA = 2
"""Chats that ask beyond the most that should find room."""
READ = Measured("read", Metric(title="read per token", unit="bytes", lower_is_better=True, counted=True))
FOUND_BY = ["computed", "measured"]
"""How the largest batch was found."""
RATE = Measured("rate", Metric(title="tokens a second, all together"))
STEP = Measured("step", Metric(title="between two tokens of an answer", unit="ms", lower_is_better=True))


class BatchSize:
    """Batches of every size are written side by side; then as many whole contexts as find room."""

    page = LabPage(
        name="batch_size",
        number=9,
        title="Batch size",
        group="Sharing",
        keys=[keys.MAX_BATCH],
        problem="A pass through the model reads all weights, for one answer as for many. More answers at once share "
        "that, so that all together get more tokens a second, while each pass takes longer and every reader waits "
        "longer for the next word.",
        question=f"How many times the tokens a second of one answer do {ASKED} at once give?",
        choices=["no more", "2 times", "4 times", f"{ASKED} times"],
        bounds=[1.4, 2.8, 5.7],
        lesson="A larger batch gives more tokens a second in all, and each answer fewer: the best size is the largest "
        "one whose readers do not mind.",
        fails="Where arithmetic is the limit, as with many answers on a processor, a larger batch only makes each "
        "slower. Long texts have keys and values of their own to read, which nobody shares.",
        sides=["one answer", *(f"{size} answers" for size in SIZES[1:])],
        seconds=60,
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return too_short(model, 2 * (PROMPT + ANSWER), "these answers need") or wordless(model)

    def run(self, lab: Lab) -> Run:
        client, state = lab.client, lab.client.state()
        switched = {keys.MAX_BATCH: MAX_RUNNING, keys.STEP_TARGETS: False}
        with lab.switched({**switched, keys.PAGE_RESERVATION: "whole_context"}):
            yield LabProgress(name=self.page.name, done=0, total=0, sentence="filling the cache with whole contexts")
            context = lab.model.card.context
            computed = _most(lab.model.pages - 1, context)
            measured = _crowd(lab, computed)
        with lab.switched(switched):
            sizes = _affordable(lab)
            names = self.page.sides[: len(sizes)]
            yield LabProgress(name=self.page.name, done=0, total=0, sides=names)
            pairs = Pairs(lab, self.page.name, (READ, RATE, STEP), RATE)
            yield from pairs.run([partial(_together, client, size) for size in sizes])
        figures = pairs.figures()
        told = sizes.index(ASKED) - 1 if ASKED in sizes else len(sizes) - 2
        rates, steps = figures[1].medians, figures[2].medians
        target = 1e3 * classes_of({key: spec.value for key, spec in state.items()})["interactive"].between_tokens
        kept = [size for size, step in zip(sizes, steps, strict=True) if step <= target]
        at_once = f"with {sizes[told + 1]} answers at once"
        return Found(
            headline=headline(
                figures[0].effects[told],
                f"fewer bytes read per token {at_once}",
                f"more bytes read per token {at_once}",
            ),
            second=timed(
                figures[1].effects[told],
                f"the tokens a second {at_once}",
                f"fewer tokens a second {at_once}",
                lab.pairs,
            ),
            asked=1,
            told_of=told,
            others=pairs.others,
            figures=figures,
            text=None,
            taken=f"Prompts of {PROMPT} random tokens with answers of {ANSWER}, all begun at once; median of the "
            "passes in which all of a batch wrote a token. For the largest batch, chats that reserve pages for their "
            f"whole context, {context:,} tokens, came until no more found room.",
            same=[],
            other=[],
            why=[
                _limit(sizes, rates, steps),
                f"{f'Up to {kept[-1]} at once keep' if kept else 'Not even one answer keeps'} to the {target:,.0f} ms "
                "between two tokens that interactive answers are promised.",
                _room(computed, measured, context),
            ],
            settings={"prompt": PROMPT, "answer": ANSWER, "computed": computed, "largest": measured},
            plots=[_curve(sizes, rates, steps, target), _largest(computed, measured, context)],
            sides=names,
        )


def _together(client: EngineClient, size: int) -> Side:
    words = words_of(client.model, size)
    answers = client.together([words.some(PROMPT) for _ in range(size)], greedy(ANSWER), PLAIN)
    steps = whole_steps(answers[0].steps, size)
    if not steps:
        raise LabError(f"{size} answers were never written together. Wait until nothing else is answered.")
    seconds = statistics.median(step.duration for step in steps)
    read = statistics.median(step.bytes_read for step in steps) / size
    return {READ.key: read, RATE.key: size / seconds, STEP.key: 1e3 * seconds}


def _affordable(lab: Lab) -> list[int]:
    """The sizes that find room, and that can be measured often enough within the budget."""
    room = [size for size in SIZES if size <= _most(lab.model.pages - 1, PROMPT + ANSWER)]
    one, few = (_together(lab.client, size)[STEP.key] / 1e3 for size in (1, min(4, room[-1])))
    each = max(0.0, few - one) / 3  # what a further row takes, at the most: larger batches share more
    costs = accumulate(ANSWER * one + (PROMPT + ANSWER) * size * each for size in room)
    found = [size for size, cost in zip(room, costs, strict=True) if (LEAST + 1) * cost <= lab.budget]
    return max(found, room[: SIZES.index(ASKED) + 1], key=len)


def _most(pages: int, tokens: int) -> int:
    """How many texts of so many tokens find room in these pages, with the page that admission keeps for each."""
    return min(MAX_RUNNING, (pages + 1) // (pages_for(tokens) + 1))


def _crowd(lab: Lab, computed: int) -> int:
    """How many chats ran together that reserve their whole context, of a few more than should find room."""
    words = words_of(lab.model, 0)
    prompts = [words.some(PROMPT) for _ in range(min(MAX_RUNNING, computed + EXTRA))]
    return lab.client.crowd(prompts, greedy(lab.model.card.context - PROMPT), PLAIN)


def _limit(sizes: Sequence[int], rates: Sequence[float], steps: Sequence[float]) -> str:
    best = max(range(len(sizes)), key=rates.__getitem__)
    return (
        f"From one answer to {sizes[best]}, tokens a second went from {figure(rates[0])} to {figure(rates[best])}, and "
        f"the time between two tokens from {figure(steps[0])} to {figure(steps[best])} ms."
    )


def _room(computed: int, measured: int, context: int) -> str:
    full = f"chats of {context:,} tokens"
    if measured == MAX_RUNNING:
        return f"{measured} {full} run at once, as many as the engine takes."
    same = "as computed from the pages" if computed == measured else f"where the pages should do for {computed}"
    return f"{measured} {full} find room at once, {same}."


def _curve(sizes: Sequence[int], rates: Sequence[float], steps: Sequence[float], target: float) -> Plot:
    points = list(zip(rates, steps, strict=True))
    return Plot(
        title="Throughput against latency",
        x=Axis(title="tokens a second, all together"),
        y=Axis(title="between two tokens", unit="ms"),
        series=[
            Series(name=f"batches of 1 to {sizes[-1]}", points=points),
            Series(name="target of interactive answers", points=[(0.0, target), (max(rates), target)]),
        ],
        note="Each point is a batch size, from left: " + ", ".join(map(str, sizes)) + ".",
    )


def _largest(computed: int, measured: int, context: int) -> Plot:
    return Plot(
        title="Largest batch",
        x=Axis(title=""),
        y=Axis(title=f"chats of {context:,} tokens at once"),
        series=[Series(name="chats", points=[(0.0, float(computed)), (1.0, float(measured))])],
        bars=True,
        categories=FOUND_BY,
    )
