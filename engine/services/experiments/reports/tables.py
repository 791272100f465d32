"""Output of ``kvasir bench``: its figures as tables on standard output, and its progress on standard error."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from engine.base.terminal import console

MB, GB = 1e6, 1e9
PAGE = 130
"""Columns of the tables in a file or a pipe."""


def say(line: str) -> None:
    """Tell on standard error what is being measured."""
    console(stderr=True).print(line, style="dim")


def show_line(line: str | Table) -> None:
    """Print on standard output."""
    out = console()
    (out if out.is_terminal else console(width=PAGE)).print(line)


def show_table(title: str, columns: str, rows: Iterable[str]) -> None:
    """Print a table. The headings in ``columns`` and the cells of each row are separated by " | "."""
    table = Table(*columns.split(" | "), title=title)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*row.split(" | "))
    show_line(table)


def show_absent(absent: Iterable[str]) -> None:
    """Print what could not be measured, a line each with its reason."""
    for line in absent:
        show_line(f"left out: {line}")
