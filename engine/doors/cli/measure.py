"""`kvasir bench`: what it is told on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.doors.cli.arguments import (
    DRAFT_HELP,
    QUANTISE_HELP,
    draft_of,
    formats_of,
    programs_of,
    quantise_of,
    shapes_of,
)
from engine.doors.cli.errors import CommandFailed, report_errors

SOAK_SECONDS = 1800.0
MOST_FIGURES = 64 << 20
"""Bytes of a file of figures."""
ROUNDS_HELP = "Rounds of every measurement: 5 if left out, 2 with --cache, 3 with --speculation or --peers."
PEERS_HELP = (
    "Measure Kvasir and the binaries in this folder, and no more: one that tests/bench_peers/build.sh has built "
    "llama.cpp and ik_llama.cpp into. Can be given several times."
)
CACHE_HELP = "Measure the parts of the cache on chats and prompts that share text, and no more."
SPECULATION_HELP = "Measure only speculation: every draft method, compared with plain decoding."
NULL_HELP = "Compare settings with themselves this many times, and no more: about 4 % at most find a difference."
SOAK_HELP = (
    "Use the engine at random for SECONDS (1800 if left out), and no more: nothing may grow or be lost. "
    "The exit status says whether that held."
)


def bench(
    rounds: Annotated[int | None, typer.Option(min=1, help=ROUNDS_HELP, show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of every program measured.")] = None,
    model: Annotated[Path | None, typer.Option(help="Measure the switches on this model folder instead.")] = None,
    switches: Annotated[bool, typer.Option(help="Measure each switch on and off.")] = True,
    shapes: Annotated[
        str | None,
        typer.Option(
            help="Llama shapes to measure: 1b, 8b, 1b,8b or none. 1b on a CPU, both on a GPU if left out. "
            "With --peers 1b, 3b or 1b,3b, which is both."
        ),
    ] = None,
    programs: Annotated[
        str | None, typer.Option(help="Programs to compare on each shape; all that are installed if left out.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=8, help="Tokens written in each measurement.")] = None,
    formats: Annotated[
        str | None,
        typer.Option(
            help="Measure the shapes in these formats instead: all, or such as gptq,nf4,q4_k,bf16-nf4. "
            "With --peers those of GGUF files; q4_0 and q4_k_m if left out."
        ),
    ] = None,
    quantise: Annotated[str, typer.Option(help=f"For --model. {QUANTISE_HELP}")] = "none",
    cache: Annotated[bool, typer.Option("--cache", help=CACHE_HELP)] = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Measure what approximations of the cache cost in quality, and no more."),
    ] = False,
    speculation: Annotated[bool, typer.Option("--speculation", help=SPECULATION_HELP)] = False,
    draft: Annotated[str | None, typer.Option(help=f"For --speculation. {DRAFT_HELP}", show_default=False)] = None,
    null: Annotated[int, typer.Option(min=0, help=NULL_HELP)] = 0,
    soak: Annotated[bool, typer.Option("--soak", help=SOAK_HELP)] = False,
    seconds: Annotated[float | None, typer.Argument(min=1, help="For --soak.", show_default=False)] = None,
    peers: Annotated[list[Path] | None, typer.Option(metavar="FOLDER", help=PEERS_HELP, show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="For --peers: less of the smaller shape.")] = False,
    load: Annotated[
        Path | None,
        typer.Option(help="Show the figures of a file that --json of this or of compare wrote.", metavar="FILE"),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Measure this machine: the bundled model's switches, and known shapes alone and next to other programs."""
    if seconds is not None and not soak:
        raise typer.BadParameter("Seconds are for --soak alone.")
    if quick and not peers:
        raise typer.BadParameter("--quick is for --peers alone.")
    if load is not None:
        with report_errors():
            _show_again(load)
        return
    with report_errors():
        from engine.services.bench.run import BenchOptions, run

        alone = cache or cost or speculation or null > 0 or soak or bool(peers)
        asked = BenchOptions(
            switches=switches and formats is None and not alone,
            shapes=[] if alone and shapes is None and not peers else shapes_of(shapes, bool(peers)),
            programs=programs_of(programs),
            rounds=rounds or (2 if cache else 3 if speculation or peers else 5),
            threads=threads or 0,
            model=model,
            tokens=tokens,
            formats=formats_of(formats, bool(peers)),
            quantise=quantise_of(quantise),
            cache=cache,
            cost=cost,
            speculation=speculation,
            draft=draft_of(draft),
            null=null,
            soak=(seconds or SOAK_SECONDS) if soak else 0.0,
            peers=tuple(peers or ()),
            quick=quick,
        )
        report = run(asked, json_file)
    if report.soak is not None and not report.soak.passed:
        raise typer.Exit(1)


def _show_again(file: Path) -> None:
    """Print what was measured before. Raises CommandFailed."""
    from engine.base.files import UnreadableFileError, decode_file
    from engine.doors.cli.compare import tell
    from engine.protocol.lab import LabCompared
    from engine.services.bench.run import Report

    try:
        kind = (decode_file(file, dict[str, object], MOST_FIGURES) or {}).get("type")
        compared = decode_file(file, LabCompared, MOST_FIGURES) if kind == LabCompared.__name__ else None
        report = decode_file(file, Report, MOST_FIGURES) if compared is None else None
    except UnreadableFileError as error:
        advice = "Give a file that --json of `kvasir bench` or `kvasir compare` wrote."
        raise CommandFailed(f"{error.reason} {advice}") from None
    if compared is not None:
        tell(compared)
    elif report is not None:
        report.show()
    else:
        raise CommandFailed(f"There is no file {file}.")
