"""`kvasir bench`: what it is told on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.base.terminal import say
from engine.doors.cli.arguments import (
    DRAFT_HELP,
    QUANTISE_HELP,
    draft_of,
    quantise_of,
    shapes_of,
)
from engine.doors.cli.errors import CommandFailed, report_errors

MOST_FIGURES = 64 << 20
"""Bytes of a file of figures."""
CHECKOUT = "from a checkout of Kvasir: python -m tests.bench --help"
ROUNDS_HELP = "Rounds of every measurement: 5 if left out, 2 with --cache, 3 with --speculation."
CACHE_HELP = "Measure the parts of the cache on chats and prompts that share text, and no more."
SPECULATION_HELP = "Measure only speculation: every draft method, compared with plain decoding."
SCHEDULING_HELP = "Measure only scheduling: every policy on one trace, live and simulated."


def _elsewhere(given: bool) -> None:
    if given:
        raise typer.BadParameter(f"Other programs, formats, soak and null are measured {CHECKOUT}.")


def bench(
    rounds: Annotated[int | None, typer.Option(min=1, help=ROUNDS_HELP, show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of every measurement.")] = None,
    model: Annotated[Path | None, typer.Option(help="Measure the switches on this model folder instead.")] = None,
    switches: Annotated[bool, typer.Option(help="Measure each switch on and off.")] = True,
    shapes: Annotated[
        str | None,
        typer.Option(help="Llama shapes to measure: 1b, 8b, 1b,8b or none. 1b on a CPU, both on a GPU if left out."),
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=8, help="Tokens written in each measurement.")] = None,
    quantise: Annotated[str, typer.Option(help=f"For --model. {QUANTISE_HELP}")] = "none",
    cache: Annotated[bool, typer.Option("--cache", help=CACHE_HELP)] = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Measure what approximations of the cache cost in quality, and no more."),
    ] = False,
    speculation: Annotated[bool, typer.Option("--speculation", help=SPECULATION_HELP)] = False,
    scheduling: Annotated[bool, typer.Option("--scheduling", help=SCHEDULING_HELP)] = False,
    draft: Annotated[str | None, typer.Option(help=f"For --speculation. {DRAFT_HELP}", show_default=False)] = None,
    load: Annotated[
        Path | None,
        typer.Option(help="Show the figures of a file that --json of this or of compare wrote.", metavar="FILE"),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--programs", "--formats", "--peers", "--soak", "--null", hidden=True, is_eager=True, callback=_elsewhere
        ),
    ] = False,
) -> None:
    """Measure this machine: the bundled model's switches, and known shapes."""
    with report_errors():
        if load is not None:
            _show_again(load)
            return
        from engine.services.experiments.bench import BenchOptions, run

        alone = cache or cost or speculation or scheduling
        asked = BenchOptions(
            switches=switches and not alone,
            shapes=[] if alone and shapes is None else shapes_of(shapes),
            rounds=rounds or (2 if cache else 3 if speculation else 5),
            threads=threads or 0,
            model=model,
            tokens=tokens,
            quantise=quantise_of(quantise),
            cache=cache,
            cost=cost,
            speculation=speculation,
            scheduling=scheduling,
            draft=draft_of(draft),
        )
        run(asked, json_file)


def _show_again(file: Path) -> None:
    """Print what was measured before. Raises CommandFailed."""
    from engine.base.files import UnreadableFileError, decode_file
    from engine.doors.cli.compare import tell
    from engine.protocol.lab import LabCompared
    from engine.services.experiments.bench import Report

    try:
        fields = decode_file(file, dict[str, object], MOST_FIGURES) or {}
        compared = decode_file(file, LabCompared, MOST_FIGURES) if fields.get("type") == LabCompared.__name__ else None
        report = decode_file(file, Report, MOST_FIGURES) if compared is None else None
    except UnreadableFileError as error:
        advice = "Give a file that --json of `kvasir bench` or `kvasir compare` wrote."
        raise CommandFailed(f"{error.reason} {advice}") from None
    if compared is not None:
        tell(compared)
    elif report is not None:
        report.show()
        if any(value for name, value in fields.items() if name not in report.__struct_fields__):
            say(f"The other figures of this file are shown {CHECKOUT}.")
    else:
        raise CommandFailed(f"There is no file {file}.")
