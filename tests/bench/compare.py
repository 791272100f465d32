"""Programs with a model each, Kvasir among them: all loaded at once, run in turn, as ratios pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from engine.services.experiments.measures.timing import median_ratio
from engine.services.experiments.reports.tables import MB, say, show_absent, show_line, show_table
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from tests.bench.folders import nf4_folder
from tests.bench.gguf_files import gguf_file
from tests.bench.programs import PROGRAMS, RunSpeed
from tests.bench.worker import LoadFigures, ProgramWorker, missing

_ROOM = 1.3
"""The memory of a process, as a rough multiple of its model's file."""


class Entrant(NamedTuple):
    """``program`` is a key of `programs.PROGRAMS`; ``model`` returns the path of its files.

    Each is compared with the first of ``ours`` (Kvasir) that runs on the same ``format``.
    """

    title: str
    program: str
    model: Callable[[], Path]
    ours: bool
    format: str = ""


class ProgramFigures(msgspec.Struct, frozen=True):
    """One program's medians: tokens per second, bytes, seconds.

    Ratios are Kvasir's speed over this program's; None where Kvasir did not run. ``format`` is "" where one shape is
    compared in whatever format each program reads.
    """

    program: str
    format: str
    file_bytes: int
    prefill: float
    decode: float
    prefill_ratio: float | None
    decode_ratio: float | None
    load: LoadFigures


class PeerComparison(msgspec.Struct, frozen=True):
    """``absent``: what did not run, and what it lacks or its last words."""

    shape: str
    prompt_tokens: int
    decode_tokens: int
    rounds: int
    rows: list[ProgramFigures]
    absent: list[str]

    def show(self) -> None:
        """Also what loading the weights took by part. The whole load takes longer: it includes a first pass."""
        show_table(
            f"{self.shape}, random weights: prompt {self.prompt_tokens}, then {self.decode_tokens} tokens; "
            f"medians of {self.rounds} interleaved rounds",
            "program | file, MB | load, s | at rest, MB | at peak, MB | prefill, tok/s | decode, tok/s | "
            "ours/theirs prefill | ours/theirs decode",
            (
                f"{row.program} | {row.file_bytes / MB:.0f} | {row.load.seconds:.1f} | {row.load.rest / MB:.0f} | "
                f"{row.load.peak / MB:.0f} | {row.prefill:.0f} | {row.decode:.1f} | "
                f"{_ratio(row.prefill_ratio)} | {_ratio(row.decode_ratio)}"
                for row in self.rows
            ),
        )
        for row in self.rows:
            parts = row.load.parts
            if parts:
                told = ", ".join(f"{what} {seconds:.2f}" for what, seconds in parts.items())
                show_line(f"{row.program}: weights in {sum(parts.values()):.2f} s ({told})")
        show_absent(self.absent)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


class _Run(NamedTuple):
    """An entrant that is loaded, and its rounds in their order. ``size`` is that of its files, bytes."""

    entrant: Entrant
    worker: ProgramWorker
    size: int
    speeds: list[RunSpeed]


def named_programs(names: Sequence[str], shape: Shape, root: Path) -> list[Entrant]:
    """The programs of these names, on the files of 4 bits that each reads."""
    files = {"llama.cpp": gguf_file, "bitsandbytes": nf4_folder}
    return [
        Entrant(PROGRAMS[name].title, name, partial(files.get(name, gptq_folder), shape, root), name == "kvasir")
        for name in names
    ]


def compare(
    shape: Shape,
    entrants: Sequence[Entrant],
    *,
    rounds: int,
    threads: int,
    decode_tokens: int,
    prompt_tokens: int = 512,
) -> PeerComparison:
    """Load one entrant after the other, then run all in turn, ``rounds`` times after one warm-up.

    One whose package is not installed is left out and named in ``absent``; so is one that fails.
    """
    prompt = shape.prompt(prompt_tokens)
    absent: list[str] = []
    runs: list[_Run] = []
    with ExitStack() as stack:
        for entrant in entrants:
            package = missing(entrant.program)
            if package:
                absent.append(f"{entrant.title}: the package {package} is not installed")
                continue
            say(f"loading {entrant.title}")
            try:
                model = entrant.model()
                size = checked_size(model)
                worker = stack.enter_context(ProgramWorker(entrant.program, model, threads))
                worker.run(prompt, 4)
            except (RuntimeError, ImportError, OSError) as failure:
                absent.append(f"{entrant.title}: {failure}")
            else:
                runs.append(_Run(entrant, worker, size, []))
        for index in range(rounds):
            say(f"round {index + 1} of {rounds}")
            for run in list(runs):
                try:
                    run.speeds.append(run.worker.run(prompt, decode_tokens))
                except (RuntimeError, OSError) as failure:
                    absent.append(f"{run.entrant.title}: {failure}")
                    runs.remove(run)
    rows = [_figures(run, runs, prompt_tokens) for run in runs]
    return PeerComparison(shape.name, prompt_tokens, decode_tokens, rounds, rows, absent)


def checked_size(model: Path) -> int:
    """The bytes of a model's files. Raises RuntimeError where they do not fit into memory besides what runs."""
    files = [model] if model.is_file() else model.glob("*.safetensors")
    size = sum(file.stat().st_size for file in files)
    free = psutil.virtual_memory().available
    if size * _ROOM > free:
        raise RuntimeError(f"{size / 1e9:.1f} GB more do not fit next to the others ({free / 1e9:.1f} GB are free)")
    return size


def _figures(run: _Run, runs: Sequence[_Run], prompt_tokens: int) -> ProgramFigures:
    ours = next((other for other in runs if other.entrant.ours and other.entrant.format == run.entrant.format), None)
    prefill, decode = zip(*run.speeds, strict=True)
    ratios: tuple[float | None, float | None] = (None, None)
    if ours is not None:
        our_prefill, our_decode = zip(*ours.speeds, strict=True)
        ratios = median_ratio(prefill, our_prefill), median_ratio(decode, our_decode)
    return ProgramFigures(
        program=run.entrant.title,
        format=run.entrant.format,
        file_bytes=run.size,
        prefill=prompt_tokens / statistics.median(prefill),
        decode=1 / statistics.median(decode),
        prefill_ratio=ratios[0],
        decode_ratio=ratios[1],
        load=run.worker.load,
    )
