"""Medusa and EAGLE: heads that draft from the model's own states, beside a draft model and n-grams."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from engine.base.sizes import figure
from engine.loading.model import LoadedModel
from engine.protocol import Effect, OptionSpec, keys
from engine.protocol.lab import Drafts, DraftToken, LabPage, Picture
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.measures.steps import Drafted
from engine.services.experiments.pairs import Pairs
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import lowered, steady, timed
from engine.services.experiments.workloads.drafting import (
    AHEAD,
    NODES,
    PER_STEP,
    SPEEDS,
    TEXTS,
    Writing,
    asked,
    methods,
    refused,
)

HEADS = ("eagle", "medusa", "mtp")
"""What grows on the model itself; one of them must be there."""
TALK = "talk"
"""The headline's text: heads are trained on answers, and their papers measured conversations."""
OUTDONE = (
    "The better the draft, the more tokens a step writes. Here a line of drafts was right at least as often as the "
    "heads' trees."
)
METHODS = {
    "off": "no drafts",
    "ngram": "n-gram",
    "draft": "draft model",
    "medusa": "Medusa",
    "eagle": "EAGLE",
    "mtp": "MTP",
}


class HeadsExperiment:
    """All draft methods that the model has of these, at one length; heads and layers draft trees."""

    page = LabPage(
        name="heads",
        number=13,
        title="Medusa and EAGLE",
        group="Speculation",
        keys=[keys.SPECULATION, keys.TREE_NODES],
        problem="A second model that drafts must be found, loaded and run, and it does not know what the large one is "
        "about to say. Medusa and EAGLE instead draft from the large model's own thoughts, with a few small layers on "
        "top of it, and offer a tree of drafts of which one path may be right.",
        question="How many tokens does the best of these methods write in one step of an answer?",
        choices=["1", "2", "3", "4 or more"],
        bounds=[1.5, 2.5, 3.5],
        lesson="The better the draft, the more tokens a step writes; a tree holds the right one more often than a "
        "line.",
        fails="The heads must be trained for this one model, and every branch of the tree must be checked: where "
        "arithmetic is scarce a wide tree costs more than it finds.",
        sides=list(METHODS.values()),
        seconds=60,
        use={keys.SPECULATION: "auto"},
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return refused(model, state, HEADS)

    def run(self, lab: Lab) -> Run:
        found = methods(lab.client.state(), METHODS)
        kinds = asked(lab, len(found))
        sides = [Writing(lab.client, kinds, each) for each in found]
        order = [list(METHODS).index(each.name) for each in found]
        rest = [each[key] for key in TEXTS if key != TALK for each in (PER_STEP, SPEEDS)]
        pairs = Pairs(lab, self.page.name, (PER_STEP[TALK], SPEEDS[TALK], *rest))
        for line in pairs.run([side.run for side in sides], lambda side: _one_step(sides[side])):
            yield msgspec.structs.replace(line, side=order[line.side] if line.side >= 0 else -1)
        figures = pairs.figures()
        names = [METHODS[each.name] for each in found]
        per_step, speeds = figures[0].effects, figures[1].effects
        best = max(range(len(per_step)), key=lambda place: per_step[place].after)
        answers, writes = [side.all() for side in sides], [side.write for side in sides]
        text = yield from exact_text(self.page.name, lab, writes, answers, sides[0].prompts)
        others = ", ".join(
            f"{name} {effect.after:.2f}"
            for name, effect in zip(names[1:], per_step, strict=True)
            if name != names[1 + best]
        )
        lacking = {name: title for name, title in METHODS.items() if name not in {each.name for each in found}}
        return Found(
            headline=f"{names[1 + best]}: {per_step[best].after:.2f} tokens a step of free talk ({others}).",
            second=f"{names[1 + best]}: "
            f"{lowered(timed(speeds[best], 'as fast as without drafts', 'as slow as without drafts', lab.pairs))}",
            others=pairs.others,
            figures=figures,
            text=text,
            taken=f"The same prompts with each method, one answer at a time, {AHEAD} tokens ahead; Medusa, EAGLE "
            f"and MTP in trees of {NODES}. The engine counts steps and tokens, but for the step that reads the "
            "prompt. Each picture is the step that wrote the same place of the first answer, where the last method "
            "accepted as many draft tokens as in most of its steps.",
            same=[
                "one answer at a time",
                *(["the text stays the same"] if text.same else []),
                "trees of drafts that are checked in one pass",
            ],
            other=[
                f"{lab.model.card.name} on {lab.model.device.type}, and its own heads",
                f"one shape for all: {AHEAD} tokens ahead, {NODES} in a tree",
                *(f"not compared: {title}, which this model does not have" for title in lacking.values()),
            ],
            lesson=_lesson(names[1:], [effect.after for effect in per_step]),
            why=[
                _fastest(names[1:], speeds),
                *(
                    _cost(side, METHODS[side.method.name], sides[0], told=steady(speed, pairs.others))
                    for side, speed in zip(sides[1:], speeds, strict=True)
                ),
            ],
            settings={
                "methods": ", ".join(names),
                "ahead": AHEAD,
                "nodes": NODES,
                "tokens": max(prompt.sampling.max_tokens or 0 for text in kinds for prompt in text.prompts),
            },
            pictures=_same_place(sides),
            sides=names,
            told_of=best,
        )


def _lesson(names: list[str], per_step: list[float]) -> str:
    """Lesson for a run in which a line of drafts was right as often as the trees; else ""."""
    trees = {METHODS[name] for name in HEADS}
    known = list(zip(names, per_step, strict=True))
    line, tree = (max((each for name, each in known if (name in trees) == of), default=0.0) for of in (False, True))
    return OUTDONE if line >= tree else ""


def _fastest(names: list[str], speeds: Sequence[Effect]) -> str:
    """Compare the speeds of free talk, the fastest method first."""
    each = sorted(zip(names, speeds, strict=True), key=lambda one: -one[1].after)
    told = ", ".join(f"{name} {figure(effect.after)}" for name, effect in each)
    return f"Tokens a second of free talk: {told}; without drafts {figure(speeds[0].before)}."


def _cost(side: Writing, name: str, plain: Writing, *, told: bool) -> str:
    """Say how many draft tokens of free talk a method hit and, if ``told``, what its steps took beside plain steps."""
    steps = [step for step in side.steps(TALK, plain) if step.depths]
    if not steps:
        return f"{name}: nothing was drafted in free talk."
    drafted, kept = (
        statistics.mean(each) for each in ([step.rows - 1 for step in steps], [_kept(step) for step in steps])
    )
    cost, making = (
        statistics.median(each) for each in zip(*((step.cost, step.draft_cost) for step in steps), strict=True)
    )
    hit = f"{name}: {drafted:.1f} draft tokens a step of free talk, of which {kept:.1f} were accepted"
    took = f"as long as {cost:.2f} without drafts, {making:.2f} of it for making them"
    return f"{hit}; such a step takes {took}." if told else f"{hit}."


def _kept(step: Drafted) -> int:
    return sum(accepted for _, _, accepted in step.depths)


def _one_step(side: Writing) -> Drafts:
    steps = side.drafts(TALK).steps
    return Drafts(steps=[steps[_usual(steps)]])


def _usual(steps: Sequence[Sequence[DraftToken]]) -> int:
    """The step that accepted as many draft tokens as most did: the median of those that drafted, if any did."""
    drafted = [place for place, step in enumerate(steps) if len(step) > 1] or [*range(len(steps))]
    ranked = sorted(drafted, key=lambda place: sum(token.fate == "accepted" for token in steps[place]))
    return ranked[len(ranked) // 2]


def _same_place(sides: Sequence[Writing]) -> list[Picture]:
    """Picture, for each method, the step that wrote the token of the first answer at which a usual step of the last
    method begins."""
    every = [side.drafts(TALK).steps for side in sides]
    place = sum(map(_written, every[-1][: _usual(every[-1])]))
    found: list[Picture] = []
    for steps in every:
        ends = itertools.accumulate(map(_written, steps))
        found.append(
            Drafts(steps=[next((step for step, end in zip(steps, ends, strict=True) if end > place), steps[-1])])
        )
    return found


def _written(step: Sequence[DraftToken]) -> int:
    return sum(token.fate != "refused" for token in step)
