"""`kvasir keys …`: named keys of the server, for other programs and machines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from engine.base.terminal import say, table
from engine.doors.cli.operations import command, showing
from engine.protocol import operations

if TYPE_CHECKING:
    from engine.protocol.access import AddedKey, NamedKey

keys = typer.Typer(help="Keys by which other programs use `kvasir serve`.", rich_markup_mode=None)


def _show_added(made: AddedKey) -> None:
    say(f"{made.key}\nThis is the key {made.record.name}. It is not shown again: only its hash is kept.")


def _show_list(found: list[NamedKey]) -> None:
    rows = [
        (each.name, _day(each.created), _day(each.expires), _most(each.rate), _most(each.concurrent), each.service)
        for each in found
    ]
    table(("key", "made", "expires", "requests a minute", "at once", "class"), rows)


def _show_revoked(gone: NamedKey) -> None:
    say(f"The key {gone.name} opens nothing any more.")


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds)) if seconds else "never"


def _most(number: int) -> str:
    return f"{number:,}" if number else "any number"


for _name, _row, _show in (
    ("add", operations.ADD_KEY, _show_added),
    ("list", operations.LIST_KEYS, _show_list),
    ("revoke", operations.REVOKE_KEY, _show_revoked),
):
    keys.command(_name)(command(_row, showing(_row, _show)))
