"""The figures of ``kvasir bench --speculation`` as tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from engine.bench.speculation.figures import AssistedRow, SpeculationFigures, Spread, TextFigures, VerifyRow, WayRow

DEPTHS = 8
"""The depths that are shown; the file of figures has all."""


def show_speculation(figures: SpeculationFigures, console: Console) -> None:
    companions = f" with {figures.draft}" if figures.draft else ""
    console.print(
        f"{figures.model}{companions}, {figures.dtype} on {figures.device}: speculation and plain decoding in "
        f"{figures.rounds} interleaved rounds; a plain step takes {figures.plain_step_ms:.2f} ms"
    )
    for text in figures.texts:
        _show_text(text, [row for row in figures.assisted if row.text == text.title], console)
    _show_verify(figures.verify, console)
    for over in figures.overhead:
        console.print(
            f"auto compared with off on {over.text}, {over.batch} at once: {over.speed:.0f} and {over.plain:.0f} "
            f"tokens/s, ratio {ratio(over.ratio)}, drafting in {over.drafting:.0%} of the steps"
        )
    for line in figures.absent:
        console.print(f"left out: {line}")
    for line in figures.conclusions:
        console.print(line)


def _show_text(text: TextFigures, assisted: list[AssistedRow], console: Console) -> None:
    table = Table(
        title=f"{text.title}: {text.prompts} prompts, {text.tokens:,} tokens; accepted in % of steps, "
        "(of those reached); costs in plain steps"
    )
    table.add_column("draft method", no_wrap=True)
    for column in (
        "tokens/s (plain)",
        "speed-up (quarters)",
        "formula",
        "per step",
        "accepted by depth",
        "pass, check (rows)",
        "text",
    ):
        table.add_column(column)
    for row in text.rows:
        table.add_row(
            row.title,
            f"{row.speed:.0f} ({row.plain:.0f})",
            ratio(row.speedup),
            "" if row.predicted is None else f"{row.predicted:.2f}",
            f"{row.tokens_per_step:.2f}",
            _by_depth(row),
            _costs(row),
            same(row),
        )
    for other in assisted:
        equal = "same" if other.equal == other.answers else f"{other.equal}/{other.answers} same"
        table.add_row(other.title, "", ratio(other.speedup), "", "", "", "", equal)
    console.print(table)


def ratio(spread: Spread) -> str:
    """Median and quartiles."""
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def same(row: WayRow) -> str:
    """Whether speculation changed the text; a near-tie is decided by the last bits of the fast arithmetic."""
    if row.exact < row.exact_answers:
        return f"DIFFERS in {row.exact_answers - row.exact} of {row.exact_answers}"
    near = row.answers - row.equal
    if near:
        return f"near-tie in {near} of {row.answers}"
    return "same"


def _by_depth(row: WayRow) -> str:
    if not row.accepted:
        return ""
    shown = " ".join(f"{100 * share:.0f}" for share in row.accepted[:DEPTHS])
    return f"{shown}{' ..' * (len(row.accepted) > DEPTHS)} ({row.acceptance:.0%})"


def _costs(row: WayRow) -> str:
    if not row.drafting:
        return "never drafted"
    draft = f"{row.passes:.0f} x {row.draft_pass:.2f}" if row.passes else "0"
    return f"{draft}, {row.verify_step:.2f} ({row.verify_rows:.0f})"


def _show_verify(rows: list[VerifyRow], console: Console) -> None:
    counts = sorted({row.rows for row in rows})
    table = Table(title="the model's forward by rows of each answer, compared with one row")
    table.add_column("answers")
    table.add_column("one row, ms")
    for count in counts[1:]:
        table.add_column(f"{count} rows")
    for batch in sorted({row.batch for row in rows}):
        own = {row.rows: row for row in rows if row.batch == batch}
        table.add_row(str(batch), f"{own[counts[0]].ms:.2f}", *(f"{own[count].ratio:.2f}" for count in counts[1:]))
    if rows:
        console.print(table)
