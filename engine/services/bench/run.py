"""``kvasir bench``: the bundled model with every switch on and off; known shapes alone and next to other programs."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.library.paths import bundled_model, cache_folder
from engine.loading.model import LoadModel, release_memory
from engine.protocol import LoadOptions, Quantise
from engine.services.bench.cache.figures import CacheFigures
from engine.services.bench.cache.hits import measure_hit_of_shape, measure_saved
from engine.services.bench.cache.suite import measure_cache
from engine.services.bench.cost import CostFigures, measure_cost
from engine.services.bench.measure import native_code
from engine.services.bench.null import NullFigures, measure_null
from engine.services.bench.peers.binaries import built_folders
from engine.services.bench.peers.cases import FULL, QUICK
from engine.services.bench.peers.compare import PeerComparison, compare, named_programs
from engine.services.bench.peers.formats import programs_on_formats
from engine.services.bench.peers.programs import COMPARED
from engine.services.bench.peers.suite import FORMATS, PeersFigures, measure_peers
from engine.services.bench.shapes import PEER_SHAPES, SHAPES, Shape
from engine.services.bench.soak.figures import SoakFigures
from engine.services.bench.soak.suite import Soak
from engine.services.bench.speculation.assisted import measure_assisted
from engine.services.bench.speculation.figures import AssistedFigures, SpeculationFigures
from engine.services.bench.speculation.suite import TOKENS, measure_speculation
from engine.services.bench.speculation.texts import texts
from engine.services.bench.switches import BundledFigures, measure_bundled
from engine.services.bench.tables import say, show_absent, show_line
from engine.services.bench.throughput import BATCHES, CPU_BATCHES, ShapeFigures, measure_shape
from engine.services.client import EngineClient, EngineError

QUESTIONS = ("What is a page?", "Why is decoding bound by memory?", "What does speculation do?")


class Report(msgspec.Struct):
    """All figures of one run, with what they were taken on."""

    machine: str
    threads: int
    torch: str
    bundled: BundledFigures | None = None
    cache: CacheFigures | None = None
    cost: CostFigures | None = None
    null: NullFigures | None = None
    soak: SoakFigures | None = None
    speculation: SpeculationFigures | None = None
    assisted: AssistedFigures | None = None
    shapes: list[ShapeFigures] = []
    comparisons: list[PeerComparison] = []
    peers: list[PeersFigures] = []

    def show(self) -> None:
        """Print all tables again."""
        show_line(f"{self.machine}, {self.threads} threads, torch {self.torch}")
        for field in self.__struct_fields__[3:]:
            found = getattr(self, field)
            for figures in found if isinstance(found, list) else [found]:
                if figures is not None:
                    figures.show()


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements to take, and how often, as the help of ``kvasir bench`` explains them.

    ``model`` None is the bundled one, which brings its own draft model. ``shapes`` None is what suits the device.
    ``tokens`` None is 128 for a shape, 64 in each format or for speculation, 96 for a switch. ``formats`` are names of
    :data:`engine.services.bench.peers.formats.KNOWN`. ``threads`` 0 is as many as PyTorch takes. ``null`` counts
    comparisons, ``soak`` seconds. With ``peers``, folders of built binaries, ``shapes`` None is all of
    :data:`engine.services.bench.shapes.PEER_SHAPES`; ``quick`` measures less of the first one.
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
    peers: tuple[Path, ...] = ()
    quick: bool = False

    def load(self, draft: str | None = None) -> LoadModel:
        """Build the command that loads the model; ``draft`` None is the draft model that the bundled one brings."""
        options = LoadOptions(quantise=self.quantise)
        if self.model is not None:
            return LoadModel(str(self.model), draft or "", options)
        known = bundled_model()
        return LoadModel(known.path, known.draft if draft is None else draft, options)


def run(asked: BenchOptions, json_file: Path | None = None) -> Report:
    """Measure, print tables on standard output as they are filled, and write the figures to ``json_file``.

    They are written as soon as they are measured: a later failure loses nothing.
    """
    if asked.threads:
        torch.set_num_threads(asked.threads)

    def keep() -> None:
        if json_file is not None:
            json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))

    report = Report(_machine(), torch.get_num_threads(), str(torch.__version__))
    show_line(f"{report.machine}, {report.threads} threads, torch {report.torch}")
    keep()
    for measure in (_on_model, _on_peers if asked.peers else _on_shapes):
        for field, figures in measure(asked):
            if isinstance(getattr(report, field), list):
                getattr(report, field).append(figures)
            else:
                setattr(report, field, figures)
            figures.show()
            keep()
    return report


def _machine() -> str:
    machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {native_code()}"
    return f"{machine}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else machine


def _on_model(asked: BenchOptions) -> Iterator[tuple[str, Any]]:
    """Yield the measurements on an existing model: fields of the report, and figures that have a method ``show``."""
    rounds = asked.rounds
    if asked.switches:
        yield "bundled", measure_bundled(asked.load(), QUESTIONS, tokens=asked.tokens or 96, rounds=rounds)
    if asked.cache:
        yield "cache", _measure_traces(asked)
    if asked.cost:
        with _loaded(asked.load("")) as client:
            costs = measure_cost(client)
        yield "cost", costs
    if asked.null:
        yield "null", measure_null(asked.load(), QUESTIONS[0], asked.null)
    if asked.soak:
        with Soak() as soaking:
            soaking.load(asked.load())
            soaked = soaking.run(asked.soak)
        yield "soak", soaked
    if asked.speculation:
        tokens, load = asked.tokens or TOKENS, asked.load(asked.draft)
        with _loaded(load) as client:
            yield "speculation", measure_speculation(client, rounds, tokens)
            model = client.model
            target = None if model.files is None else model.files.checkpoint
            yield "assisted", measure_assisted(target, load.draft, texts(model, tokens), rounds)


def _on_shapes(asked: BenchOptions) -> Iterator[tuple[str, Any]]:
    """Known shapes with random weights: in each format, or by themselves and next to other programs."""
    cuda = torch.cuda.is_available()
    shapes = asked.shapes
    if shapes is None:
        shapes = tuple(SHAPES.values()) if cuda else (SHAPES["1b"],)
    root, threads = cache_folder() / "bench", torch.get_num_threads()
    tokens = asked.tokens or (64 if asked.formats else 128)
    for shape in shapes:
        if asked.formats:
            programs = programs_on_formats(asked.formats, shape, root)
        else:
            programs = named_programs(asked.programs, shape, root)
            batches = BATCHES if cuda else CPU_BATCHES
            yield "shapes", measure_shape(shape, root, rounds=asked.rounds, batches=batches, decode_tokens=tokens)
            release_memory()  # other programs are measured next
        yield "comparisons", compare(shape, programs, rounds=asked.rounds, threads=threads, decode_tokens=tokens)


def _on_peers(asked: BenchOptions) -> Iterator[tuple[str, PeersFigures]]:
    """Each shape in each format on the binaries of the folders, where there are any."""
    folders, absent = built_folders(asked.peers)
    show_absent(absent)
    if not folders:
        return
    shapes = list(PEER_SHAPES.values())[: 1 if asked.quick else None] if asked.shapes is None else asked.shapes
    plan = QUICK if asked.quick else FULL
    plan = plan._replace(steps=asked.tokens or plan.steps)
    root, threads = cache_folder() / "bench", torch.get_num_threads()
    for shape in shapes:
        for kind in asked.formats or FORMATS:
            figures = measure_peers(shape, kind.upper(), root, folders, plan, rounds=asked.rounds, threads=threads)
            yield "peers", figures


@contextmanager
def _loaded(load: LoadModel) -> Iterator[EngineClient]:
    say(f"loading {load.path}")
    with EngineClient() as client:
        client.load(*load)
        yield client


def _measure_traces(asked: BenchOptions) -> CacheFigures:
    """The parts of the cache on traces that share text, with the model, and without its draft.

    Where its context is too short for a prefix of 4,000 tokens, that is measured on random weights.
    """
    load = asked.load("")
    with _loaded(load) as client:
        figures = measure_cache(client, asked.rounds)
    hit = figures.hit or measure_hit_of_shape(cache_folder() / "bench", asked.rounds)
    try:
        saved = measure_saved(load, asked.rounds)
        return msgspec.structs.replace(figures, hit=hit, saved=saved)
    except EngineError as error:
        return msgspec.structs.replace(figures, hit=hit, absent=[*figures.absent, f"a chat after a restart: {error}"])
