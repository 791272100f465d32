"""Output for people, as plain text. Names, tags and reasons are words of strangers, who must neither steer the terminal
nor be read as rich's markup. rich is imported where it is needed, because every command passes through here."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.base.errors import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

_OURS = "\n\t"
"""Control characters that Kvasir's own texts are set with."""


def say(text: object = "", *, error: bool = False, flush: bool = False) -> None:
    """Print a text, on standard error where ``error`` is set."""
    print(plain(str(text), keep=_OURS), file=sys.stderr if error else sys.stdout, flush=flush)


def send(line: bytes) -> None:
    """Write a line for another program, which expects UTF-8 whatever the terminal's letters are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def console(**options: Any) -> Console:
    """rich's console, whose strings have neither markup nor control characters, in tables as elsewhere. ``options`` as
    rich takes them; styles are given as such."""
    return _plain_console()(**{"highlight": False, **options}, markup=False, emoji=False)


@functools.cache
def _plain_console() -> type[Console]:
    from rich.console import Console
    from rich.text import Text

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            """Every string that is printed passes here, a table's cells among them."""
            return super().render_str(plain(text, keep=_OURS), **options)

    return PlainConsole


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, a line for each row unless it has to be folded."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for name in names:
        shown.add_column(plain(name), overflow="fold")
    for row in rows:
        shown.add_row(*map(plain, row))
    console().print(shown)


def text_column(form: str) -> TextColumn:
    """A bar's column of text, read as it is."""
    from rich.progress import TextColumn

    return TextColumn(form, markup=False)


def transfer_bar() -> Progress:
    """A bar on standard error for what is downloaded: of each task the description, its bytes, rate and time left."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (text_column("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console(stderr=True))
