"""`kvasir models fit`: whether a model fits this machine, also one that is on the hub alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from engine.base.sizes import figure, human
from engine.base.terminal import say
from engine.doors.cli.arguments import ContextOption, DeviceOption, QuantiseOption, load_options_of, path_or_name_of
from engine.doors.cli.errors import importing, report_errors
from engine.doors.cli.library import Json, chosen, lines, table

if TYPE_CHECKING:
    from engine.protocol.library import FitReport, HubVariant

USUAL = "Q4_K_M"
"""Of several GGUF files the one whose header is read, where there is one."""


def fit(
    model: Annotated[str, typer.Argument(help="A model on this machine, or ORGANISATION/NAME on the hub.")],
    variant: Annotated[
        str, typer.Argument(help="Of a repository with several: a name or a kind, as Q4_K_M; all if left out.")
    ] = "",
    context: ContextOption = None,
    device: DeviceOption = "auto",
    quantise: QuantiseOption = "none",
    credit: Annotated[int, typer.Option(min=0, help="Bytes that a model which is unloaded first holds.")] = 0,
    called: Annotated[str, typer.Option("--called", hidden=True)] = "",
    among: Annotated[Path | None, typer.Option("--among", hidden=True)] = None,
    json: Json = False,
) -> None:
    """Say whether a model fits this machine, and how fast it will be, from its headers; it need not be downloaded."""
    with report_errors(), contextlib.ExitStack() as kept:
        from engine.library import paths

        outlines = _outlines(model, variant, Outline(Path(), called or model, among), kept)
        words = ["--context", str(context)] if context is not None else []
        words += ["--device", device, "--quantise", quantise, "--credit", str(credit), *(["--json"] if json else [])]
        if str(outlines[0].path) != path_or_name_of(model) and in_pack([each.command(words) for each in outlines]):
            return
        with importing():
            from engine.loading.advice.fit import Asked, fit_of, fits_of

        options = load_options_of(device, quantise, context)
        for each in outlines:
            draft = "" if each.among else paths.resolve(str(each.path), None)[1]
            asked = Asked(each.called, draft, options, credit)
            header, variants = each.variants()
            reports = [fit_of(each.path, asked)] if header is None else fits_of(each.path, header, variants, asked)
            lines(reports) if json else _show(reports)


class Outline(NamedTuple):
    """The headers of a model, what it is called, and a file with the variants that they are to be planned for."""

    path: Path
    called: str
    among: Path | None = None

    def command(self, words: list[str]) -> list[str]:
        """Build the ``kvasir`` arguments that compute the answer for this outline in another process."""
        among = ["--among", str(self.among)] if self.among else []
        return ["models", "fit", str(self.path), "--called", self.called, *among, *words]

    def variants(self) -> tuple[HubVariant | None, list[HubVariant]]:
        """The one whose headers they are, and all; None where there is but one model."""
        from engine.base.files import decode_file
        from engine.protocol.library import HubVariant

        held = decode_file(self.among, tuple[HubVariant, list[HubVariant]]) if self.among is not None else None
        return held or (None, [])


def in_pack(commands: list[list[str]]) -> bool:
    """Have the GPU pack that is in use answer; False where there is none. It computes, and has no library for hubs."""
    import subprocess

    from engine.base import folders, installation
    from engine.services.packs import start

    try:
        used = installation.pack() is None and start.chosen(folders.packs_place()) is not None
    except start.NotUsed:
        return False
    for command in commands if used else ():
        if code := subprocess.run([*installation.engine_command(), *command]).returncode:
            raise typer.Exit(code)
    return used


def _outlines(model: str, variant: str, here: Outline, kept: contextlib.ExitStack) -> list[Outline]:
    """List the model at a path or of a name, or those of a repository; ``here`` gets the path of a local one.

    Where the hub cannot be asked a repository that is here is looked at instead.
    """
    from engine.base.fetching.errors import FetchFailed
    from engine.library import paths

    def found() -> list[Outline]:
        return [here._replace(path=Path(paths.find_model(path_or_name_of(model)).path))]

    if model.count("/") != 1 or Path(model).is_absolute() or os.path.exists(model):
        return found()
    if not variant and _never_fetched(model):
        return found()
    try:
        return list(_outlined(model, variant, kept))
    except FetchFailed:
        if not variant:
            with contextlib.suppress(paths.ModelNotFound):
                return found()
        raise


def _never_fetched(name: str) -> bool:
    """Return True if a local model's name is on no hub: the model was made here, or imported."""
    from engine.library import paths, store

    path = next((Path(known.path) for known in paths.known_models() if known.name == name), None)
    receipt = store.receipt_of(path) if path is not None else None
    return path is not None and not (receipt is not None and any(receipt.revisions.values()))


def _outlined(repository: str, wanted: str, kept: contextlib.ExitStack) -> Iterator[Outline]:
    """Outlines of a repository's models, or of the ``wanted`` one: of GGUF files, which share an architecture, one."""
    import tempfile

    import msgspec

    from engine.library import hub
    from engine.library.headers import outline

    found = hub.repository(repository)
    variants = found.variants if found.variants and not wanted else [chosen(found, wanted)]
    for format in dict.fromkeys(each.format for each in variants):
        mine = [each for each in variants if each.format == format]
        header = next((each for each in mine if each.quantisation == USUAL), mine[0])
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="kvasir-fit-")))
        among = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="kvasir-fit-"))) / "variants.json"
        among.write_bytes(msgspec.json.encode((header, mine)))
        yield Outline(outline(found, header, folder), repository, among)


def _show(reports: list[FitReport]) -> None:
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
