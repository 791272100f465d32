"""`python -m tests.bench peers`: this engine and built binaries of others, on the same files and with the same threads.

For each set of instructions that there are binaries for, Kvasir is held to it too. All take turns in every round, so
that a drift of the machine's speed cancels in the ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import torch

from engine.compute.native.build import runs_here
from engine.compute.native.instructions import AUTO, SETS, VARIABLE
from engine.loading.memory.bandwidth import measure_bandwidth
from engine.services.experiments.measures.timing import Spread, spread
from engine.services.experiments.reports.tables import GB, MB, say, show_absent, show_line, show_table
from engine.services.experiments.workloads.shapes import ONE_B, Shape
from tests.bench.binaries import Peer
from tests.bench.cases import Case, CasePlan
from tests.bench.compare import checked_size
from tests.bench.gguf_files import gguf_file, step_bytes
from tests.bench.worker import ProgramWorker

FORMATS = ("Q4_0", "Q4_K_M")
PEER_SHAPES = {
    "1b": replace(ONE_B, name="llama-3.2-1b", tied=True),
    "3b": Shape("llama-3.2-3b", layers=28, hidden=3072, ffn=8192, heads=24, kv_heads=8, vocabulary=128256, tied=True),
}
"""The models that people run on processors, whose token tables are tied."""


class Contestant(Protocol):
    """A program built for, or held to, the set ``instructions``; see `binaries.Peer`."""

    title: str
    instructions: str

    @property
    def peak(self) -> int:
        """The most anonymous memory that it has held so far, bytes."""

    def run(self, cases: Sequence[Case], model: Path, threads: int, steps: int) -> list[float]:
        """Seconds of a step of each case, all of one kind. Raises RuntimeError or OSError where it fails."""


class KvasirProcess:
    """This engine in a process that uses no more than the instructions of that name."""

    title = "Kvasir"

    def __init__(self, instructions: str, model: Path, threads: int) -> None:
        """Raises RuntimeError where the model does not load, or not with these instructions."""
        self.instructions = instructions
        self.worker = ProgramWorker("kvasir steps", model, threads, {VARIABLE: native_set(instructions)})

    @property
    def peak(self) -> int:
        return self.worker.peak

    def run(self, cases: Sequence[Case], model: Path, threads: int, steps: int) -> list[float]:
        """Implements :meth:`Contestant.run`; the model and the threads are those given to the constructor."""
        return [statistics.mean(self.worker.steps(case, steps)) for case in cases]


def native_set(instructions: str) -> str:
    """The value of KVASIR_NATIVE that corresponds to what a binary was built for: avx512 is the best that begins so.

    What Kvasir knows no such set of, or has no name, is left to it.
    """
    known = [name for name in SETS if instructions and name.startswith(instructions)]
    return next((name for name in known if runs_here(SETS[name])), known[0] if known else AUTO)


class PeerRow(msgspec.Struct, frozen=True):
    """One program on one case: tokens a second.

    ``ratio`` is Kvasir's speed over the program's, by pairs of rounds; None where Kvasir did not run, and for itself.
    ``share``: how much of the measured speed of reading memory it takes to read, once a step, the file's matrices and
    every sequence's keys and values in 16 bits, whatever the program really reads; None for a prompt.
    """

    program: str
    instructions: str
    case: Case
    speed: Spread
    ratio: Spread | None
    share: float | None


class ProgramPeak(msgspec.Struct, frozen=True):
    """The most anonymous memory that a program held, its whole process, bytes."""

    program: str
    instructions: str
    peak: int


class PeersFigures(msgspec.Struct, frozen=True):
    """One file on all programs. ``bandwidth`` is bytes a second; ``absent``: what did not run, and why."""

    shape: str
    format: str
    file_bytes: int
    threads: int
    rounds: int
    steps: int
    bandwidth: float
    rows: list[PeerRow]
    memory: list[ProgramPeak]
    absent: list[str]

    def show(self) -> None:
        """A table for each set of instructions, a row for each case, and the programs next to each other."""
        for instructions in dict.fromkeys(each.instructions for each in self.memory):
            peaks = {each.program: each.peak for each in self.memory if each.instructions == instructions}
            found = {(row.case, row.program): row for row in self.rows if row.instructions == instructions}
            others = [name for name in peaks if name != KvasirProcess.title]
            show_table(
                f"{self.shape}, {self.format}, random weights, {instructions or 'any instructions'}, "
                f"{self.threads} threads: tok/s, medians and quartiles of {self.rounds} interleaved rounds; "
                f"in brackets the share of {self.bandwidth / GB:.1f} GB/s that memory was read at",
                " | ".join(["step", *peaks, *(f"ours/{name}" for name in others)]),
                (
                    " | ".join(
                        [
                            str(case),
                            *(_speed(found.get((case, name))) for name in peaks),
                            *(_ratio(found.get((case, name))) for name in others),
                        ]
                    )
                    for case in dict.fromkeys(case for case, _ in found)
                ),
            )
            show_line("at peak: " + ", ".join(f"{name} {peak / MB:,.0f} MB" for name, peak in peaks.items()))
        if any(row.case.kind == "verify" for row in self.rows):
            show_line("verify: for the others, as many sequences that share one prompt's keys and values decode")
        show_absent(self.absent)


def _speed(row: PeerRow | None) -> str:
    if row is None:
        return ""
    share = "" if row.share is None else f" [{row.share:.0%}]"
    return f"{row.speed.median:.1f} ({row.speed.low:.1f}-{row.speed.high:.1f}){share}"


def _ratio(row: PeerRow | None) -> str:
    return "" if row is None or row.ratio is None else str(row.ratio)


def measure_peers(
    shape: Shape, kind: str, root: Path, folders: Sequence[Path], plan: CasePlan, *, rounds: int, threads: int
) -> PeersFigures:
    """Make the file where it is missing, and run Kvasir and the binaries in ``folders`` on it, ``rounds`` times.

    What fails is not asked again for cases of that kind, and named in ``absent``. Raises ImportError without ``gguf``.
    """
    peers = [Peer(folder) for folder in folders]
    say(f"making {shape.name} in {kind}")
    model = gguf_file(shape, root, kind)
    bandwidth = measure_bandwidth(torch.device("cpu"))
    absent: list[str] = []
    with ExitStack() as stack:
        entrants: list[Contestant] = []
        for instructions in dict.fromkeys(peer.instructions for peer in peers):
            say(f"loading Kvasir, {instructions or AUTO}")
            try:
                checked_size(model)
                kvasir = KvasirProcess(instructions, model, threads)
                stack.enter_context(kvasir.worker)
                entrants.append(kvasir)
            except (RuntimeError, OSError) as failure:
                absent.append(f"Kvasir, {instructions or AUTO}: {failure}")
            entrants += [peer for peer in peers if peer.instructions == instructions]
        seconds = interleaved(entrants, model, plan, rounds, threads, absent)
        memory = [ProgramPeak(one.title, one.instructions, one.peak) for one in entrants]
    weights = step_bytes(shape, kind)
    rows = [
        _row(one, case, seconds, _floor(shape, case, weights, bandwidth)) for one in seconds for case in seconds[one]
    ]
    size = model.stat().st_size
    return PeersFigures(shape.name, kind, size, threads, rounds, plan.steps, bandwidth, rows, memory, absent)


Seconds = Mapping[tuple[str, str], Mapping[Case, Sequence[float]]]
"""By program and instructions: of every case, the seconds of a step in each round."""


def interleaved(
    entrants: Sequence[Contestant], model: Path, plan: CasePlan, rounds: int, threads: int, absent: list[str]
) -> Seconds:
    """Let the entrants run the plan in turn, kind by kind, in every round; one that fails adds to ``absent``."""
    seconds: dict[tuple[str, str], dict[Case, list[float]]] = {}
    failed = set()
    for round in range(rounds):
        for group in plan.groups():
            kind = group[0].kind
            for one in entrants:
                name = one.title, one.instructions
                if (name, kind) in failed:
                    continue
                say(f"round {round + 1} of {rounds}, {kind}: {' '.join(name)}")
                try:
                    times = one.run(group, model, threads, plan.steps)
                except (RuntimeError, OSError) as failure:
                    failed.add((name, kind))
                    absent.append(f"{' '.join(name)}, {kind}: {failure}")
                    continue
                for case, time in zip(group, times, strict=True):
                    seconds.setdefault(name, {}).setdefault(case, []).append(time)
    return seconds


def _row(program: tuple[str, str], case: Case, seconds: Seconds, floor: float) -> PeerRow:
    name, instructions = program
    times, ours = seconds[program][case], seconds.get((KvasirProcess.title, instructions), {}).get(case, ())
    ratios = [theirs / own for theirs, own in zip(times, ours, strict=False)]  # of the rounds that both finished
    return PeerRow(
        program=name,
        instructions=instructions,
        case=case,
        speed=spread([case.tokens / time for time in times]),
        ratio=spread(ratios) if ratios and name != KvasirProcess.title else None,
        share=floor / statistics.median(times) if floor else None,
    )


def _floor(shape: Shape, case: Case, weights: int, bandwidth: float) -> float:
    """Seconds that reading what a step needs takes at least; 0 for a prompt, which computes rather than reads."""
    kept = 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim  # bytes of a token's keys and values in 16 bits
    read = weights + case.streams * case.context * kept
    return 0.0 if case.kind == "prompt" else read / bandwidth
