"""`kvasir gpu …`: look after GPU packs. With ``--json`` one object of engine/protocol/gpu.py a line, for the window."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.sizes import human
from engine.base.terminal import console, say, send, text_column
from engine.doors.cli.errors import handled, report_errors
from engine.services.failures import sentence_of

if TYPE_CHECKING:
    from engine.protocol.gpu import PackProgress, PackReport, PackStatus

gpu = typer.Typer(help="The GPU pack: what makes Kvasir fast on this machine's GPU, kept apart from the program.")

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, as the window reads them.")]
Kind = Annotated[
    str, typer.Option(help="cuda13, cuda12 or rocm; the one that fits this machine if left out.", show_default=False)
]
Report = Callable[["PackProgress"], None]


@gpu.command()
def status(json: Json = False) -> None:
    """Show which pack fits this machine, and what is installed."""
    with report_errors():
        from engine.services.packs import gpus, standing

        told = standing.status(gpus.probe())
        if json:
            _line(told)
        else:
            _show(told)


@gpu.command()
def install(
    source: Annotated[
        Path | None, typer.Option("--from", help="A file made by `kvasir gpu bundle`; no network is needed then.")
    ] = None,
    kind: Kind = "",
    json: Json = False,
) -> None:
    """Fetch, make and test the pack. Ctrl-C stops; the same command goes on."""
    with _changing(json) as (report, done):
        from engine.services.packs import gpus, manager, standing

        done(manager.install(standing.select(gpus.probe(), kind, source=source), report, source))


@gpu.command()
def repair(kind: Kind = "", json: Json = False) -> None:
    """Look at every file of the pack, download again what is damaged, and test it."""
    with _changing(json) as (report, done):
        from engine.services.packs import gpus, manager, standing

        done(manager.install(standing.select(gpus.probe(), kind), report))


@gpu.command()
def check(kind: Kind = "", json: Json = False) -> None:
    """Look at every file of the pack and test it; from then on it is used if it passes."""
    with _changing(json) as (report, done):
        from engine.services.packs import gpus, manager, standing

        done(manager.check(standing.select(gpus.probe(), kind), report))


@gpu.command()
def remove(
    packs: Annotated[
        list[str] | None, typer.Argument(help="Folders of packs, or their names; all of them if left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Delete packs. The program stays and computes on the processor."""
    with _changing(json) as (_, done):
        from engine.services.packs import manager

        done(manager.remove([Path(pack).name.split(".")[0] for pack in packs or []]))


@gpu.command()
def bundle(out: Annotated[Path, typer.Option(help="The file to write.")], kind: Kind = "", json: Json = False) -> None:
    """Put all that a pack needs into one file, for a machine without a network."""
    with _changing(json) as (report, done):
        from engine.services.packs import gpus, manager, standing

        pack = standing.select([] if kind else gpus.probe(), kind, any_machine=True)
        done(manager.make_bundle(pack, out, report))


@contextlib.contextmanager
def _changing(json: bool) -> Iterator[tuple[Report, Callable[[str], None]]]:
    """Wrap a command that changes something: yield its progress report and its final message; report failure or a stop.

    SIGTERM, which the window sends, stops as Ctrl-C does.
    """
    from engine.protocol.gpu import PackResult

    def stop(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    def tell(ok: bool, sentence: str) -> None:
        if json:
            _line(PackResult(ok, sentence))
        else:
            say(sentence if ok else f"kvasir: {sentence}", error=not ok)

    with handled(signal.SIGTERM, stop), report_errors(), _reporting(json) as report:
        try:
            yield report, functools.partial(tell, True)
        except KeyboardInterrupt:
            tell(False, "Stopped. What was downloaded is kept: the same command continues from there.")
            raise typer.Exit(130) from None
        except Exception as error:
            if not json or isinstance(error, (typer.Exit, BrokenPipeError)):
                raise
            tell(False, sentence_of(error))
            if os.environ.get("KVASIR_DEBUG"):
                raise
            raise typer.Exit(1) from None


@contextlib.contextmanager
def _reporting(json: bool) -> Iterator[Report]:
    if json:
        yield _line
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (text_column("{task.description}"), BarColumn(), text_column("{task.fields[steps]}"))
    transfer = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    errors = console(stderr=True)
    stage = ""
    with contextlib.ExitStack() as stack:
        bar: Progress | None = None

        def report(progress: PackProgress) -> None:
            nonlocal bar, stage
            bytes_ = progress.stage == "downloading"
            if bar is None or stage != progress.stage:
                stack.close()
                stage = progress.stage
                bar = stack.enter_context(Progress(*columns, *(transfer if bytes_ else ()), console=errors))
                bar.add_task(progress.sentence, total=None, steps="")
            steps = f"{progress.done} of {progress.total}" if progress.total and progress.stage == "checking" else ""
            bar.update(
                bar.task_ids[0],
                description=progress.sentence,
                completed=progress.done,
                total=progress.total or None,
                steps=steps,
            )

        yield report


def _show(told: PackStatus) -> None:
    from rich.table import Table

    states = {
        "none": "not installed: `kvasir gpu install`",
        "partial": "begun: `kvasir gpu install` goes on",
        "installed": "installed",
        "broken": "installed, and not usable as it is",
    }
    facts = [("GPU", told.gpu + (f", driver {told.driver}" if told.driver else "") or "none that a pack is made for")]
    facts.append(("pack", told.kind or "none"))
    if told.refused:
        facts.append(("", told.refused))
    if told.kind:
        facts.append(("state", states[told.state] + (", in use from the next start on" if told.active else "")))
        facts.append(("to download", human(told.download_bytes)))
        facts.append(("on the disk", f"{human(told.disk_bytes)}; {human(told.free_bytes)} are free"))
        facts.append(("folder", told.folder))
    if told.reason:
        facts.append(("not used", told.reason))
    if told.former:
        facts.append(("in use", f"{told.former}, a pack of another version, until this one is installed"))
    facts += [("not needed any more", f"{path}: `kvasir gpu remove {Path(path).name}`") for path in told.others]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    console().print(table)


def _line(told: PackReport) -> None:
    import msgspec

    send(msgspec.json.encode(told))
