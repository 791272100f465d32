"""`kvasir models import`, `folders`, `disk`, `details` and `tokens`: models of this machine, where and what they are.

Added to `kvasir models` by engine/doors/cli/main.py.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.sizes import human
from engine.base.terminal import console, say, table, text_column
from engine.doors.cli.arguments import path_or_name_of
from engine.doors.cli.errors import handled, importing, report_errors
from engine.doors.cli.library import Json, lines

if TYPE_CHECKING:
    from engine.protocol.library import Leftover, StoredModel

_REPORTS = 0.25
"""Seconds between two lines of one copy."""
Model = Annotated[str, typer.Argument(help="A model's name, or the path of its folder or GGUF file.")]


def import_(
    path: Annotated[Path, typer.Argument(help="A model's folder, or a GGUF file (any of its parts).")],
    copy: Annotated[bool, typer.Option("--copy", help="Copy it into Kvasir's models.")] = False,
    move: Annotated[bool, typer.Option("--move", help="Move it there; on one disk nothing is written again.")] = False,
    name: Annotated[str, typer.Option(help="What to call it; a copy as ORGANISATION/NAME.", show_default=False)] = "",
    json: Json = False,
) -> None:
    """Take a model that lies elsewhere into the library: it is used where it is, unless it is copied or moved."""
    if copy and move:
        raise typer.BadParameter("Choose one of --copy and --move.", param_hint="--move")
    with report_errors():
        with importing():
            from engine.library import paths
            from engine.library.importing import import_model
            from engine.library.local import stored_models

        bundled = paths.bundled_folder()
        taken = [(each.name, each.path) for each in stored_models(paths.known_models(), bundled)]
        how = "copy" if copy else "move" if move else "reference"
        with _interrupted_by_sigterm(), _copying(json) as progress:
            name, found = import_model(path, how, name, taken, progress)  # type: ignore[arg-type]
        if json:
            lines([each for each in stored_models(paths.known_models(), bundled) if each.path == str(found)])
        else:
            where = "it stays where it is" if how == "reference" else f"it is in {found}"
            say(f"{name} is among the models; {where}.\nUse it: kvasir chat {name}")


def folders(
    add: Annotated[Path | None, typer.Option(help="Look for models in this folder and below it.")] = None,
    remove: Annotated[Path | None, typer.Option(help="Look there no more. Nothing is deleted.")] = None,
    downloads: Annotated[Path | None, typer.Option(help="Download models to this folder from now on.")] = None,
    move_to: Annotated[
        Path | None, typer.Option(help="Move all that Kvasir downloaded or copied to this folder.")
    ] = None,
    json: Json = False,
) -> None:
    """The folders in which models are looked for, and the one that they are downloaded to."""
    with report_errors():
        from engine.library import local, moving, paths, roots

        if add is not None:
            moving.add_root(add)
        if remove is not None:
            moving.remove_root(remove)
        if downloads is not None:
            moving.fetch_to(downloads)
        if move_to is not None:
            with _interrupted_by_sigterm(), _copying(json, move_to) as progress:
                freed = moving.move_store(move_to, progress)
            if not json:
                say(f"The models are in {roots.store_folder()} now; {human(freed)} are free where they were.")
        models = local.stored_models(paths.known_models(), paths.bundled_folder())
        found = local.model_folders(models)
        if json:
            lines(found)
            return
        rows = [
            (each.path, "downloads" if each.store else "", str(each.models), human(each.bytes),
             f"{human(each.free)} of {human(each.total)}" if each.there else "not there")
            for each in found
        ]  # fmt: skip
        table(("folder", "for", "models", "size", "free"), rows)


def disk(
    delete: Annotated[str, typer.Option(help="Delete this leftover, by the path that is shown.")] = "",
    json: Json = False,
) -> None:
    """Show how much disk space models take, what is free, and what else could be deleted."""
    with report_errors():
        from engine.library import downloads, local, paths

        left = _leftovers()
        if delete:
            left = [each for each in left if not _deleted(each, delete)]
        models = local.stored_models(paths.known_models(), paths.bundled_folder())
        found, coming = local.model_folders(models), [downloads.standing(job) for job in downloads.queue()]
        if json:
            lines([*models, *found, *coming, *left])
            return
        ours = sorted(models, key=lambda model: -model.bytes)
        rows = [(each.name, human(each.bytes), _held(each), each.path) for each in ours]
        rows += [(f"{each.repository} {each.variant}", human(each.done), f"download {each.id}", "") for each in coming]
        rows += [
            (each.name, human(each.bytes), "kept for the next load" if each.cached else "broken off", each.path)
            for each in left
        ]
        table(("what", "size", "is", "where"), rows)
        total = (
            sum(model.bytes for model in models) + sum(each.done for each in coming) + sum(each.bytes for each in left)
        )
        say(f"\n{human(total)} together.")
        for folder in found:
            free = f"{human(folder.free)} of {human(folder.total)} free" if folder.there else "not there"
            count = "1 model" if folder.models == 1 else f"{folder.models} models"
            say(f"{folder.path}: {count}, {human(folder.bytes)}; {free}.")


def details(model: Model, json: Json = False) -> None:
    """Show what a model is, from its headers: nothing is loaded."""
    with report_errors():
        with importing():
            from engine.library import paths
            from engine.library.details import details_of

        known = paths.find_model(path_or_name_of(model))
        found = details_of(Path(known.path), known.name)
        if json:
            lines([found])
            return
        facts = [
            ("architecture", found.architecture),
            ("parameters", f"{found.parameters:,}"),
            ("weights", found.quantisation),
            ("layers", f"{found.layers}, {found.width} wide"),
            ("heads", f"{found.heads}, {found.kv_heads} of keys and values, {found.head_dim} wide"),
            ("context", f"{found.context:,} tokens"),
            ("vocabulary", f"{found.vocabulary:,} tokens"),
            ("licence", found.licence or "not stated in its files"),
            ("from", f"{found.repository} at {found.revision[:12]}" if found.repository else found.path),
            *(("note", notice) for notice in found.notices),
        ]
        table(("", found.name), facts)
        say()
        table(("file", "size"), [(file.name, human(file.bytes)) for file in found.files])
        say(f"\nChat template:\n{found.template}\n" if found.template else "\nIt brings no chat template.\n")
        table(("key", "value"), found.metadata)


def tokens(
    model: Model,
    text: Annotated[str | None, typer.Option(help="The text; standard input if left out.", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", hidden=True)] = False,
    json: Json = False,
) -> None:
    """A text as a model's tokenizer reads it: its tokens, and how many they are."""
    with report_errors():
        with importing():
            from engine.formats.open import open_checkpoint
            from engine.library import paths
            from engine.library.details import tokens_of

        tokenizer = open_checkpoint(paths.find_model(path_or_name_of(model)).path).tokenizer()
        if follow:  # the window: a text in JSON on each line, until its end
            import msgspec

            for line in sys.stdin:
                lines([tokens_of(tokenizer, msgspec.json.decode(line, type=str))])
            return
        found = tokens_of(tokenizer, sys.stdin.read() if text is None else text)
        if json:
            lines([found])
            return
        table(("id", "token"), [(str(each.id), repr(each.text)) for each in found.tokens])
        say(f"\n{len(found.tokens):,} tokens.")


def _leftovers() -> list[Leftover]:
    with importing():
        from engine.formats.quantised import repacked
        from engine.library import importing as imports
        from engine.library import paths
        from engine.library.local import size_below
        from engine.protocol.library import Leftover
        from engine.services.quantise import plan

    kept = repacked.kept_files(paths.quantised_folder())
    cached = [
        Leftover(name=repacked.title_of(each), path=str(each.path), bytes=each.size, cached=True) for each in kept
    ]
    broken = [Leftover(name="import", path=str(path), bytes=size_below(path)) for path in imports.leftovers()]
    making = [
        Leftover(name=f"{Path(each.model).name} as {each.to}", path=str(folder), bytes=size_below(folder))
        for each in plan.unfinished()
        if not plan.Work(folder := plan.making_folder() / each.id).is_busy()
    ]
    return [*reversed(cached), *broken, *making]


def _deleted(left: Leftover, wanted: str) -> bool:
    from engine.library.store import clear
    from engine.services.quantise import plan

    if left.path != wanted:
        return False
    if left.cached:
        Path(left.path).unlink(missing_ok=True)
    elif Path(left.path).parent == plan.making_folder():
        plan.discard(Path(left.path).name)
    else:
        clear(Path(left.path))
    return True


def _held(model: StoredModel) -> str:
    if model.missing:
        return "missing"
    words = {
        "fetched": "downloaded",
        "copied": "copied",
        "referred": "linked, stays in its folder",
        "found": model.origin,
    }
    return "comes with Kvasir" if model.bundled else words[model.held]


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """The window stops a command by SIGTERM; a copy cleans up after itself as after Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with handled(signal.SIGTERM, interrupt):
        yield


@contextlib.contextmanager
def _copying(json: bool, target: Path | None = None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that reports a copy's progress: as JSON lines, or with a bar."""
    if json:
        from engine.protocol.library import StoreMove

        last = 0.0

        def tell(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _REPORTS or done == total:
                last = time.monotonic()
                lines([StoreMove(path=str(target or ""), done=done, total=total)])

        yield tell
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (text_column("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        task = bars.add_task("Copying", total=None, start=False)

        def show(done: int, total: int) -> None:
            bars.start_task(task)
            bars.update(task, completed=done, total=total)

        yield show
