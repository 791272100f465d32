"""The figures of ``kvasir bench`` as tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from engine.bench.peers.compare import Comparison
from engine.bench.peers.formats import FormatFigures
from engine.bench.switches import BundledFigures
from engine.bench.throughput import ShapeFigures

MB, GB = 1e6, 1e9


def show_bundled(figures: BundledFigures, console: Console) -> None:
    table = Table(
        title=f"{figures.name}: loaded in {figures.load_seconds:.2f} s, "
        f"{figures.rest / MB:.0f} MB at rest, {figures.peak / MB:.0f} MB at peak"
    )
    for column in ("switch", "values", "tokens/s", "ratio (range)", "first token, ms", "text", "its own figure"):
        table.add_column(column)
    for row in figures.switches:
        table.add_row(
            row.title,
            " → ".join(_word(value) for value in row.values),
            f"{row.speed[0]:.0f} → {row.speed[1]:.0f}",
            f"{row.ratio:.2f} ({row.interval[0]:.2f} to {row.interval[1]:.2f})",
            f"{row.first_ms[0]:.0f} → {row.first_ms[1]:.0f}",
            "same" if row.same else "differs",
            row.shown,
        )
    console.print(table)
    for line in figures.absent:
        console.print(f"left out: {line}")


def show_shape(figures: ShapeFigures, console: Console) -> None:
    peak = f", {figures.device_peak / GB:.1f} GB on the GPU at peak" if figures.device_peak else ""
    table = Table(
        title=f"{figures.shape}, int4 in groups of {figures.group}, random weights, {figures.dtype} on "
        f"{figures.device}: loaded in {figures.load_seconds:.1f} s, weights {figures.weights / GB:.2f} GB{peak}; "
        f"prompt of {figures.prompt_tokens}: {figures.prefill:.0f} tok/s; "
        f"memory reads {figures.bandwidth / GB:.0f} GB/s"
    )
    for column in (
        "listeners",
        "decode, tok/s",
        "step, ms",
        "of it host, ms",
        "read per token, MB",
        "of the bandwidth",
    ):
        table.add_column(column)
    for row in figures.batches:
        table.add_row(
            str(row.batch),
            f"{row.tokens_per_second:.1f}",
            f"{row.step_ms:.2f}",
            f"{row.host_ms:.2f}",
            f"{row.bytes_per_token / MB:.1f}",
            f"{row.bandwidth_share:.0%}",
        )
    console.print(table)
    console.print(f"linear layers: {', '.join(figures.paths)}")
    for notice in figures.notices:
        console.print(notice)


def show_comparison(comparison: Comparison, console: Console) -> None:
    table = Table(
        title=f"{comparison.shape}, random weights: prompt {comparison.prompt_tokens}, then "
        f"{comparison.decode_tokens} tokens; medians of {comparison.rounds} interleaved rounds"
    )
    for column in ("program", "prefill, tok/s", "decode, tok/s", "ours/theirs prefill", "ours/theirs decode"):
        table.add_column(column)
    for column in ("load, s", "at rest, MB", "at peak, MB"):
        table.add_column(column)
    for row in comparison.rows:
        table.add_row(
            row.program,
            f"{row.prefill:.0f}",
            f"{row.decode:.1f}",
            _ratio(row.prefill_ratio),
            _ratio(row.decode_ratio),
            f"{row.load.seconds:.1f}",
            f"{row.load.rest / MB:.0f}",
            f"{row.load.peak / MB:.0f}",
        )
    console.print(table)
    for line in comparison.absent:
        console.print(f"left out: {line}")


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def show_formats(figures: FormatFigures, console: Console) -> None:
    table = Table(
        title=f"{figures.shape} in each format, random weights: prompt {figures.prompt_tokens}, then "
        f"{figures.decode_tokens} tokens; medians of {figures.rounds} interleaved rounds"
    )
    for column in (
        "program and format",
        "file, MB",
        "load, s",
        "at rest, MB",
        "peak / rest",
        "prefill, tok/s",
        "decode, tok/s",
        "ours/theirs prefill",
        "ours/theirs decode",
    ):
        table.add_column(column)
    for row in figures.rows:
        own = row.figures
        table.add_row(
            own.program,
            f"{row.file_bytes / MB:.0f}",
            f"{own.load.seconds:.1f}",
            f"{own.load.rest / MB:.0f}",
            f"{own.load.peak / max(1, own.load.rest):.2f}",
            f"{own.prefill:.0f}",
            f"{own.decode:.1f}",
            _ratio(own.prefill_ratio),
            _ratio(own.decode_ratio),
        )
    console.print(table)
    _show_loads(figures, console)
    for line in figures.absent:
        console.print(f"left out: {line}")


def _show_loads(figures: FormatFigures, console: Console) -> None:
    """Show what loading the weights took in Kvasir, by part. The whole load takes longer: it includes a first pass."""
    for row in figures.rows:
        parts = row.figures.load.parts
        if parts:
            told = ", ".join(f"{what} {seconds:.2f}" for what, seconds in parts.items())
            console.print(f"{row.figures.program}: weights in {sum(parts.values()):.2f} s ({told})")
