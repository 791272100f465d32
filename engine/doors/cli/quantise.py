"""`kvasir quantise`: a smaller model of one's own, with a progress line and a report of what it lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.sizes import human
from engine.base.terminal import console, say, text_column
from engine.doors.cli.arguments import DeviceOption, absolute, device_of, path_or_name_of
from engine.doors.cli.errors import CommandFailed, handled, importing, report_errors
from engine.doors.cli.operations import lines
from engine.protocol.operations import LIST_UNFINISHED, ListUnfinished

if TYPE_CHECKING:
    from engine.protocol.making import MakeProgress, MakeReport

STOPPED = 130
_LINE_SECONDS = 10.0
"""Seconds between lines where no terminal shows a bar."""
TO_HELP = "gptq or awq (with a text), nf4, int8, gguf-q4_0, gguf-q4_1, gguf-q5_0, gguf-q5_1 or gguf-q8_0."
TEXT_HELP = "A file (.txt, .md, .jsonl) or folder to calibrate with; repeatable. The manual if left out."


def quantise(
    model: Annotated[str, typer.Argument(help="A 16- or 32-bit model's name or the path of its folder.")] = "",
    to: Annotated[str, typer.Option(help=TO_HELP, show_default=False)] = "",
    bits: Annotated[int, typer.Option(help="Bits of a weight: 4, or 8 with gptq.")] = 4,
    group_size: Annotated[
        int | None, typer.Option(help="Weights to a scale: 128, 64, 32, or -1 for a row.", show_default=False)
    ] = None,
    act_order: Annotated[
        bool, typer.Option("--act-order/--no-act-order", help="GPTQ: columns of large inputs first.")
    ] = True,
    static_groups: Annotated[
        bool, typer.Option("--static-groups/--no-static-groups", help="GPTQ: groups are neighbours in spite of that.")
    ] = True,
    symmetric: Annotated[bool, typer.Option("--symmetric/--asymmetric", help="GPTQ: without zero-points.")] = True,
    rotate: Annotated[bool, typer.Option("--rotate", help="Spread outliers over all channels first.")] = False,
    text: Annotated[list[Path] | None, typer.Option(help=TEXT_HELP, show_default=False)] = None,
    samples: Annotated[int, typer.Option(min=1, help="Pieces of text to calibrate with, at most.")] = 128,
    length: Annotated[int, typer.Option(min=32, help="Tokens of a piece, at most.")] = 512,
    out: Annotated[
        Path | None, typer.Option(help="Write here instead of into Kvasir's models.", show_default=False)
    ] = None,
    memory: Annotated[
        float | None, typer.Option(min=0.1, help="GB that it may take; what is free if left out.", show_default=False)
    ] = None,
    device: DeviceOption = "auto",
    unfinished: Annotated[bool, typer.Option("--unfinished", help="List what was begun and is not done.")] = False,
    discard: Annotated[
        str, typer.Option(help="Delete what was begun, by its ID.", metavar="ID", show_default=False)
    ] = "",
    report: Annotated[bool, typer.Option("--report", help="Show what a model lost that was made here.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, as the window reads them.")] = False,
) -> None:
    """Make a smaller model, layer by layer. Ctrl-C stops; the same command goes on where it ended."""
    if unfinished or discard:
        with report_errors():
            _look_after(discard, json)
        return
    if not model:
        raise typer.BadParameter("Name the model.", param_hint="MODEL")
    if not to and not report:
        raise typer.BadParameter(f"Say what it is to become: {TO_HELP}", param_hint="--to")
    kind = device_of(device)
    with report_errors():
        with importing():
            from engine.library.local import report_of
            from engine.library.paths import find_model
            from engine.services.quantise.make import make
            from engine.services.quantise.plan import MakePlan
            from engine.services.training.errors import RecipeStopped

        path = Path(find_model(path_or_name_of(model)).path)
        if not report:
            texts = tuple(map(absolute, text or ()))
            plan = MakePlan(
                path, to, bits, group_size, act_order, static_groups, symmetric, texts, samples, length,
                out and absolute(out), None if memory is None else round(memory * 1e9), kind, rotate,
            )  # fmt: skip
            try:
                with _stopping() as stopped, _shown(json) as show:
                    path = make(plan, show, stopped)
            except RecipeStopped as stop:
                if not json:
                    say(stop)
                raise typer.Exit(STOPPED) from None
        found = report_of(path)
        if found is None:
            raise CommandFailed(f"{path} has no report: it was not made by `kvasir quantise`.")
        if json:
            lines([found])
        else:
            _tell(found)


def _look_after(discard: str, json: bool) -> None:
    from engine.services.operations import perform

    found = perform(LIST_UNFINISHED, ListUnfinished(discard=discard))
    if discard:
        return
    if json:
        lines(found)
    for each in () if json else found:
        say(f"{each.id}  {each.to}  {each.done} of {each.total} layers  {each.model}")


@contextlib.contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once Ctrl-C or SIGTERM came; a second signal interrupts at once."""
    stop = threading.Event()

    def interrupted(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with handled(signal.SIGINT, interrupted), handled(signal.SIGTERM, interrupted):
        yield stop.is_set


@contextlib.contextmanager
def _shown(json: bool) -> Iterator[Callable[[MakeProgress], None]]:
    """A bar on a terminal, a line now and then elsewhere."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn

    out = console(soft_wrap=True)
    columns = (
        text_column("{task.description}"), BarColumn(), TaskProgressColumn(), text_column("{task.fields[facts]}")
    )  # fmt: skip
    bar = Progress(*columns, console=out, transient=True, disable=json or not out.is_terminal)
    with bar as progress:
        task, last = progress.add_task("", total=1.0, facts=""), -_LINE_SECONDS

        def show(report: MakeProgress) -> None:
            nonlocal last
            if json:
                lines([report])
            elif out.is_terminal:
                share = report.done / report.total if report.total else 0.0
                progress.update(task, description=report.state, completed=share, facts=_facts(report))
            elif (now := progress.get_time()) - last >= _LINE_SECONDS:
                last = now
                out.print(f"{report.state} {report.done} of {report.total} {_facts(report)}".rstrip())

        yield show


def _facts(report: MakeProgress) -> str:
    minutes, seconds = divmod(round(report.left_s), 60)
    return ", ".join(filter(None, (report.sentence, f"{minutes}:{seconds:02} left" if report.left_s else "")))


def _tell(found: MakeReport) -> None:
    from rich.table import Table

    out = console(soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("", found.source, found.name):
        table.add_column(name, justify="right" if name else "left")
    both = (found.before, found.after)
    table.add_row("size", *(human(each.bytes) for each in both))
    made = f"Made in {found.seconds:.0f} s."
    if found.tokens:
        table.add_row("perplexity", *(f"{each.perplexity:.3f}" for each in both))
        table.add_row("tokens per second", *(f"{each.tokens_per_second:.1f}" for each in both))
        made = (
            f"KL divergence {found.kl:.4f} nats; the same likeliest token at {found.same_top:.1%} of "
            f"{found.tokens:,} positions. {made}"
        )
    out.print(table)
    out.print(made)
    if found.unmeasured:
        out.print(f"What it lost was not measured. {found.unmeasured}")
    if found.worst:
        out.print("Layers with the largest error (share of their outputs' energy), and of plain rounding:")
        worst = Table(box=None, pad_edge=False)
        for name in ("layer", "error", "plain rounding"):
            worst.add_column(name, justify="left" if name == "layer" else "right")
        for each in found.worst:
            worst.add_row(each.name, f"{each.error:.2%}", f"{each.rounded:.2%}")
        out.print(worst)
    out.print(f"It lies in {found.path}")
