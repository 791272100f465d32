"""`kvasir models …`: the models of this machine, those of the hub, and what brings one here.

All but downloads, tokens of hubs and what develops Kvasir are rows of the table of operations; here is how their
answers are shown. With ``--json`` each prints records of engine/protocol, one a line.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.errors import plain
from engine.base.sizes import billions, figure, human
from engine.base.terminal import say, table, transfer_bar
from engine.decoding.speculation.technique import drafting
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
from engine.doors.cli.operations import Json, command, lines, showing
from engine.protocol import operations

if TYPE_CHECKING:
    from rich.progress import TaskID

    from engine.library.downloads import Job
    from engine.protocol import (
        Download,
        DraftOffer,
        FitReport,
        HubModel,
        HubRepository,
        ModelDetails,
        Recommendation,
        Recommended,
        StoredModel,
        TextTokens,
    )

models = typer.Typer(help="Models: those here, and how others come here.", rich_markup_mode=None)

LIMIT_HELP = "At most this number of MB a second; 0: no limit."
WORDS = {"fits": "runs well here", "tight": "runs", "too large": "too large", "": "size not known"}


@models.command()
def get(
    repository: Annotated[str, typer.Argument(help="ORGANISATION/NAME, as the hub's page of it shows.")],
    variant: Annotated[
        str, typer.Argument(help="Which of its models: a name, or its kind as Q4_K_M; needed where it has several.")
    ] = "",
    revision: Annotated[
        str | None, typer.Option(help="A commit or a tag; the newest if left out.", show_default=False)
    ] = None,
    limit: Annotated[float, typer.Option(min=0.0, help=LIMIT_HELP)] = 0.0,
    later: Annotated[bool, typer.Option("--later", help="Only put it into the list of downloads.")] = False,
    json: Json = False,
) -> None:
    """Fetch a model. Ctrl-C stops; the same command goes on where it ended."""
    with report_errors():
        from engine.services.models.stored import job_of
        from engine.services.operations import perform

        wanted = operations.AddDownload(repository=repository, variant=variant, revision=revision)
        added = perform(operations.ADD_DOWNLOAD, wanted)
        if not later:
            _fetch(job_of(added.id), limit, json)
        elif json:
            lines([added])
        else:
            say(f"Go on with it: kvasir models resume {added.id}")


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


def _show_list(found: operations.ModelList) -> None:
    rows = [
        (each.name, "missing" if each.missing else human(each.bytes), each.format, each.origin, each.path)
        for each in _listed(found)
    ]
    table(("model", "size", "format", "of", "path"), rows)
    if away := [folder.path for folder in found.folders if not folder.there]:
        say(f"Not there now, so not looked into: {', '.join(away)}.")


def _listed(found: operations.ModelList) -> list[StoredModel]:
    """The models; what is left out is told on standard error."""
    for sentence in found.left_out:
        say(f"kvasir: {sentence}", error=True)
    return found.models


def _show_search(found: list[HubModel]) -> None:
    rows = [
        (each.repository, billions(each.parameters), f"{each.downloads:,}", ", ".join(each.formats),
         each.licence + (", gated" if each.gated else ""), each.modified)
        for each in found
    ]  # fmt: skip
    table(("model", "parameters", "downloads", "format", "licence", "changed"), rows)


def _show_repository(found: HubRepository) -> None:
    about = found.model
    terms = "gated: its owner wants to be asked first" if about.gated else ""
    facts = (billions(about.parameters), about.architecture, about.licence, terms)
    say(f"{about.repository} at {found.revision[:12]}: {', '.join(filter(None, facts))}")
    if found.refused:
        raise CommandFailed(found.refused)
    table(("name", "kind", "size"), [(each.name, each.quantisation, human(each.bytes)) for each in found.variants])


def _show_downloads(found: list[Download]) -> None:
    rows = [
        (each.id, each.repository, each.variant, each.state, f"{human(each.done)} of {human(each.total)}")
        for each in found
    ]
    table(("id", "model", "variant", "state", "here"), rows)


def _show_removed(removed: operations.Removed) -> None:
    forgotten = "It is forgotten. Nothing was deleted: its files are not Kvasir's."
    say(forgotten if removed.forgotten else f"{human(removed.freed)} free again.")


def _show_drafts(found: list[DraftOffer]) -> None:
    if not found:
        say("Nothing drafts for it but itself and n-grams.")
        return
    table(("draft", "what", "size", "reads", "where"), [_draft_row(each) for each in found])


def _draft_row(offer: DraftOffer) -> tuple[str, ...]:
    where = offer.path or (f"kvasir models get {offer.repository} {offer.variant}" if offer.repository else "")
    reads = f"{100 * offer.cost:.0f} % of the model" if offer.cost else ""
    return offer.name, _draft_kind(offer), human(offer.bytes) if offer.bytes else "", reads, where


def _draft_kind(offer: DraftOffer) -> str:
    """Kind of a draft in words; one that is neither here nor to be had is in the model's own file."""
    if not (offer.path or offer.repository):
        return "built in"
    return next((each.label for each in drafting() if each.name == offer.kind), "draft model")


def _show_recommended(found: Recommended) -> None:
    table(("model", "kind", "size", "for", "here", "draft"), [_recommended_row(each) for each in found.models])


def _recommended_row(each: Recommendation) -> tuple[str, ...]:
    model, draft = each.model, each.model.draft
    verdict = "on this machine" if each.here else WORDS[each.verdict]
    drafts = "" if draft is None else draft.repository or "built-in"
    size = human(model.bytes) if model.bytes else ""
    return model.repository, model.variant, size, ", ".join(model.purposes), verdict, drafts


def _show_imported(found: operations.Imported) -> None:
    referred = found.model is not None and found.model.held == "referred"
    where = "it stays where it is" if referred else f"it is in {found.path}"
    say(f"{found.name} is among the models; {where}.\nUse it: kvasir chat {found.name}")


def _show_folders(found: operations.Folders) -> None:
    if found.moved:
        say(f"The models are in {found.store} now; {human(found.freed)} are free where they were.")
    rows = [
        (each.path, "downloads" if each.store else "", str(each.models), human(each.bytes),
         f"{human(each.free)} of {human(each.total)}" if each.there else "not there")
        for each in found.folders
    ]  # fmt: skip
    table(("folder", "for", "models", "size", "free"), rows)


def _show_disk(use: operations.DiskUse) -> None:
    models, coming, left = sorted(use.models, key=lambda model: -model.bytes), use.downloads, use.leftovers
    rows = [(each.name, human(each.bytes), _held(each), each.path) for each in models]
    rows += [(f"{each.repository} {each.variant}", human(each.done), f"download {each.id}", "") for each in coming]
    rows += [
        (each.name, human(each.bytes), "kept for the next load" if each.cached else "broken off", each.path)
        for each in left
    ]
    table(("what", "size", "is", "where"), rows)
    sizes = [*(each.bytes for each in models), *(each.bytes for each in left), *(each.done for each in coming)]
    say(f"\n{human(sum(sizes))} together.")
    for folder in use.folders:
        free = f"{human(folder.free)} of {human(folder.total)} free" if folder.there else "not there"
        count = "1 model" if folder.models == 1 else f"{folder.models} models"
        say(f"{folder.path}: {count}, {human(folder.bytes)}; {free}.")


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


def _show_details(found: ModelDetails) -> None:
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


def _show_tokens(found: TextTokens) -> None:
    table(("id", "token"), [(str(each.id), repr(each.text)) for each in found.tokens])
    say(f"\n{len(found.tokens):,} tokens.")


def _show_fits(reports: list[FitReport]) -> None:
    if len(reports) == 1:
        _show_fit(reports[0])
        return
    rows = [
        (each.variant, each.verdict, human(each.fit.weights) if each.fit else "", f"{each.context:,}", _speed(each))
        for each in reports
    ]
    table(("variant", "", "weights", "longest text", "tokens/s"), rows)
    exact = next(each for each in reports if not each.assumed)
    say(f"Planned from the header of {exact.variant} and the sizes of the others. One of them alone: name it too.")


def _speed(report: FitReport) -> str:
    if report.decode:
        return figure(report.decode)
    return f"{figure(report.fastest)} at most" if report.fastest else ""


def _show_fit(report: FitReport) -> None:
    say(f"{report.name}: {report.verdict}{'. ' + report.sentence if report.sentence else ''}")
    for each in report.suggestions:
        say(f"  {each.sentence}")
    if report.fit is None or report.verdict == "too large":
        return
    fit = report.fit
    parts = [
        ("weights", fit.weights),
        ("draft", fit.draft_weights),
        ("states", fit.states),
        ("to work with", fit.activations),
    ]
    rows = [(name, human(size)) for name, size in parts if size]
    rows += [
        (f"cache, {each.kind}", f"{each.bytes_per_token / 1e3:.1f} kB a token, room for {each.tokens:,} tokens")
        for each in report.kinds
    ]
    rows.append(("longest text", f"{report.context:,} of {report.longest:,} tokens"))
    rows.append(("may be used", f"{human(fit.budget)} of the {human(fit.free)} that are free"))
    if report.decode:
        reads = f", reading {figure(report.prefill)} tokens/s" if report.prefill else ""
        rows.append(("speed", f"{figure(report.decode)} tokens/s{reads}, {report.source}"))
    if report.draft is not None:
        steps, rate = figure(report.draft.tokens_per_step), figure(report.draft.rate)
        rows.append((report.draft.proposer, f"{steps} tokens a step, {rate} tokens/s, from your runs of it"))
    if report.fastest:
        reads = f"{human(report.read_bytes)} a token at {report.bandwidth / 1e9:.1f} GB/s measured"
        rows.append(("at most", f"{figure(report.fastest)} tokens/s without speculation: {reads}"))
    for row in rows:
        say(f"  {row[0]:<14} {row[1]}")


# --- the commands --------------------------------------------------------------------------------------------------


def _resume(request: operations.ResumeDownload, json: bool) -> None:
    from engine.library import downloads
    from engine.services.models.stored import job_of

    _fetch(downloads.again(job_of(request.id)), request.limit, json)


def _import(request: operations.ImportModel, json: bool) -> None:
    if request.copy and request.move:
        raise typer.BadParameter("Choose one of --copy and --move.", param_hint="--move")
    showing(operations.IMPORT_MODEL, _show_imported, lambda found: [each for each in (found.model,) if each])(
        request, json
    )


def _read(request: operations.ReadTokens, json: bool) -> None:
    import msgspec

    text = sys.stdin.read() if request.text is None else request.text
    showing(operations.READ_TOKENS, _show_tokens)(msgspec.structs.replace(request, text=text), json)


def _on_disk(use: operations.DiskUse) -> list[object]:
    return [*use.models, *use.folders, *use.downloads, *use.leftovers]


def _commands() -> Iterator[tuple[str, Callable[..., None]]]:
    """The commands of the table, by what they are called."""
    ops = operations
    yield "list", command(ops.LIST_MODELS, showing(ops.LIST_MODELS, _show_list, _listed))
    yield "search", command(ops.SEARCH_MODELS, showing(ops.SEARCH_MODELS, _show_search), ["text"])
    yield "show", command(ops.SHOW_REPOSITORY, showing(ops.SHOW_REPOSITORY, _show_repository))
    yield "resume", command(ops.RESUME_DOWNLOAD, _resume)
    yield "downloads", command(ops.LIST_DOWNLOADS, showing(ops.LIST_DOWNLOADS, _show_downloads))
    yield "rm", command(ops.REMOVE_MODEL, showing(ops.REMOVE_MODEL, _show_removed), json=False)
    yield "fit", command(ops.FIT_MODEL, showing(ops.FIT_MODEL, _show_fits), ["variant"])
    yield "import", command(ops.IMPORT_MODEL, _import)
    recommended = showing(ops.RECOMMEND, _show_recommended, lambda found: found.models)
    yield "recommended", command(ops.RECOMMEND, recommended, names={"purpose": "--for"})
    yield "drafts", command(ops.OFFER_DRAFTS, showing(ops.OFFER_DRAFTS, _show_drafts))
    yield (
        "folders",
        command(ops.CHANGE_FOLDERS, showing(ops.CHANGE_FOLDERS, _show_folders, lambda found: found.folders)),
    )
    yield "disk", command(ops.LOOK_AT_DISK, showing(ops.LOOK_AT_DISK, _show_disk, _on_disk))
    yield "details", command(ops.DESCRIBE_MODEL, showing(ops.DESCRIBE_MODEL, _show_details))
    yield "tokens", command(ops.READ_TOKENS, _read)


for _name, _run in _commands():
    models.command(_name)(_run)
