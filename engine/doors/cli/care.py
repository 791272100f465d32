"""`kvasir desktop` and `kvasir uninstall`: the program's place on this computer."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.doors.cli.errors import report_errors

desktop = typer.Typer(help="The menu entry of a Kvasir that was unpacked anywhere.", rich_markup_mode=None)


@desktop.command("install")
def desktop_install() -> None:
    """Put Kvasir into your menu, with its icons and the file type of models. Again after its folder was moved."""
    with report_errors():
        from engine.doors.cli.installation.desktop import run_install

        run_install()


@desktop.command("remove")
def desktop_remove() -> None:
    """Take it out again."""
    with report_errors():
        from engine.doors.cli.installation.desktop import run_remove

        run_remove()


def uninstall(
    settings: Annotated[bool, typer.Option("--purge-settings", help="Delete the settings.")] = False,
    chats: Annotated[bool, typer.Option("--purge-chats", help="Delete all chats.")] = False,
    models: Annotated[bool, typer.Option("--purge-models", help="Delete the models in Kvasir's folder.")] = False,
    making: Annotated[
        bool, typer.Option("--purge-making", help="Delete unfinished models of kvasir quantise, and what was measured.")
    ] = False,
    heads: Annotated[bool, typer.Option("--purge-heads", help="Delete heads that were trained.")] = False,
    gpu: Annotated[bool, typer.Option("--purge-gpu", help="Delete the GPU packs.")] = False,
    caches: Annotated[bool, typer.Option("--purge-caches", help="Delete quantised weights and saved chats.")] = False,
    logs: Annotated[bool, typer.Option("--purge-logs", help="Delete the logs.")] = False,
    program: Annotated[
        bool, typer.Option("--purge-program", help="Delete an unpacked program's folder and its menu entry.")
    ] = False,
    everything: Annotated[bool, typer.Option("--purge-all", help="All of these.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing, and keep what is not named.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; ask nothing, and delete only with --yes.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
) -> None:
    """List what Kvasir keeps on this computer, ask what of it shall go, and remove the program. Keeps by default."""
    with report_errors():
        from engine.doors.cli.installation.uninstall import KEYS, run_uninstall

        named = (settings, chats, models, making, heads, gpu, caches, logs, program)
        purge = {key for key, chosen in zip(KEYS, named, strict=True) if chosen or everything}
        raise typer.Exit(run_uninstall(purge, yes, as_json, dry_run))
