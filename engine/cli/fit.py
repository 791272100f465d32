"""`kvasir models fit`: whether a model fits this machine, also one that is on the hub alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.arguments import CONTEXT_HELP, DEVICE_HELP, QUANTISE_HELP, device_of, path_or_name_of, quantise_of
from engine.cli.errors import importing, report_errors
from engine.cli.library import Json, chosen, lines
from engine.sizes import human

if TYPE_CHECKING:
    from engine.protocol.library import FitReport


def fit(
    model: Annotated[str, typer.Argument(help="A model on this machine, or ORGANISATION/NAME on the hub.")],
    variant: Annotated[str, typer.Argument(help="Of a repository with several: a name or a kind, as Q4_K_M.")] = "",
    context: Annotated[int | None, typer.Option(min=1, help=CONTEXT_HELP, show_default=False)] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    quantise: Annotated[str, typer.Option(help=QUANTISE_HELP)] = "none",
    called: Annotated[str, typer.Option("--called", hidden=True)] = "",
    json: Json = False,
) -> None:
    """Whether a model fits this machine: planned from its headers, also of one that is not here."""
    with report_errors(), contextlib.ExitStack() as kept:
        from engine import paths

        there = path_or_name_of(model)
        try:
            if variant and model.count("/") == 1:  # that one, whatever of the repository is here
                raise paths.ModelNotFound
            path = Path(paths.find_model(there).path)
        except paths.ModelNotFound:
            if model.count("/") != 1 or Path(model).exists():
                raise
            path, called = kept.enter_context(_outlined(model, variant))
        words = ["--context", str(context)] if context is not None else []
        words += ["--device", device, "--quantise", quantise, "--called", called or model]
        if str(path) != there and in_pack(["models", "fit", str(path), *words, *(["--json"] if json else [])]):
            return
        with importing():
            from engine.loading.fit import fit_of
            from engine.protocol import LoadOptions

        options = LoadOptions(context=context, device=device_of(device), quantise=quantise_of(quantise))
        report = fit_of(path, paths.resolve(str(path), None)[1], options, called or model)
        lines([report]) if json else _show_fit(report)


def in_pack(command: list[str]) -> bool:
    """Have the GPU pack that is in use answer; False where there is none. It computes, and has no library for hubs."""
    import subprocess

    from engine import folders, installation
    from engine.packs import start

    try:
        used = installation.pack() is None and start.chosen(folders.packs_place()) is not None
    except start.NotUsed:
        return False
    if used and (code := subprocess.run([*installation.engine_command(), *command]).returncode):
        raise typer.Exit(code)
    return used


@contextlib.contextmanager
def _outlined(repository: str, wanted: str) -> Iterator[tuple[Path, str]]:
    """The outline of a model on the hub, and what it is called."""
    import tempfile

    from engine.library import hub
    from engine.library.headers import outline

    found = hub.repository(repository)
    variant = chosen(found, wanted)
    with tempfile.TemporaryDirectory(prefix="kvasir-fit-") as folder:
        yield outline(found, variant, Path(folder)), f"{repository} {variant.quantisation}".strip()


def _show_fit(report: FitReport) -> None:
    print(f"{report.name}: {report.verdict}{'. ' + report.sentence if report.sentence else ''}")
    if report.fit is None:
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
    if report.fastest:
        reads = f"{human(report.read_bytes)} a token at {report.bandwidth / 1e9:.1f} GB/s measured"
        rows.append(("at most", f"{report.fastest:.3g} tokens/s without speculation: {reads}"))
    for row in rows:
        print(f"  {row[0]:<14} {row[1]}")
