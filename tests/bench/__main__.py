"""`python -m tests.bench COMMAND`: what Kvasir's developers measure. README.md tells of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.base.files import decode_file
from engine.doors.cli.arguments import draft_of, listed, quantise_of, shapes_of
from engine.doors.cli.measure import MOST_FIGURES
from engine.services.experiments.bench import QUESTIONS, BenchOptions, files_folder, loaded, usual_shapes
from engine.services.experiments.measures.speculation import TOKENS
from engine.services.experiments.reports.tables import show_absent
from engine.services.experiments.workloads.shapes import Shape
from engine.services.experiments.workloads.texts import texts
from tests.bench import binaries, formats, gguf_files
from tests.bench.assisted import measure_assisted
from tests.bench.cases import FULL, QUICK, STREAMS
from tests.bench.compare import compare as compare_programs
from tests.bench.compare import named_programs
from tests.bench.null import measure_null
from tests.bench.peers import FORMATS, GPTQ, PEER_SHAPES, measure_peers
from tests.bench.programs import COMPARED
from tests.bench.report import AllFigures
from tests.bench.soak import Soak
from tests.bench.streams import measure_streams

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
Model = Annotated[Path | None, typer.Option(help="A model's folder; the bundled one if left out.")]
Quantise = Annotated[str, typer.Option(help="How that is packed while it is loaded.")]
Draft = Annotated[str | None, typer.Option(help="Its draft model; the bundled one's own if left out, 'none' for none.")]
Rounds = Annotated[int, typer.Option(min=1)]
Threads = Annotated[int, typer.Option(min=0, help="Of every program measured; 0: as many as torch takes.")]
Tokens = Annotated[int | None, typer.Option(min=2, help="Tokens written in each measurement.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")]


@app.command()
def peers(
    folders: Annotated[list[Path], typer.Argument(help="Into which build.sh has built programs.")],
    shapes: Annotated[str, typer.Option(help="1b, 3b or both.")] = "",
    formats: Annotated[
        str, typer.Option(help="Of GGUF files, or gptq-128 next to Q4_0; q4_0 and q4_k_m if left out.")
    ] = "",
    streams: Annotated[str, typer.Option(help="Sequences at once; 1,4,8 if left out, 1,4 with --quick.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Less of the smaller shape.")] = False,
    rounds: Rounds = 3,
    threads: Threads = 0,
    tokens: Tokens = None,
    json_file: Json = None,
) -> None:
    """Kvasir next to built programs of llama.cpp's, steps of the model alone."""
    built, absent = binaries.built_folders(folders)
    show_absent(absent)
    names = listed(shapes, PEER_SHAPES, "--shapes") or list(PEER_SHAPES)[: 1 if quick else None]
    kinds = listed(formats, [kind.lower() for kind in (*gguf_files.TYPES, GPTQ)], "--formats") or FORMATS
    plan = QUICK if quick else FULL
    widths = tuple(int(each) for each in listed(streams, [str(each) for each in STREAMS], "--streams")) or plan.streams
    plan = plan._replace(steps=tokens or plan.steps, streams=widths)
    report = AllFigures.begun(threads)
    asked = [(PEER_SHAPES[name], kind.upper()) for name in names for kind in kinds]
    measured = (
        ("peers", measure_peers(*each, files_folder(), built, plan, rounds=rounds, threads=report.threads))
        for each in asked
    )
    report.fill(measured if built else (), json_file)


@app.command()
def compare(
    shapes: Annotated[str | None, typer.Option(help="1b, 8b or both; 1b on a CPU, both on a GPU if left out.")] = None,
    programs: Annotated[str, typer.Option(help=f"Some of {', '.join(COMPARED)}; all if left out.")] = "",
    formats: Annotated[str, typer.Option(help="Each shape in these: all, or such as gptq,nf4,q4_k,bf16-nf4.")] = "",
    rounds: Rounds = 5,
    threads: Threads = 0,
    tokens: Tokens = None,
    json_file: Json = None,
) -> None:
    """Kvasir next to programs that are installed as packages."""
    report = AllFigures.begun(threads)
    measured = (
        ("comparisons", compare_programs(shape, entrants, rounds=rounds, threads=report.threads, decode_tokens=count))
        for shape in shapes_of(shapes) or usual_shapes()
        for entrants, count in [(entrants_of(programs, formats, shape), tokens or (64 if formats else 128))]
    )
    report.fill(measured, json_file)


def entrants_of(programs: str, names: str, shape: Shape) -> list[formats.Entrant]:
    """The programs on each format of ``names``, or on the files of 4 bits that each reads."""
    if names:
        known = list(formats.FORMATS) if names.strip() == "all" else listed(names, formats.KNOWN, "--formats")
        return formats.programs_on_formats(known, shape, files_folder())
    return named_programs(listed(programs, COMPARED, "--programs") or COMPARED, shape, files_folder())


@app.command()
def streams(
    program: Annotated[Path, typer.Argument(exists=True, help="llama.cpp's llama-server.")],
    model: Annotated[Path, typer.Argument(exists=True, help="A GGUF file.")],
    counts: Annotated[str, typer.Option(help="How many answers at once.")] = "1,4,16,64",
    rounds: Rounds = 5,
    threads: Threads = 0,
    tokens: Tokens = None,
    json_file: Json = None,
) -> None:
    """Answers at once over HTTP, next to llama.cpp's server on the same file."""
    report = AllFigures.begun(threads)
    asked = [int(each) for each in counts.split(",")]
    figures = (measure_streams(program, model, asked, rounds, report.threads, tokens or 64) for _ in range(1))
    report.fill((("streams", each) for each in figures), json_file)


@app.command()
def assisted(
    model: Model = None, draft: Draft = None, rounds: Rounds = 3, threads: Threads = 0, json_file: Json = None
) -> None:
    """The speculation of transformers, next to itself without."""
    load = BenchOptions(model=model).load(draft_of(draft))
    report = AllFigures.begun(threads)
    with loaded(load) as client:
        files, asked = client.model.files, texts(client.model, TOKENS)
    target = None if files is None else files.checkpoint
    report.fill((("assisted", measure_assisted(target, load.draft, asked, rounds)) for _ in range(1)), json_file)


@app.command()
def soak(
    seconds: Annotated[float, typer.Argument(min=1)] = 1800.0,
    model: Model = None,
    quantise: Quantise = "none",
    threads: Threads = 0,
    json_file: Json = None,
) -> None:
    """Random use of the engine: nothing may grow or be lost. The exit status says whether that held."""
    report = AllFigures.begun(threads)
    with Soak() as soaking:
        soaking.load(BenchOptions(model=model, quantise=quantise_of(quantise)).load())
        found = soaking.run(seconds)
    report.fill([("soak", found)], json_file)
    raise typer.Exit(0 if found.passed else 1)


@app.command()
def null(
    tries: Annotated[int, typer.Argument(min=1)] = 40,
    model: Model = None,
    quantise: Quantise = "none",
    threads: Threads = 0,
    json_file: Json = None,
) -> None:
    """Settings compared with themselves: about 4 % at most find a difference."""
    report = AllFigures.begun(threads)
    load = BenchOptions(model=model, quantise=quantise_of(quantise)).load()
    report.fill([("null", measure_null(load, QUESTIONS[0], tries))], json_file)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="What --json of these commands or of `kvasir bench` wrote.")],
) -> None:
    """Show the figures of a file again. Raises UnreadableFileError."""
    report = decode_file(file, AllFigures, MOST_FIGURES)
    if report is None:
        raise typer.BadParameter(f"There is no file {file}.")
    report.show()


if __name__ == "__main__":
    app()
