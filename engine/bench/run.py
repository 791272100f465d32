"""``kvasir bench``: the bundled model with every switch on and off; known shapes alone and beside other programs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from rich.console import Console

from engine.bench.cache import measure_cache
from engine.bench.cache_figures import CacheFigures
from engine.bench.cache_tables import show_cache, show_cost
from engine.bench.client import EngineClient, EngineError
from engine.bench.compare import Comparison, compare
from engine.bench.cost import CostFigures, measure_cost
from engine.bench.formats import FormatFigures, measure_formats
from engine.bench.hits import measure_hit_of_shape, measure_saved
from engine.bench.measure import PeakMemory, anonymous_bytes, timed
from engine.bench.programs import COMPARED
from engine.bench.shapes import SHAPES, Shape
from engine.bench.speculation import TOKENS, measure_speculation
from engine.bench.speculation_assisted import measure_assisted
from engine.bench.speculation_figures import SpeculationFigures
from engine.bench.speculation_steps import Watch
from engine.bench.speculation_tables import show_speculation
from engine.bench.speculation_texts import texts
from engine.bench.switches import BundledFigures, measure_switches
from engine.bench.tables import show_bundled, show_comparison, show_formats, show_shape
from engine.bench.throughput import BATCHES, CPU_BATCHES, ShapeFigures, measure_shape
from engine.config import bundled_model, cache_folder
from engine.core.loading import release_memory
from engine.protocol import ChatMessage, LoadOptions, Quantise

_PAGE = 130
"""Columns of the tables in a file or a pipe."""
QUESTIONS = (
    "What is a page?",
    "Why is decoding bound by memory?",
    "What does speculation do?",
)


class Report(msgspec.Struct, frozen=True):
    """All figures of one run, with what they were taken on."""

    machine: str
    threads: int
    torch: str
    bundled: BundledFigures | None
    shapes: list[ShapeFigures]
    comparisons: list[Comparison]
    formats: list[FormatFigures] = []
    cache: CacheFigures | None = None
    cost: CostFigures | None = None
    speculation: SpeculationFigures | None = None


def run(
    *,
    switches: bool = True,
    shapes: Sequence[Shape] | None = None,
    programs: tuple[str, ...] = COMPARED,
    rounds: int = 5,
    threads: int | None = None,
    model: Path | None = None,
    json_file: Path | None = None,
    tokens: int | None = None,
    formats: tuple[str, ...] = (),
    quantise: Quantise = "none",
    cache: bool = False,
    cost: bool = False,
    speculation: bool = False,
    draft: str | None = None,
) -> Report:
    """Measure, print tables on standard output as they are filled, and write the figures to ``json_file``.

    ``shapes`` None is what suits the device: 1B on a CPU, 1B and 8B on a GPU. ``tokens`` are those written in each
    measurement of a shape (None: 128) or of a switch (96). With ``formats`` (names of
    :data:`engine.bench.formats.KNOWN`) the shapes are measured in those instead of by themselves. ``cache``: the parts
    of the cache on traces, with ``model`` or the bundled one; ``cost``: what its approximations cost in quality.
    ``speculation``: every way to guess, with ``draft`` beside the model (None: the bundled one brings its own).
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE)
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
        show_bundled(bundled, console)
        keep(bundled=bundled)
    if cache:
        traced = measure_traces(model, rounds, say, quantise)
        show_cache(traced, console)
        keep(cache=traced)
    if cost:
        costs = measure_costs(model, say, quantise)
        show_cost(costs, console)
        keep(cost=costs)
    if speculation:
        for guessed in measure_guessing(model, draft, rounds, say, tokens or TOKENS, quantise):
            keep(speculation=guessed)
        show_speculation(guessed, console)
    if shapes is None:
        shapes = tuple(SHAPES.values()) if torch.cuda.is_available() else (SHAPES["1b"],)
    root = cache_folder() / "bench"
    for shape in shapes:
        if formats:
            measured = measure_formats(
                shape, formats, root, rounds=rounds, threads=threads, decode_tokens=tokens or 64, say=say
            )
            show_formats(measured, console)
            keep(formats=[*report.formats, measured])
            continue
        figures = _shape(shape, root, rounds, tokens or 128, say)
        show_shape(figures, console)
        keep(shapes=[*report.shapes, figures])
        comparison = compare(
            shape, programs, root, rounds=rounds, threads=threads, decode_tokens=tokens or 128, say=say
        )
        show_comparison(comparison, console)
        keep(comparisons=[*report.comparisons, comparison])
    return report


def _shape(shape: Shape, root: Path, rounds: int, tokens: int, say: Callable[[str], None]) -> ShapeFigures:
    """The shape by itself; its memory is free again before other programs are measured."""
    batches = BATCHES if torch.cuda.is_available() else CPU_BATCHES
    figures = measure_shape(shape, root, rounds=rounds, batches=batches, decode_tokens=tokens, say=say)
    release_memory()
    return figures


def _machine() -> str:
    machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return f"{machine}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else machine


def measure_traces(
    model: Path | None, rounds: int, say: Callable[[str], None], quantise: Quantise = "none"
) -> CacheFigures:
    """The parts of the cache on traces that share text, with ``model`` (None: the bundled one, without its draft).

    Where its context is too short for a prefix of 4,000 tokens, that is measured on random weights.
    """
    path, options = _path(model), LoadOptions(quantise=quantise)
    say(f"loading {path}")
    with EngineClient() as client:
        client.load(path, "", options)
        figures = measure_cache(client, rounds=rounds, say=say)
    hit = figures.hit or measure_hit_of_shape(cache_folder() / "bench", rounds, say)
    try:
        return msgspec.structs.replace(figures, hit=hit, saved=measure_saved(path, options, rounds, say))
    except EngineError as error:
        return msgspec.structs.replace(figures, hit=hit, absent=[*figures.absent, f"a chat after a restart: {error}"])


def measure_costs(model: Path | None, say: Callable[[str], None], quantise: Quantise = "none") -> CostFigures:
    """What approximations of the cache cost ``model`` (None: the bundled one) on texts that it was not trained on."""
    path = _path(model)
    say(f"loading {path}")
    with EngineClient() as client:
        client.load(path, "", LoadOptions(quantise=quantise))
        return measure_cost(client, say=say)


def measure_guessing(
    model: Path | None,
    draft: str | None,
    rounds: int,
    say: Callable[[str], None],
    tokens: int,
    quantise: Quantise = "none",
) -> Iterator[SpeculationFigures]:
    """Every way to guess of ``model`` (None: the bundled one), then with transformers guessing on the same models."""
    path = _path(model)
    if draft is None:
        draft = bundled_model().draft if model is None else ""
    say(f"loading {path}")
    watch = Watch()
    with EngineClient(heard=watch.heard) as client:
        client.load(path, draft, LoadOptions(quantise=quantise))
        figures = measure_speculation(client, watch, rounds=rounds, tokens=tokens, say=say)
        yield figures
        loaded = client.model
        rows, absent = measure_assisted(loaded.checkpoint, draft, texts(loaded, tokens), rounds, say)
    yield msgspec.structs.replace(figures, assisted=rows, absent=[*figures.absent, *absent])


def _path(model: Path | None) -> str:
    return bundled_model().path if model is None else str(model)


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
        rows, absent = measure_switches(client, prompts, long_prompt, tokens=tokens, rounds=rounds, say=say)
    return BundledFigures(card.name, load.seconds, memory.peak - bare, rest - bare, rows, absent)
