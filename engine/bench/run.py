"""``kvasir bench``: the bundled model with every switch on and off; known shapes alone and beside other programs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from rich.console import Console
from rich.table import Table

from engine.bench.checkpoint import SHAPES, Shape
from engine.bench.client import EngineClient
from engine.bench.compare import Comparison, compare
from engine.bench.measure import PeakMemory, anonymous_bytes, timed
from engine.bench.programs import PROGRAMS
from engine.bench.switches import SwitchRow, measure_switches
from engine.bench.throughput import BATCHES, CPU_BATCHES, ShapeFigures, measure_shape
from engine.config import bundled_model, cache_folder
from engine.core.loading import release_memory
from engine.protocol import ChatMessage, LoadOptions, Quantise

QUESTIONS = (
    "What is a page?",
    "Why is decoding bound by memory?",
    "What does speculation do?",
)
MB, GB = 1e6, 1e9


class BundledFigures(msgspec.Struct, frozen=True):
    """The model that ships with the program: seconds and bytes."""

    name: str
    load_seconds: float
    peak: int
    rest: int
    switches: list[SwitchRow]


class Report(msgspec.Struct, frozen=True):
    """All figures of one run, with what they were taken on."""

    machine: str
    threads: int
    torch: str
    bundled: BundledFigures | None
    shapes: list[ShapeFigures]
    comparisons: list[Comparison]


def run(
    *,
    switches: bool = True,
    shapes: Sequence[Shape] | None = None,
    programs: tuple[str, ...] = tuple(PROGRAMS),
    rounds: int = 5,
    threads: int | None = None,
    model: Path | None = None,
    json_file: Path | None = None,
    tokens: int | None = None,
    quantise: Quantise = "none",
) -> Report:
    """Measure, print tables on standard output as they are filled, and write the figures to ``json_file``.

    ``shapes`` None is what suits the device: 1B on a CPU, 1B and 8B on a GPU. ``tokens`` are those written in each
    measurement of a shape (None: 128) or of a switch (96).
    """
    console = Console()
    threads = threads or torch.get_num_threads()
    torch.set_num_threads(threads)

    def say(line: str) -> None:
        Console(stderr=True).print(line, style="dim")

    report = Report(_machine(), threads, str(torch.__version__), None, [], [])
    console.print(f"{report.machine}, {report.threads} threads, torch {report.torch}")

    def keep(**parts: Any) -> None:
        """Written as soon as measured: a later failure loses nothing."""
        nonlocal report
        report = msgspec.structs.replace(report, **parts)
        if json_file is not None:
            json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))

    keep()
    if switches:
        bundled = measure_bundled(model, rounds, say, tokens or 96, quantise)
        _show_bundled(bundled, console)
        keep(bundled=bundled)
    if shapes is None:
        shapes = tuple(SHAPES.values()) if torch.cuda.is_available() else (SHAPES["1b"],)
    root, count = cache_folder() / "bench", tokens or 128
    for shape in shapes:
        batches = BATCHES if torch.cuda.is_available() else CPU_BATCHES
        figures = measure_shape(shape, root, rounds=rounds, batches=batches, decode_tokens=count, say=say)
        release_memory()
        _show_shape(figures, console)
        keep(shapes=[*report.shapes, figures])
        comparison = compare(shape, programs, root, rounds=rounds, threads=threads, decode_tokens=count, say=say)
        _show_comparison(comparison, console)
        keep(comparisons=[*report.comparisons, comparison])
    return report


def _machine() -> str:
    machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return f"{machine}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else machine


def measure_bundled(
    model: Path | None, rounds: int, say: Callable[[str], None], tokens: int, quantise: Quantise = "none"
) -> BundledFigures:
    """Load time, memory and every switch of ``model`` (None: the bundled one with its draft)."""
    known = bundled_model()
    path, draft = (known.path, known.draft) if model is None else (str(model), "")
    say(f"loading {path}")
    bare = anonymous_bytes()
    with EngineClient() as client:
        with PeakMemory() as memory, timed() as load:
            card, _ = client.load(path, draft, LoadOptions(quantise=quantise))
        rest = anonymous_bytes()
        loaded = client.engine.loaded
        assert loaded is not None
        prompts = [loaded.encode_prompt([ChatMessage(role="user", content=text)]) for text in QUESTIONS]
        length = min(1024, card.context - 128)
        long_prompt = [token for _ in range(length) for token in prompts[0]][:length]
        rows = measure_switches(client, prompts, long_prompt, tokens=tokens, rounds=rounds, say=say)
    return BundledFigures(card.name, load.seconds, memory.peak - bare, rest - bare, rows)


def _show_bundled(figures: BundledFigures, console: Console) -> None:
    table = Table(
        title=f"{figures.name}: loaded in {figures.load_seconds:.2f} s, "
        f"{figures.rest / MB:.0f} MB at rest, {figures.peak / MB:.0f} MB at peak"
    )
    for column in ("switch", "values", "tokens/s", "ratio", "first token, ms", "text", "its own figure"):
        table.add_column(column)
    for row in figures.switches:
        table.add_row(
            row.title,
            " → ".join(_word(value) for value in row.values),
            f"{row.speed[0]:.0f} → {row.speed[1]:.0f}",
            f"{row.ratio:.2f}",
            f"{row.first_ms[0]:.0f} → {row.first_ms[1]:.0f}",
            "same" if row.same else "differs",
            row.shown,
        )
    console.print(table)


def _show_shape(figures: ShapeFigures, console: Console) -> None:
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


def _show_comparison(comparison: Comparison, console: Console) -> None:
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
            f"{row.prefill_ratio:.2f}",
            f"{row.decode_ratio:.2f}",
            f"{row.load.seconds:.1f}",
            f"{row.load.rest / MB:.0f}",
            f"{row.load.peak / MB:.0f}",
        )
    console.print(table)
    for line in comparison.absent:
        console.print(f"left out: {line}")


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
