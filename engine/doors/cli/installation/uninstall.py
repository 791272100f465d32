"""`kvasir uninstall`: what is kept on this computer, item by item, what of it shall go, and then the program itself.

Everything is asked before anything is deleted, and whatever is not said to go stays.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.base.sizes import human
from engine.base.terminal import say
from engine.doors.cli.errors import CommandFailed
from engine.doors.cli.installation import desktop, program_files
from engine.doors.cli.installation.inventory import (
    Entry,
    Item,
    inventory,
    left_in_folders,
    remove,
    remove_empty_folders,
)
from engine.doors.cli.installation.program_files import Installation
from engine.doors.cli.installation.running import running, token_files, window_files
from engine.library import paths as config

KEYS = ("settings", "chats", "models", "making", "heads", "gpu", "caches", "logs", "program")
"""What ``--purge-KEY`` can name. ``program``: a portable folder and its menu entry."""


@dataclass
class UninstallPlan:
    """Everything that an uninstallation shall remove."""

    entries: list[Entry] = field(default_factory=list)
    menu: bool = False
    folder: Path | None = None
    command: list[str] | None = None

    def add(self, entries: list[Entry]) -> None:
        self.entries += [entry for entry in entries if entry not in self.entries]

    @property
    def empty(self) -> bool:
        return not (self.entries or self.menu or self.folder or self.command)


def run_uninstall(purge: Collection[str], yes: bool, as_json: bool, dry_run: bool) -> int:
    """Exit code 1 if something that should go stayed. Raises :class:`CommandFailed` while Kvasir runs.

    ``yes`` asks nothing and keeps what ``purge`` does not name. ``as_json`` asks nothing either, and deletes only with
    ``yes``.
    """
    items, found = inventory(), program_files.installation()
    if dry_run or (as_json and not yes):
        if as_json:
            print(json.dumps({"done": False, **_listing(items, found, purge)}, indent=1))
        else:
            _show(items, found)
        return 0
    if reason := running():
        raise CommandFailed(reason)
    if not as_json:
        _show(items, found)
    choice = _named(items, found, purge) if yes else _asked(items, found, purge)
    if choice is None:
        say(f"Nothing was deleted. {found.says}")
        return 0
    if reason := running():  # it may have been started while the questions were read
        raise CommandFailed(reason)
    failed = _delete(choice)
    _report(choice, found, failed, as_json)
    if choice.folder is not None:
        sys.stdout.flush()  # the rest of the program is about to go
        sys.stderr.flush()
        failed += _remove_program(choice.folder, as_json)
    return 1 if failed else 0


# --- choosing ------------------------------------------------------------------------------------------------------


def _named(items: list[Item], found: Installation, purge: Collection[str]) -> UninstallPlan:
    choice = UninstallPlan()
    for item in items:
        choice.add(item.all if item.key in purge else [])
    if "program" in purge:
        choice.folder = found.folder if found.kind == "portable" else None
        choice.menu = choice.folder is not None and desktop.starts(desktop.data_home(), choice.folder)
    return choice


def _asked(items: list[Item], found: Installation, purge: Collection[str]) -> UninstallPlan | None:
    """Ask what shall go; None where the person takes it back, or the input ends."""
    choice = _named(items, found, purge)
    try:
        for item in items:
            asked = item.all and item.key not in purge
            if asked and _yes(f"{item.question} {human(item.size)}, in {item.folder}"):
                choice.add(item.all)
            if item.others and _yes(f"Delete what else lies in {item.folder}? {_names(item.others)}"):
                choice.add(item.others)
        _ask_program(choice, found)
        if choice.empty:
            return None
        return choice if _yes(f"Go on and {_in_words(choice)}? This cannot be undone.") else None
    except EOFError:
        say()
        return None


def _ask_program(choice: UninstallPlan, found: Installation) -> None:
    if not choice.menu and desktop.installed(desktop.data_home()):
        choice.menu = _yes("Take Kvasir out of your menu?")
    if (
        found.kind == "portable"
        and found.folder
        and not choice.folder
        and _yes(f"Remove the program itself? {human(program_files.size(found))}, in {found.folder}")
    ):
        choice.folder = found.folder
        choice.menu = choice.menu or desktop.starts(desktop.data_home(), found.folder)
    command = program_files.apt_command() if found.kind == "debian" else None
    if command is not None and _yes(f"Remove the program itself by `{' '.join(command)}`, for everybody here?"):
        choice.command = command


def _in_words(choice: UninstallPlan) -> str:
    parts = {
        f"delete {human(sum(entry.size for entry in choice.entries))} of what Kvasir kept": choice.entries,
        "take Kvasir out of your menu": choice.menu,
        f"delete the program in {choice.folder}": choice.folder,
        "remove the program for everybody here": choice.command,
    }
    return " and ".join(words for words, chosen in parts.items() if chosen)


def _yes(question: str) -> bool:
    """Anything but yes keeps. Raises EOFError at the end of the input."""
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


# --- doing ---------------------------------------------------------------------------------------------------------


def _delete(choice: UninstallPlan) -> list[str]:
    failed = [sentence for entry in choice.entries for sentence in remove(entry.path)]
    for file in (*token_files(), *window_files()):  # of a server or a window that was killed
        with contextlib.suppress(OSError):
            file.unlink()
    if choice.menu:
        try:
            desktop.remove(desktop.data_home())
        except OSError as error:
            failed.append(f"The menu entry cannot be removed ({error.strerror}: {error.filename}).")
    if choice.command is not None:
        failed += program_files.remove_package(choice.command)
    remove_empty_folders()
    return failed


def _remove_program(folder: Path, as_json: bool) -> list[str]:
    failed = program_files.remove_folder(folder)
    for sentence in failed:
        say(f"kvasir: {sentence}", error=True)
    if folder.exists() and not failed and not as_json:
        say(f"{folder} stays: there is something in it that is not Kvasir's.")
    return failed


# --- showing -------------------------------------------------------------------------------------------------------


def _show(items: list[Item], found: Installation) -> None:
    say("What Kvasir keeps on this computer:")
    for item in items:
        nothing = "" if item.entries else "  (nothing)"
        say(f"{human(item.size):>10}  {item.title}: {item.folder}{nothing}")
        for entry in item.entries:
            link = f", a link to {entry.path.readlink()}, which stays" if entry.path.is_symlink() else ""
            if link or item.key == "models":
                say(f"{human(entry.size):>12}  {entry.path.name}{link}")
        if item.others:
            say(f"{human(sum(other.size for other in item.others)):>12}  not Kvasir's: {_names(item.others)}")
    if desktop.installed(desktop.data_home()):
        say(f"{'':>10}  a menu entry: {desktop.data_home() / desktop.ENTRY}")
    if found.folder is not None:
        say(f"{human(program_files.size(found)):>10}  the program: {found.folder}")
    say("Models in folders of your own (KVASIR_MODELS) are not Kvasir's, and stay.")


def _listing(items: list[Item], found: Installation, purge: Collection[str]) -> dict[str, Any]:
    return {
        "version": config.version(),
        "items": [
            {
                "key": item.key,
                "title": item.title,
                "bytes": item.size,
                "folder": str(item.folder),
                "paths": [str(entry.path) for entry in item.entries],
                "others": [str(entry.path) for entry in item.others],
                "also": [str(entry.path) for entry in item.also],
                "purge": item.key in purge,
            }
            for item in items
        ],
        "menu": str(desktop.data_home() / desktop.ENTRY) if desktop.installed(desktop.data_home()) else "",
        "program": {
            "kind": found.kind,
            "folder": str(found.folder or ""),
            "bytes": program_files.size(found),
            "says": found.says,
            "purge": "program" in purge and found.kind == "portable",
        },
    }


def _report(choice: UninstallPlan, found: Installation, failed: list[str], as_json: bool) -> None:
    deleted, left = [str(entry.path) for entry in choice.entries], [str(path) for path in left_in_folders()]
    says = "" if choice.folder or choice.command else found.says
    if as_json:
        print(json.dumps({"done": True, "deleted": deleted, "failed": failed, "left": left, "program": says}, indent=1))
        return
    for sentence in failed:
        say(f"kvasir: {sentence}", error=True)
    say(f"{human(sum(entry.size for entry in choice.entries))} deleted.")
    if left:
        say("Kept:")
        for path in left:
            say(f"  {path}")
    else:
        say("Nothing of Kvasir's is left in your folders.")
    if says:
        say(says)


def _names(entries: list[Entry]) -> str:
    names = ", ".join(entry.path.name for entry in entries[:5])
    return names + (f" and {len(entries) - 5} more" if len(entries) > 5 else "")
