"""`kvasir compare`: the same prompts with any settings, models and quantisations, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.lines import split_lines
from engine.doors.cli.arguments import DeviceOption, device_of
from engine.doors.cli.errors import CommandFailed, importing, report_errors
from engine.doors.cli.library import lines

if TYPE_CHECKING:
    from engine.protocol.lab import LabCompared

COLUMN_HELP = (
    "A column as 'NAME: key=value, key=value'; keys are the switches, model, draft and quantise, or server and model "
    "for another server's. Or as a JSON object, as --json writes columns. Two or more; with one, the first is the "
    "bundled model as it is."
)
PROMPTS_HELP = 'A text, or a .jsonl of {"text": …, "kind": "prose" or "code"}; built-in ones if left out.'
TEXT_HELP = "A text to score every column on: perplexity and KL against the first one."


def compare(
    column: Annotated[list[str] | None, typer.Option(help=COLUMN_HELP, show_default=False)] = None,
    prompts: Annotated[Path | None, typer.Option(help=PROMPTS_HELP, show_default=False)] = None,
    text: Annotated[Path | None, typer.Option(help=TEXT_HELP, show_default=False)] = None,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 64,
    pairs: Annotated[int, typer.Option(min=0, help="Rounds; 0: as many as a verdict takes.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=1, help="After these no further round begins, if eight are there.")
    ] = 60,
    seed: Annotated[int, typer.Option(help="The same seed draws the same.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token.")] = 0.0,
    device: DeviceOption = "auto",
    html: Annotated[Path | None, typer.Option(help="Write a report with pictures.", show_default=False)] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write the figures; kvasir bench --load shows them.", show_default=False),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="One object a line, as the window reads them.")
    ] = False,
) -> None:
    """Compare settings, models and quantisations on the same prompts, in alternating runs."""
    kind = device_of(device)
    with report_errors():
        with importing():
            import msgspec

            from engine.protocol.lab import Column
            from engine.services.experiments.compare.columns import ComparisonRequest, parse_column, prompts_of, text_of
            from engine.services.experiments.compare.comparison import compare
            from engine.services.experiments.experiment import LabError
            from engine.services.experiments.reports import page as report

        try:
            columns = [parse_column(each) for each in column or []]
            columns = columns if len(columns) > 1 else [Column(name="baseline"), *columns]
            request = ComparisonRequest(
                columns,
                prompts_of(prompts) if prompts is not None else (),
                text_of(text) if text is not None else "",
                tokens,
                seed,
                pairs,
                seconds,
                temperature,
                kind,
            )
            found = compare(request, lambda line: lines([line]) if json_lines else None)
        except LabError as error:
            raise CommandFailed(str(error)) from None
        lines([found]) if json_lines else tell(found)
        if json_file is not None:
            json_file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
        if html is not None:
            html.write_text(report.html(found), encoding="utf-8")


def tell(found: LabCompared) -> None:
    """Print a comparison for people."""
    from engine.protocol.compared import cells, quality_lines, text_verdict
    from engine.services.experiments.reports.tables import show_absent, show_line, show_table

    names = [column.name for column in found.columns]
    show_line(f"{found.device}, {found.machine}, {found.date}")
    for kind in found.kinds:
        rows = []
        for figure in kind.figures:
            row = [f"{value}: {said}" if said else value for value, said in cells(figure)]
            rows.append(" | ".join([figure.effects[0].metric.title, *row]))
        show_table(kind.kind, " | ".join(["", *names]), rows)
        for prompt, texts in zip(kind.prompts, kind.texts, strict=True):
            for place, each in enumerate(texts):
                show_line(
                    f"{split_lines(prompt.strip())[0][:60]!r}, {names[place + 1]}: {text_verdict(found, place, each)}"
                )
    for line in (*quality_lines(found), found.taken):
        show_line(line)
    show_absent(found.absent)
