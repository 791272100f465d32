"""The Lab without a window: what a model can show, and one experiment run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from engine.library.paths import find_model
from engine.loading.model import LoadedModel
from engine.protocol import OptionSpec
from engine.protocol.lab import Axis, LabFigure, LabIndex, LabPage, LabResult, LabRoofline, Plot, Series
from engine.services.client import EngineClient, EngineError
from engine.services.experiments import papers
from engine.services.experiments.experiment import Experiment, Found, Lab, LabError, RunEvent
from engine.services.experiments.kept import keep
from engine.services.experiments.lab import ALL, BY_NAME
from engine.services.experiments.machine import device_of, taken_on
from engine.services.experiments.roofline.report import roofline
from engine.services.experiments.sides import Reloaded

ROOFLINE = "roofline"
"""Asked for like an experiment, and none."""
DIGITS = 20
"""More are no number of an experiment."""


def find(name: str) -> Experiment:
    """The experiment of that name. Raises :class:`LabError` naming all."""
    if name not in BY_NAME:
        raise LabError(f"There is no experiment called {name!r}: there are {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def index(model: LoadedModel, state: Mapping[str, OptionSpec]) -> LabIndex:
    """All pages, each with why the loaded model cannot show it while the switches are in this state."""
    return LabIndex(
        model=model.card.name,
        device=device_of(model),
        pages=[_page(each, model, state) for each in sorted(ALL, key=lambda each: each.page.number)],
    )


def _page(experiment: Experiment, model: LoadedModel, state: Mapping[str, OptionSpec]) -> LabPage:
    refusal = experiment.refuses(model, state)
    why, instead = refusal if refusal is not None else ("", "")
    page = experiment.page
    return msgspec.structs.replace(page, papers=papers.figures(page.name), refused=why, instead=instead)


def brought(experiment: Experiment, client: EngineClient) -> Reloaded | None:
    """The model that Kvasir brings for an experiment, as a context, where the loaded one cannot show it; else None.

    Raises ModelNotFound.
    """
    if not experiment.page.brings or experiment.refuses(client.model, client.state()) is None:
        return None
    as_it_comes = msgspec.structs.replace(client.model.command.options, context=None, quantise="none")
    return Reloaded(client, as_it_comes, find_model(experiment.page.brings))


def run(lab: Lab, experiment: Experiment, show: Callable[[RunEvent], object]) -> LabResult:
    """Run it, telling its progress and pictures. Raises :class:`LabError` where the model cannot show it."""
    refusal = experiment.refuses(lab.model, lab.client.state())
    if refusal is not None:
        raise LabError(f"{refusal.why} {refusal.instead}")
    running = experiment.run(lab)
    with contextlib.closing(running):
        try:
            while True:
                show(next(running))
        except StopIteration as end:
            found: Found = end.value
        except EngineError as error:
            raise LabError(f"The experiment ended: {error}") from error
    return _result(lab, experiment.page, found)


def measured(name: str, lab: Lab, show: Callable[[RunEvent], object]) -> LabResult | LabRoofline:
    """The result of the experiment of that name, or the roofline. Raises LabError, EngineError."""
    return roofline(lab.client) if name == ROOFLINE else run(lab, find(name), show)


def unkept(result: LabResult | LabRoofline) -> str:
    """Keep a result, but no roofline; why it could not be kept, "" if it was."""
    try:
        if isinstance(result, LabResult):
            keep(result)
    except OSError as error:
        return f"The result could not be kept: {error.strerror or error}."
    return ""


def chosen(experiment: Experiment, values: Mapping[str, str]) -> dict[str, int]:
    """The settings among these that are other than usual. Raises :class:`LabError` for what cannot be set so."""
    known = {each.key: each for each in experiment.page.adjustable}
    found = {}
    for key, text in values.items():
        if (setting := known.get(key)) is None:
            there_are = f"it has {', '.join(known)}" if known else "it has none"
            raise LabError(f"{experiment.page.name} has no setting called {key!r}: {there_are}.")
        number = int(text) if text.isdecimal() and len(text) <= DIGITS else -1
        if not setting.least <= number <= setting.most or (number - setting.least) % setting.step:
            told = text if len(text) <= DIGITS else f"{text[:DIGITS]}…"
            raise LabError(f"{key} is a number {setting.range}, not {told!r}.")
        if number != setting.usual:
            found[key] = number
    return found


def _result(lab: Lab, page: LabPage, found: Found) -> LabResult:
    sides = found.sides or page.sides
    if not found.plots:
        shown = dict.fromkeys((0, found.asked))  # what was counted, and what the question is about
        drawn = [found.figures[place] for place in shown if place < len(found.figures)]
        found = found._replace(plots=[_bars(figure, sides) for figure in drawn if figure.effects])
    return LabResult(
        name=page.name,
        model=lab.model.card.name,
        seed=lab.seed,
        chosen=dict(lab.chosen),
        **taken_on(lab.client),
        **found._replace(sides=sides, lesson=found.lesson or page.lesson)._asdict(),
    )


def _bars(figure: LabFigure, sides: Sequence[str]) -> Plot:
    """The medians of a figure's sides, with their lowest and highest runs."""
    metric = figure.effects[0].metric
    series = Series(
        name="",
        points=[(float(place), value) for place, value in enumerate(figure.medians)],
        low=[min(runs) for runs in figure.runs],
        high=[max(runs) for runs in figure.runs],
    )
    return Plot(
        title="Counted" if metric.counted else "Medians of all runs",
        x=Axis(title=""),
        y=Axis(title=metric.title, unit=metric.unit),
        series=[series],
        bars=True,
        categories=list(sides),
        note="between the lowest and the highest run" if len(figure.runs[0]) > 1 else "",
    )
