"""`kvasir models …`: the models of this machine, those of the hub, and what brings one here.

With ``--json`` each prints objects of engine/protocol/library.py, one a line, for the window.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from engine.base.errors import plain
from engine.base.sizes import billions, human
from engine.base.terminal import say, send, table, transfer_bar
from engine.doors.cli.arguments import (
    ContextOption,
    DeviceOption,
    DtypeOption,
    QuantiseOption,
    device_of,
    load_options_of,
    path_or_name_of,
)
from engine.doors.cli.errors import CommandFailed, handled, importing, report_errors

if TYPE_CHECKING:
    from rich.progress import TaskID

    from engine.library.downloads import Job
    from engine.protocol.base import Message
    from engine.protocol.library import Download, HubRepository, HubVariant, ModelFormat

models = typer.Typer(help="Models: those here, and how others come here.", rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, as the window reads them.")]
Repository = Annotated[str, typer.Argument(help="ORGANISATION/NAME, as the hub's page of it shows.")]
LIMIT_HELP = "At most this number of MB a second; 0: no limit."
Revision = Annotated[str | None, typer.Option(help="A commit or a tag; the newest if left out.", show_default=False)]


@models.command("list")
def list_models(watched: Annotated[bool, typer.Option("--watched", hidden=True)] = False, json: Json = False) -> None:
    """The models on this machine: Kvasir's own, and those that other programs have."""
    with report_errors():
        from engine.library import curated, local, paths, store
        from engine.protocol.library import Watched

        found = local.stored_models(paths.known_models(), paths.bundled_folder())
        found = local.with_purposes(found, curated.models(paths.models_file()))
        rows = [
            (each.name, "missing" if each.missing else human(each.bytes), each.format, each.origin, each.path)
            for each in found
        ]
        unnamed = [
            f"{plain(str(path))} is left out, because its name is not UTF-8. Rename it."
            for path in paths.unnamed_models()
        ]
        for sentence in (*unnamed, *store.unreadable()):
            say(f"kvasir: {sentence}", error=True)
        if watched:  # the window: where to look for changes
            lines([*found, *local.model_folders(found), Watched(paths=local.watched(found))])
            return
        told(json, found, ("model", "size", "format", "of", "path"), rows)
        away = [] if json else [folder.path for folder in local.model_folders(found) if not folder.there]
        if away:
            say(f"Not there now, so not looked into: {', '.join(away)}.")


@models.command()
def search(
    text: Annotated[str, typer.Argument(help="Words of its name.")] = "",
    format: Annotated[str, typer.Option(help="gguf or safetensors.", show_default=False)] = "",
    author: Annotated[str, typer.Option(help="Of this organisation.", show_default=False)] = "",
    licence: Annotated[str, typer.Option(help="As apache-2.0.", show_default=False)] = "",
    size: Annotated[str, typer.Option(help="Parameters, as 3B-9B, -8B or 20B-.", show_default=False)] = "",
    fits: Annotated[bool, typer.Option("--fits", help="Only what fits into what is free now, in 4 bits.")] = False,
    sort: Annotated[str, typer.Option(help="downloads, likes, trending_score or last_modified.")] = "downloads",
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 30,
    json: Json = False,
) -> None:
    """Look for models on the hub."""
    if format not in ("", "gguf", "safetensors"):
        raise typer.BadParameter(f"{format!r} is neither gguf nor safetensors.", param_hint="--format")
    if sort not in ("downloads", "likes", "trending_score", "last_modified"):
        raise typer.BadParameter(f"{sort!r} is not a sort order.", param_hint="--sort")
    with report_errors():
        from engine.library import hub

        kind, parameters = cast("ModelFormat", format) if format else None, hub.parameters(size)
        if fits:
            with importing():
                from engine.loading.advice.recommend import fitting
                from engine.loading.memory import probe

            within = fitting(size, probe.free_bytes(probe.choose_device()))
            if within is None:
                raise CommandFailed(
                    f"No model of {size} parameters fits into what is free now, in 4 bits. Ask for smaller ones, or "
                    "leave --fits out."
                )
            parameters = hub.parameters(within)
        found = hub.search(hub.Search(text, author, kind, licence, parameters, sort, limit))
        rows = [
            (each.repository, billions(each.parameters), f"{each.downloads:,}", ", ".join(each.formats),
             each.licence + (", gated" if each.gated else ""), each.modified)
            for each in found
        ]  # fmt: skip
        told(json, found, ("model", "parameters", "downloads", "format", "licence", "changed"), rows)


@models.command()
def show(repository: Repository, revision: Revision = None, json: Json = False) -> None:
    """Show which loadable variants a repository of the hub holds, and how large each is."""
    with report_errors():
        from engine.library import hub

        found = hub.repository(repository, revision)
        if json:
            lines([found])
            return
        about = found.model
        terms = "gated: its owner wants to be asked first" if about.gated else ""
        facts = (billions(about.parameters), about.architecture, about.licence, terms)
        say(f"{about.repository} at {found.revision[:12]}: {', '.join(filter(None, facts))}")
        if found.refused:
            raise CommandFailed(found.refused)
        table(("name", "kind", "size"), [(each.name, each.quantisation, human(each.bytes)) for each in found.variants])


@models.command()
def get(
    repository: Repository,
    variant: Annotated[
        str, typer.Argument(help="Which of its models: a name, or its kind as Q4_K_M; needed where it has several.")
    ] = "",
    revision: Revision = None,
    limit: Annotated[float, typer.Option(min=0.0, help=LIMIT_HELP)] = 0.0,
    later: Annotated[bool, typer.Option("--later", help="Only put it into the list of downloads.")] = False,
    json: Json = False,
) -> None:
    """Fetch a model. Ctrl-C stops; the same command goes on where it ended."""
    with report_errors():
        from engine.library import downloads, hub

        found = hub.repository(repository, revision)
        job = downloads.add(found, chosen(found, variant))
        if not later:
            _fetch(job, limit, json)
        elif json:
            lines([downloads.standing(job)])
        else:
            say(f"Go on with it: kvasir models resume {job.id}")


@models.command()
def resume(
    id: Annotated[str, typer.Argument(help="The download's ID, as `kvasir models downloads` shows it.")],
    limit: Annotated[float, typer.Option(min=0.0, help=LIMIT_HELP)] = 0.0,
    json: Json = False,
) -> None:
    """Go on with a download that was stopped or failed."""
    with report_errors():
        from engine.library import downloads

        _fetch(downloads.again(_job(id)), limit, json)


@models.command()
def downloads(
    cancel: Annotated[str, typer.Option(help="Delete the download with this ID, and what it brought.")] = "",
    json: Json = False,
) -> None:
    """Models that are on their way: those that wait, and those that were stopped or failed."""
    with report_errors():
        from engine.library import downloads

        if cancel:
            downloads.cancel(_job(cancel))
        found = [downloads.standing(job) for job in downloads.queue()]
        rows = [
            (each.id, each.repository, each.variant, each.state, f"{human(each.done)} of {human(each.total)}")
            for each in found
        ]
        told(json, found, ("id", "model", "variant", "state", "here"), rows)


@models.command()
def rm(model: Annotated[str, typer.Argument(help="A downloaded or imported model's name or path.")]) -> None:
    """Delete a model that Kvasir downloaded or copied; forget one that was imported where it lies. What others keep is
    theirs."""
    with report_errors():
        from engine.library import paths, roots, store

        if roots.forget(path_or_name_of(model)):
            say("It is forgotten. Nothing was deleted: its files are not Kvasir's.")
            return
        path = Path(paths.find_model(path_or_name_of(model)).path)
        try:
            with store.changing():
                freed = store.remove(path)
        except ValueError:
            raise CommandFailed(f"{path} was not downloaded by Kvasir, so it is not Kvasir's to delete.") from None
        say(f"{human(freed)} free again.")


@models.command()
def verify(model: Annotated[str, typer.Argument(help="A downloaded model's name or path.")]) -> None:
    """Compare every file of a model that Kvasir downloaded with the hash that the hub stated."""
    with report_errors():
        from engine.library import paths, store

        path = Path(paths.find_model(path_or_name_of(model)).path)
        variants = store.variants_at(path)
        if not variants:
            raise CommandFailed(f"{path} was not downloaded by Kvasir, so nothing says what it should hold.")
        for repository, variant in variants:
            if wrong := store.damaged(path, variant):
                receipt = store.receipt_of(path)
                again = f"Fetch them again: kvasir models get {repository} {variant.name}"
                if receipt is None or not receipt.revisions.get(variant.name):  # the hub knows nothing of it
                    again = f"Delete it (kvasir models rm {path}), and make or import it again."
                raise CommandFailed(f"{', '.join(wrong)} of {repository} are missing or damaged. {again}")
        say("Every file is as it was downloaded.")


@models.command()
def token(
    forget: Annotated[bool, typer.Option("--forget", help="Delete the stored token.")] = False,
) -> None:
    """Store your token for the hub (asked for, or read from standard input): for models with terms to agree to."""
    with report_errors():
        from engine.library import hub, keys

        if forget:
            if not keys.forget(hub.server()):
                raise CommandFailed("The system's keyring keeps the token and does not give it away. Unlock it first.")
            say("The token is deleted.")
            return
        asked = typer.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
        name = hub.check_token(asked.strip())
        say(f"It is {name}'s. Stored in {keys.write(hub.server(), asked.strip())}.")


@models.command()
def check(
    model: Annotated[str, typer.Argument(help="A model's name, or the path of its folder or GGUF file.")],
    tokens: Annotated[Path, typer.Option(help="A JSON list of token ids.")],
    dump: Annotated[Path, typer.Option(help="The .npz file to write: tokens, logits, continuation.")],
    new_tokens: Annotated[int, typer.Option("--max-tokens", min=0, help="Length of the greedy continuation.")] = 32,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    quantise: QuantiseOption = "none",
    context: ContextOption = None,
) -> None:
    """Write a model's float32 logits for given token ids, and its greedy continuation, to compare with others."""
    with report_errors():
        options = load_options_of(quantise=quantise, context=context, dtype=dtype)
        with importing():
            from engine.doors.cli.models import run_check
        run_check(path_or_name_of(model), tokens, dump, new_tokens, device_of(device), options)


@models.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all of it.")] = False,
) -> None:
    """List the weights that were quantised while loading and are kept for the next load."""
    with report_errors():
        from engine.doors.cli.models import run_cache

        run_cache(clear)


def _job(id: str) -> Job:
    from engine.library import downloads

    if (job := downloads.read(id)) is None:
        raise CommandFailed(f"There is no download {id}.")
    return job


def _fetch(job: Job, limit: float, json: bool) -> None:
    """Work on one download to its end, and leave with what that means."""
    from engine.library import downloads

    last: Download | None = None
    with _progress(json) as report:

        def tell(told: Download) -> None:
            nonlocal last
            last = told
            report(told)

        working = downloads.Downloads(tell, 1, limit * 1e6)
        with _stopping(lambda: working.pause(job.id)):
            working.start(job)
            working.finish()
    assert last is not None
    if last.state == "done":
        if not json:
            say(f"{last.path}\nUse it: kvasir chat {job.repository if last.variant == 'safetensors' else last.path}")
        return
    stopped = last.state == "paused"
    sentence = "Stopped. What was downloaded is kept: the same command continues from there."
    say(f"kvasir: {sentence if stopped else last.sentence}", error=True)
    raise typer.Exit(130 if stopped else 1)


def chosen(found: HubRepository, wanted: str) -> HubVariant:
    """The variant of that name or kind, the only one for "". Raises :class:`CommandFailed` with those there are."""
    if found.refused:
        raise CommandFailed(found.refused)
    fit = [
        each
        for each in found.variants
        if not wanted or wanted == each.name or wanted.lower() == each.quantisation.lower()
    ]
    if len(fit) == 1:
        return fit[0]
    names = ", ".join(f"{each.quantisation or each.name} ({human(each.bytes)})" for each in found.variants)
    what = f"{wanted!r} is not one of them" if wanted and not fit else "say which"
    raise CommandFailed(f"{found.model.repository} holds several models; {what}: {names}.")


@contextlib.contextmanager
def _stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM, which the window sends, stop what runs."""
    with handled(signal.SIGINT, lambda *_: stop()), handled(signal.SIGTERM, lambda *_: stop()):
        yield


@contextlib.contextmanager
def _progress(json: bool) -> Iterator[Callable[[Download], None]]:
    """Yield a function that reports downloads: as JSON lines, or with a progress bar for each."""
    if json:
        yield lambda told: lines([told])
        return
    with transfer_bar() as bars:
        tasks: dict[str, TaskID] = {}

        def report(told: Download) -> None:
            if told.id not in tasks:
                tasks[told.id] = bars.add_task(plain(f"{told.repository} {told.variant}"), total=told.total)
            bars.update(tasks[told.id], completed=told.done)

        yield report


def lines(told: Sequence[Message]) -> None:
    """One object a line, for the window."""
    import msgspec

    for each in told:
        try:
            line = msgspec.json.encode(each)
        except UnicodeEncodeError:
            raise CommandFailed(
                "A name that is not UTF-8 cannot be written as JSON. Rename the file or folder."
            ) from None
        send(line)


def told(json: bool, found: Sequence[Message], names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """``found`` as lines, or ``rows`` of a table for people."""
    if json:
        lines(found)
    else:
        table(names, rows)
