"""The roofline of the loaded model on this machine (Williams et al. 2009): its limits, and how far it is from them.

A forward reads bytes and multiplies numbers. How many operations it does for each byte, its intensity, decides which of
the two ceilings holds it: below their ridge memory, above it arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.base.sizes import figure, human
from engine.decoding.telemetry.processor import OtherPrograms
from engine.protocol.compared import busy, is_busy
from engine.protocol.lab import Ceiling, LabRoofline
from engine.services.client import EngineClient
from engine.services.experiments.machine import taken_on
from engine.services.experiments.roofline.ceilings import Rates, Roof, measure_rates, percent
from engine.services.experiments.roofline.points import (
    MANY,
    MeasuredPasses,
    MeasuredPoint,
    compute,
    context_of,
    length_of,
    measure,
)
from engine.services.experiments.roofline.work import settings_of


def roofline(client: EngineClient, rates: Rates | None = None) -> LabRoofline:
    """Measure and compute it, in some seconds with the bundled model; ``rates`` None: they are measured.

    Raises :class:`LabError`, EngineError.
    """
    switches, context = client.state(), context_of(length_of(client.model))
    settings = settings_of(client.model, switches)
    one = settings.decode(context)
    programs = OtherPrograms()
    before = rates or measure_rates(settings, one.bytes)
    passes = measure(client, settings)
    after = rates or measure_rates(settings, one.bytes)
    roof = Roof(Rates(*map(max, before, after)), settings, one.bytes)
    roof.raise_to((each.what, each.work, min(each.passes)) for each in passes.all)
    points = [
        *(each.point(roof) for each in passes.all),
        *(each.point(roof) for each in compute(settings, context, switches)),
    ]
    made = LabRoofline(
        model=client.model.card.name,
        **taken_on(client),
        context=context,
        weights=one.weights,
        kept=one.kept,
        operations=one.operations,
        limit=roof.over(one) / one.operations,
        memory=roof.reads(one),
        arithmetic=roof.products(one),
        ceilings=roof.ceilings,
        points=points,
        sentences=[],
    )
    others = programs.share()
    told = [*_doubts(roof.ceilings, others), *_sentences(made, passes, roof, others)]
    return msgspec.structs.replace(made, sentences=told)


def _sentences(made: LabRoofline, passes: MeasuredPasses, roof: Roof, others: float) -> list[str]:
    """``others``: the share of the processor that other programs took; where that was much, speeds that were measured
    one after the other are not compared."""
    measured = {each.name: each for each in made.points if each.group == "measured"}
    one, prompt = measured[passes.one.name], measured[passes.prompt.name]
    of_one, of_prompt = (_roof(roof, each) for each in (passes.one, passes.prompt))
    said = [
        f"One answer stands at {percent(one.operations, one.roof)} of its roof ({of_one}), "
        f"its fastest pass at {percent(one.high, one.roof)}: {figure(one.tokens)} tokens a second of at most "
        f"{figure(made.limit)}.",
        f"Each of its tokens reads {human(int(made.weights + made.kept))}: {human(int(made.weights))} of weights and "
        f"{human(int(made.kept))} of keys and values. Nobody can pass {figure(made.limit)} tokens a second with these "
        "settings and one token a pass.",
    ]
    if passes.together is not None:
        many = measured[passes.together.name]
        alike = passes.together.context == passes.one.context
        times = f", {many.tokens / one.tokens:.1f} times one" if alike and not is_busy(others) else ""
        instead = f" instead of {one.intensity:.1f}" if alike else ""
        said.append(
            f"{MANY} answers, {passes.together.context} each, reach {figure(many.tokens)} tokens a second together"
            f"{times}. Weights are read once for all of them, so that a byte serves {many.intensity:.1f} operations"
            f"{instead}."
        )
    said.append(
        f"A prompt is read at {figure(prompt.tokens)} tokens a second, {percent(prompt.operations, prompt.roof)} of "
        f"its roof ({of_prompt}): a byte serves {prompt.intensity:,.0f} operations there."
    )
    return [*said, *_of_switches(made)]


def _roof(roof: Roof, passed: MeasuredPoint) -> str:
    """Describe the roof of a pass: the ceiling that makes it, and how high it is."""
    return f"{roof.binds(passed.work)}: {figure(roof.over(passed.work) / 1e9)} billion operations a second"


def _of_switches(made: LabRoofline) -> list[str]:
    """Say which switch would move the limit of one answer."""
    best = max((each for each in made.points if each.group == "switch"), key=lambda each: each.tokens, default=None)
    if best is None:
        return []
    if best.tokens > 1.05 * made.limit:
        moved = f"{best.name} would move that limit most: to {figure(best.tokens)} tokens a second (computed)."
        return [f"Of the switches of weights and cache, {moved}"]
    drafts = max((each.tokens for each in made.points if each.group == "drafts"), default=0.0)
    can = "; drafts can" if drafts > 1.05 * made.limit else ""
    return [f"No switch of weights or cache would move that limit by more than 5 % (computed){can}."]


def _doubts(ceilings: Sequence[Ceiling], others: float) -> list[str]:
    """List the doubts about the figures; ``others``: the share of the processor that other programs took."""
    said = [f"The ceiling of {each.name} was measured too low: {each.raised}" for each in ceilings if each.raised]
    return [*said, *filter(None, [busy(others, "meanwhile")])]
