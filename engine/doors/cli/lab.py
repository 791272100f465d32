"""`kvasir lab`: the Lab's experiments without a window."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.terminal import say
from engine.doors.cli.arguments import (
    ContextOption,
    DeviceOption,
    DraftOption,
    DtypeOption,
    MemoryOption,
    QuantiseOption,
    draft_of,
    load_options_of,
    path_or_name_of,
    switches_of,
)
from engine.doors.cli.errors import CommandFailed, importing, report_errors
from engine.doors.cli.library import Json, lines

if TYPE_CHECKING:
    from engine.protocol.lab import LabIndex, LabLine, LabResult, LabRoofline
    from engine.services.experiments.experiment import Lab

EVERY, ROOFLINE = "all", "roofline"


def lab(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Experiments to run, or all; roofline; a list if left out."),
    ] = None,
    model: Annotated[str, typer.Option(help="A model's name or folder; the bundled one if left out.")] = "",
    draft: DraftOption = None,
    device: DeviceOption = "auto",
    quantise: QuantiseOption = "none",
    context: ContextOption = None,
    dtype: DtypeOption = "auto",
    memory: MemoryOption = "",
    seed: Annotated[int, typer.Option(help="The same seed asks the same.")] = 1,
    pairs: Annotated[int, typer.Option(min=0, help="Pairs of runs; 0: as many as a verdict takes.")] = 0,
    seconds: Annotated[
        float,
        typer.Option(
            min=1,
            help="After these no further pair begins, if eight are there and their range says something; after twice "
            "these none, on a busy computer after six times these.",
        ),
    ] = 40.0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=NUMBER of a setting of the one experiment; repeatable.")
    ] = None,
    results: Annotated[
        bool,
        typer.Option(
            "--results", help="Show the results that are kept; with --json the newest of each with its usual settings."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Experiments that show what each technique buys on this machine. Results are kept."""
    options = load_options_of(device, quantise, context, dtype, memory)
    values = switches_of(set_ or [], "users=4")
    named = {*(names or [])}
    if values and (results or len(named) != 1 or named <= {EVERY, ROOFLINE}):
        told = "A setting is of one experiment, as in kvasir lab prefixes --set users=4."
        raise typer.BadParameter(told, param_hint="--set")
    with report_errors():
        if results:
            _show_kept(json)
            return
        with importing():
            from engine.library.paths import ModelNotFound, find_model
            from engine.services.client import EngineClient, EngineError
            from engine.services.experiments import laboratory
            from engine.services.experiments.experiment import Lab, LabError
            from engine.services.experiments.lab import BY_NAME

        every = EVERY in named
        listed = ([*BY_NAME] if name == EVERY else [name] for name in names or [])
        asked = list(dict.fromkeys(name for some in listed for name in some))
        try:
            chosen = {n: laboratory.chosen(laboratory.find(n), values) for n in asked if n != ROOFLINE}
        except LabError as error:
            raise CommandFailed(str(error)) from None
        known = find_model(path_or_name_of(model))
        ran = 0
        with EngineClient() as client:
            client.load(known.path, known.draft if draft is None else draft_of(draft) or "", options)
            if not asked:
                _show_all([laboratory.index(client.model, client.state())], json)
            for name in asked:
                try:
                    _run(name, Lab(client, seed, pairs, seconds, chosen.get(name, {})), every, json)
                    ran += 1
                except (LabError, EngineError, ModelNotFound) as error:
                    say(f"kvasir: {f'{name}: ' * (len(asked) > 1)}{error}", error=True)
        if asked and not ran:
            raise typer.Exit(1)


def _run(name: str, lab: Lab, every: bool, json: bool) -> None:
    """Run it and show what it found; one of ``every`` with the model that Kvasir brings, where it takes that.

    Raises LabError, EngineError, ModelNotFound.
    """
    from engine.services.experiments import laboratory
    from engine.services.experiments.sentences import lowered

    apart = every and name != laboratory.ROOFLINE
    brought = laboratory.brought(laboratory.find(name), lab.client) if apart else None
    with brought or contextlib.nullcontext():
        found = laboratory.measured(name, lab, _show(json))
        _show_all([found], json)
        if warning := laboratory.unkept(found):
            say(f"kvasir: {lowered(warning)}", error=True)


def _show_kept(json: bool) -> None:
    from engine.services.experiments.kept import kept, newest

    _show_all(newest() if json else kept(), json)


def _show(json: bool) -> Callable[[LabLine], object]:
    return lambda line: lines([line]) if json else None


def _show_all(found: Sequence[LabIndex | LabResult | LabRoofline], json: bool) -> None:
    from engine.protocol.lab import LabIndex, LabRoofline

    if json:
        lines(found)
        return
    for each in found:
        if isinstance(each, LabIndex):
            _list(each)
        elif isinstance(each, LabRoofline):
            _tell_roofline(each)
        else:
            _tell(each)


def _list(index: LabIndex) -> None:
    say(f"{index.model} on {index.device}")
    for page in index.pages:
        say(f"{page.number:3} {page.name:12} {page.title}" + (f": {page.refused}" if page.refused else ""))
        for each in page.adjustable:
            say(f"{'':16} --set {each.key}={each.usual}: {each.title}, {each.range}")


def _tell(result: LabResult) -> None:
    from engine.protocol.compared import busy_or_quiet, headline_of

    chosen = ", ".join(f"{key}={value}{result.cut(key)}" for key, value in result.chosen.items())
    say(f"{result.name}{f' with {chosen}' * bool(chosen)}: {headline_of(result)}")
    if result.second:
        say(f"  {result.second}")
    if said := busy_or_quiet(result.others):
        say(f"  {said}")
    say(f"  {result.model} on {result.device}, {result.machine}")
    for figure in result.figures:
        metric = figure.effects[0].metric
        values = figure.medians
        each = ", ".join(f"{side} {value:,.4g}" for side, value in zip(result.sides, values, strict=True))
        say(f"  {metric.title}{f' ({metric.unit})' if metric.unit else ''}: {each}")
    if result.text is not None:
        say(f"  {result.text.sentence}")
    for sentence in (result.lesson, *result.why, result.taken):
        say(f"  {sentence}")


def _tell_roofline(roof: LabRoofline) -> None:
    from engine.base.sizes import figure

    say(f"roofline: {roof.model} on {roof.device}, {roof.machine}")
    for ceiling in roof.ceilings:
        say(f"  {ceiling.name}: {ceiling.value / 1e9:,.1f} billion {ceiling.unit} a second. {ceiling.taken}")
    say(f"  {'':24} {'op/byte':>9} {'Gop/s':>9} {'tokens/s':>10}")
    for point in roof.points:
        figures = f"{point.intensity:9,.1f} {point.operations / 1e9:9,.1f} {figure(point.tokens):>10}"
        say(f"  {point.name:24} {figures}  {point.setting}")
    for sentence in roof.sentences:
        say(f"  {sentence}")
