"""``kvasir bench``: the bundled model with every switch on and off, and known shapes with random weights."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch

from engine.library.paths import bundled_model, cache_folder
from engine.loading.model import LoadModel
from engine.protocol import LoadOptions, Quantise
from engine.services.client import EngineClient, EngineError
from engine.services.experiments.machine import native_code
from engine.services.experiments.measures.cache import measure_cache
from engine.services.experiments.measures.cost import CostFigures, measure_cost
from engine.services.experiments.measures.hits import measure_hit_of_shape, measure_saved
from engine.services.experiments.measures.scheduling import measure_scheduling
from engine.services.experiments.measures.speculation import TOKENS, measure_speculation
from engine.services.experiments.measures.switches import BundledFigures, measure_bundled
from engine.services.experiments.measures.throughput import BATCHES, CPU_BATCHES, ShapeFigures, measure_shape
from engine.services.experiments.reports.cache import CacheFigures
from engine.services.experiments.reports.scheduling import SchedulingFigures
from engine.services.experiments.reports.speculation import SpeculationFigures
from engine.services.experiments.reports.tables import say, show_line
from engine.services.experiments.workloads.shapes import SHAPES, Shape

QUESTIONS = ("What is a page?", "Why is decoding bound by memory?", "What does speculation do?")
ReportT = TypeVar("ReportT", bound="Report")


class Report(msgspec.Struct):
    """All figures of one run, with what they were taken on."""

    machine: str
    threads: int
    torch: str
    bundled: BundledFigures | None = None
    cache: CacheFigures | None = None
    cost: CostFigures | None = None
    speculation: SpeculationFigures | None = None
    scheduling: SchedulingFigures | None = None
    shapes: list[ShapeFigures] = []

    @classmethod
    def begun(cls: type[ReportT], threads: int) -> ReportT:
        """A report of this machine, whose torch is told to take so many threads; 0: as many as it likes."""
        if threads:
            torch.set_num_threads(threads)
        machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {native_code()}"
        gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
        return cls(machine + gpu, torch.get_num_threads(), str(torch.__version__))

    def fill(self, measured: Iterable[tuple[str, Any]], json_file: Path | None = None) -> None:
        """Take in fields and their figures, print each as it comes, and write all so far to ``json_file``: a later
        failure loses nothing."""

        def keep() -> None:
            if json_file is not None:
                json_file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

        self._show_machine()
        keep()
        for field, figures in measured:
            if isinstance(getattr(self, field), list):
                getattr(self, field).append(figures)
            else:
                setattr(self, field, figures)
            figures.show()
            keep()

    def show(self) -> None:
        """Print all tables again."""
        self._show_machine()
        for field in self.__struct_fields__[3:]:
            found = getattr(self, field)
            for figures in found if isinstance(found, list) else [found]:
                if figures is not None:
                    figures.show()

    def _show_machine(self) -> None:
        show_line(f"{self.machine}, {self.threads} threads, torch {self.torch}")


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements to take, and how often, as the help of ``kvasir bench`` explains them.

    ``model`` None is the bundled one, which brings its own draft model. ``shapes`` None is what suits the device.
    ``tokens`` None is 128 for a shape, 64 for speculation, 96 for a switch. ``threads`` 0 is as many as PyTorch takes.
    """

    switches: bool = True
    shapes: Sequence[Shape] | None = None
    rounds: int = 5
    threads: int = 0
    model: Path | None = None
    tokens: int | None = None
    quantise: Quantise = "none"
    cache: bool = False
    cost: bool = False
    speculation: bool = False
    scheduling: bool = False
    draft: str | None = None

    def load(self, draft: str | None = None) -> LoadModel:
        """Build the command that loads the model; ``draft`` None is the draft model that the bundled one brings."""
        options = LoadOptions(quantise=self.quantise)
        if self.model is not None:
            return LoadModel(str(self.model), draft or "", options)
        known = bundled_model()
        return LoadModel(known.path, known.draft if draft is None else draft, options)


def run(asked: BenchOptions, json_file: Path | None = None) -> Report:
    """Measure, print tables on standard output as they are filled, and write the figures to ``json_file``."""
    report = Report.begun(asked.threads)
    report.fill(chain(_on_model(asked), _on_shapes(asked)), json_file)
    return report


def _on_model(asked: BenchOptions) -> Iterator[tuple[str, Any]]:
    """Yield the measurements on an existing model: fields of the report, and figures that have a method ``show``."""
    rounds = asked.rounds
    if asked.switches:
        yield "bundled", measure_bundled(asked.load(), QUESTIONS, tokens=asked.tokens or 96, rounds=rounds)
    if asked.cache:
        yield "cache", _measure_traces(asked)
    if asked.cost:
        with loaded(asked.load("")) as client:
            costs = measure_cost(client)
        yield "cost", costs
    if asked.speculation:
        with loaded(asked.load(asked.draft)) as client:
            yield "speculation", measure_speculation(client, rounds, asked.tokens or TOKENS)
    if asked.scheduling:
        with loaded(asked.load("")) as client:
            yield "scheduling", measure_scheduling(client)


def _on_shapes(asked: BenchOptions) -> Iterator[tuple[str, ShapeFigures]]:
    """Known shapes with random weights."""
    batches, tokens = BATCHES if torch.cuda.is_available() else CPU_BATCHES, asked.tokens or 128
    for shape in usual_shapes() if asked.shapes is None else asked.shapes:
        yield "shapes", measure_shape(shape, files_folder(), rounds=asked.rounds, batches=batches, decode_tokens=tokens)


def usual_shapes() -> list[Shape]:
    """Those that suit the device."""
    return list(SHAPES.values()) if torch.cuda.is_available() else [SHAPES["1b"]]


def files_folder() -> Path:
    """Where models of random weights are made, once."""
    return cache_folder() / "bench"


@contextmanager
def loaded(load: LoadModel) -> Iterator[EngineClient]:
    say(f"loading {load.path}")
    with EngineClient() as client:
        client.load(*load)
        yield client


def _measure_traces(asked: BenchOptions) -> CacheFigures:
    """The parts of the cache on traces that share text, with the model, and without its draft.

    Where its context is too short for a prefix of 4,000 tokens, that is measured on random weights.
    """
    load = asked.load("")
    with loaded(load) as client:
        figures = measure_cache(client, asked.rounds)
    hit = figures.hit or measure_hit_of_shape(files_folder(), asked.rounds)
    try:
        saved = measure_saved(load, asked.rounds)
        return msgspec.structs.replace(figures, hit=hit, saved=saved)
    except EngineError as error:
        return msgspec.structs.replace(figures, hit=hit, absent=[*figures.absent, f"a chat after a restart: {error}"])
