"""The table of faults: which test found each. Written after every fault, and read again to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

HEAD = """# Faults that the tests find

`python -m tests.faults` wrote this: it injects each fault of `tests/faults/list.py` into a copy of the tree and runs
the test or the test files that its origin names, then those nearest to it, until one fails or does not end. Seconds are
those of the processor.

| fault | kind | what breaks | found by | seconds |
| --- | --- | --- | --- | --- |
"""
LOST = "**not found**"


class Row(NamedTuple):
    """``found`` is the first test that failed; "" where none did, and then ``note`` says what was tried."""

    name: str
    kind: str
    breaks: str
    found: str
    seconds: float
    note: str = ""


def write(file: Path, rows: Iterable[Row]) -> None:
    """Replace the file by the table, in the order of kinds and names."""
    lines = []
    for row in sorted(rows, key=lambda row: (row.kind, row.name)):
        found = f"`{_escaped(row.found)}`" if row.found else f"{LOST} ({row.note})"
        lines.append(f"| {row.name} | {row.kind} | {_escaped(row.breaks)} | {found} | {row.seconds:.0f} |\n")
    file.write_text(HEAD + "".join(lines), encoding="utf-8")


def read(file: Path) -> dict[str, Row]:
    """The rows of a table by the names of their faults; none where there is no file."""
    if not file.is_file():
        return {}
    rows = {}
    for line in file.read_text("utf-8").split("\n"):
        cells = line.replace("\\|", "\0").strip("| ").split(" | ")
        if len(cells) == 5 and cells[4].isdigit():
            name, kind, breaks, found, seconds = (cell.replace("\0", "|") for cell in cells)
            lost = found.startswith(LOST)
            note = found.removeprefix(LOST).strip("() ") if lost else ""
            rows[name] = Row(name, kind, breaks, "" if lost else found.strip("`"), float(seconds), note)
    return rows


def compare(old: Mapping[str, Row], new: Mapping[str, Row]) -> tuple[str, list[str]]:
    """The tables side by side, and the faults that the old suite alone finds or that the new one was not tried with."""
    lines = ["| fault | found by the old suite | found by the new suite |", "| --- | --- | --- |"]
    for name in sorted({*old, *new}):
        cells = [
            f"`{row.found}`" if row and row.found else "no" if row else "not tried"
            for row in (old.get(name), new.get(name))
        ]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    lost = [name for name, row in sorted(old.items()) if row.found and not (name in new and new[name].found)]
    return "\n".join(lines), lost


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
