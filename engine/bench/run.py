"""``kvasir bench``: the bundled model with every switch on and off; known shapes alone and next to other programs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from rich.console import Console

from engine.bench.cache.figures import CacheFigures
from engine.bench.cache.hits import measure_hit_of_shape, measure_saved
from engine.bench.cache.suite import measure_cache
from engine.bench.cache.tables import show_cache, show_cost
from engine.bench.client import EngineClient, EngineError
from engine.bench.cost import CostFigures, measure_cost
from engine.bench.measure import PeakMemory, anonymous_bytes, timed
from engine.bench.null import NullFigures, measure_null, show_null
from engine.bench.peers.compare import Comparison, compare
from engine.bench.peers.formats import FormatFigures, measure_formats
from engine.bench.peers.programs import COMPARED
from engine.bench.shapes import SHAPES, Shape
from engine.bench.soak.figures import SoakFigures, show_soak
from engine.bench.soak.suite import Soak
from engine.bench.speculation.assisted import measure_assisted
from engine.bench.speculation.figures import SpeculationFigures
from engine.bench.speculation.suite import TOKENS, measure_speculation
from engine.bench.speculation.tables import show_speculation
from engine.bench.speculation.texts import texts
from engine.bench.switches import BundledFigures, measure_switches
from engine.bench.tables import show_bundled, show_comparison, show_formats, show_shape
from engine.bench.throughput import BATCHES, CPU_BATCHES, ShapeFigures, measure_shape
from engine.loading.model import release_memory
from engine.native.library import find as native_library
from engine.paths import bundled_model, cache_folder
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
    null: NullFigures | None = None
    soak: SoakFigures | None = None


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and how often. ``model`` None is the bundled one, which brings its own draft model.

    ``shapes`` None is what suits the device: 1B on a CPU, 1B and 8B on a GPU. ``tokens`` are those written in each
    measurement of a shape (None: 128) or of a switch (96). With ``formats`` (names of
    :data:`engine.bench.peers.formats.KNOWN`) the shapes are measured in those instead of by themselves. ``cache``: the
    parts of the cache on traces; ``cost``: what its approximations cost in quality; ``speculation``: every draft
    method. ``threads`` 0 is as many as PyTorch takes. ``null``: the number of comparisons of a setting with itself.
    ``soak``: seconds of random use.
    """

    switches: bool = True
    shapes: Sequence[Shape] | None = None
    programs: tuple[str, ...] = COMPARED
    rounds: int = 5
    threads: int = 0
    model: Path | None = None
    tokens: int | None = None
    formats: tuple[str, ...] = ()
    quantise: Quantise = "none"
    cache: bool = False
    cost: bool = False
    speculation: bool = False
    draft: str | None = None
    null: int = 0
    soak: float = 0.0


class _Measured(NamedTuple):
    """Figures for a field of the report, and how they are shown; None while more of them are to come."""

    field: str
    figures: Any
    show: Callable[[Console], None] | None


def run(asked: BenchOptions, json_file: Path | None = None) -> Report:
    """Measure, print tables on standard output as they are filled, and write the figures to ``json_file``.

    They are written as soon as they are measured: a later failure loses nothing.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE)
    if asked.threads:
        torch.set_num_threads(asked.threads)

    def say(line: str) -> None:
        Console(stderr=True).print(line, style="dim")

    def keep() -> None:
        if json_file is not None:
            json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))

    report = Report(_machine(), torch.get_num_threads(), str(torch.__version__), None, [], [])
    console.print(f"{report.machine}, {report.threads} threads, torch {report.torch}")
    keep()
    for field, figures, show in chain(_on_model(asked, say), _on_shapes(asked, say)):
        report = msgspec.structs.replace(report, **{field: figures})
        if show is not None:
            show(console)
        keep()
    return report


def _on_model(asked: BenchOptions, say: Callable[[str], None]) -> Iterator[_Measured]:
    """What is measured on a model that exists, in the order of the report."""
    model, rounds, quantise = asked.model, asked.rounds, asked.quantise
    if asked.switches:
        bundled = measure_bundled(model, rounds, say, asked.tokens or 96, quantise)
        yield _Measured("bundled", bundled, partial(show_bundled, bundled))
    if asked.cache:
        traced = measure_traces(model, rounds, say, quantise)
        yield _Measured("cache", traced, partial(show_cache, traced))
    if asked.cost:
        costs = measure_costs(model, say, quantise)
        yield _Measured("cost", costs, partial(show_cost, costs))
    if asked.null:
        itself = measure_null(*_with_draft(model), LoadOptions(quantise=quantise), QUESTIONS[0], asked.null, say)
        yield _Measured("null", itself, partial(show_null, itself))
    if asked.soak:
        with Soak() as soaking:
            soaking.load(*_with_draft(model), LoadOptions(quantise=quantise))
            soaked = soaking.run(asked.soak, say)
        yield _Measured("soak", soaked, partial(show_soak, soaked))
    if asked.speculation:
        for drafted in measure_drafting(model, asked.draft, rounds, say, asked.tokens or TOKENS, quantise):
            yield _Measured("speculation", drafted, None)
        yield _Measured("speculation", drafted, partial(show_speculation, drafted))


def _on_shapes(asked: BenchOptions, say: Callable[[str], None]) -> Iterator[_Measured]:
    """Known shapes with random weights: in each format, or by themselves and next to other programs."""
    shapes = asked.shapes
    if shapes is None:
        shapes = tuple(SHAPES.values()) if torch.cuda.is_available() else (SHAPES["1b"],)
    root = cache_folder() / "bench"
    threads = torch.get_num_threads()
    formats: list[FormatFigures] = []
    alone: list[ShapeFigures] = []
    compared: list[Comparison] = []
    for shape in shapes:
        tokens = asked.tokens or (64 if asked.formats else 128)
        counts = {"rounds": asked.rounds, "threads": threads, "decode_tokens": tokens}
        if asked.formats:
            formats = [*formats, measure_formats(shape, asked.formats, root, **counts, say=say)]
            yield _Measured("formats", formats, partial(show_formats, formats[-1]))
            continue
        alone = [*alone, _shape(shape, root, asked.rounds, tokens, say)]
        yield _Measured("shapes", alone, partial(show_shape, alone[-1]))
        compared = [*compared, compare(shape, asked.programs, root, **counts, say=say)]
        yield _Measured("comparisons", compared, partial(show_comparison, compared[-1]))


def _shape(shape: Shape, root: Path, rounds: int, tokens: int, say: Callable[[str], None]) -> ShapeFigures:
    """The shape by itself; its memory is free again before other programs are measured."""
    batches = BATCHES if torch.cuda.is_available() else CPU_BATCHES
    figures = measure_shape(shape, root, rounds=rounds, batches=batches, decode_tokens=tokens, say=say)
    release_memory()
    return figures


def _machine() -> str:
    library = native_library()[0]
    native = f"native code in {library.instructions}" if library else "no native code"
    machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {native}"
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


def measure_drafting(
    model: Path | None,
    draft: str | None,
    rounds: int,
    say: Callable[[str], None],
    tokens: int,
    quantise: Quantise = "none",
) -> Iterator[SpeculationFigures]:
    """Every draft method of ``model`` (None: the bundled one), then transformers' on the same models."""
    path = _path(model)
    if draft is None:
        draft = bundled_model().draft if model is None else ""
    say(f"loading {path}")
    with EngineClient() as client:
        client.load(path, draft, LoadOptions(quantise=quantise))
        figures = measure_speculation(client, rounds=rounds, tokens=tokens, say=say)
        yield figures
        loaded = client.model
        rows, absent = measure_assisted(loaded.checkpoint, draft, texts(loaded, tokens), rounds, say)
    yield msgspec.structs.replace(figures, assisted=rows, absent=[*figures.absent, *absent])


def _path(model: Path | None) -> str:
    return bundled_model().path if model is None else str(model)


def _with_draft(model: Path | None) -> tuple[str, str]:
    known = bundled_model()
    return (known.path, known.draft) if model is None else (str(model), "")


def measure_bundled(
    model: Path | None, rounds: int, say: Callable[[str], None], tokens: int, quantise: Quantise = "none"
) -> BundledFigures:
    """Load time, memory and every switch of ``model`` (None: the bundled one with its draft)."""
    path, draft = _with_draft(model)
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
