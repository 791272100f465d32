"""`python -m tests.bench peers`: this engine and built binaries of others, on the same files and with the same threads.

For each set of instructions that there are binaries for, Kvasir is held to it too. All take turns in every round, and
ratios are taken of turns during which memory was equally fast.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.compute.native.build import runs_here
from engine.compute.native.instructions import AUTO, SETS, VARIABLE
from engine.services.experiments.measures.timing import Spread, spread
from engine.services.experiments.reports.tables import GB, MB, say, show_absent, show_line, show_table
from engine.services.experiments.workloads.shapes import ONE_B, Shape, gptq_folder
from tests.bench.binaries import Peer
from tests.bench.cases import Case, CasePlan
from tests.bench.compare import checked_size
from tests.bench.gguf_files import gguf_file, step_bytes
from tests.bench.interleaved import OURS, Contestant, Interleaving, Name, Turns
from tests.bench.turns import MemorySpeed, Tries, Turn, pairing, steady_pairs
from tests.bench.worker import ProgramWorker

FORMATS = ("Q4_0", "Q4_K_M")
GPTQ = "GPTQ-128"
"""Kvasir's GPTQ next to a GGUF type of the others, which read no GPTQ."""
_GROUP, _NEXT_TO_GPTQ = 128, "Q4_0"
PEER_SHAPES = {
    "1b": replace(ONE_B, name="llama-3.2-1b", tied=True),
    "3b": Shape("llama-3.2-3b", layers=28, hidden=3072, ffn=8192, heads=24, kv_heads=8, vocabulary=128256, tied=True),
}
"""The models that people run on processors, whose token tables are tied."""


class KvasirProcess:
    """This engine in a process that uses no more than the instructions of that name."""

    title = OURS

    def __init__(self, instructions: str, model: Path, threads: int) -> None:
        """``model``: that of its own. Raises RuntimeError where it does not load, or not with these instructions."""
        self.instructions = instructions
        self.worker = ProgramWorker("kvasir steps", model, threads, {VARIABLE: native_set(instructions)})

    @property
    def peak(self) -> int:
        return self.worker.peak

    def run(self, cases: Sequence[Case], model: Path, threads: int, steps: int) -> list[float]:
        """Implements `Contestant.run`; the model and the threads are those given to the constructor."""
        return [statistics.mean(self.worker.steps(case, steps)) for case in cases]


def native_set(instructions: str) -> str:
    """The value of KVASIR_NATIVE that corresponds to what a binary was built for: avx512 is the best that begins so.

    What Kvasir knows no such set of, or has no name, is left to it.
    """
    known = [name for name in SETS if instructions and name.startswith(instructions)]
    return next((name for name in known if runs_here(SETS[name])), known[0] if known else AUTO)


class PeerRow(msgspec.Struct, frozen=True):
    """One program on one case: tokens a second, of its turns that counted.

    ``ratio`` is Kvasir's speed over the program's, by the rounds that counted; None where Kvasir did not run, and for
    itself. ``alike``: whether memory was as fast for both in those; ``memory`` is from where to where it was then,
    bytes a second. ``turns``: all of them, by rounds.

    ``read``: bytes that a step takes to read, 0 for a prompt; see `_read`. ``share`` is how much of what memory gave
    at its time that is, over all turns during which memory was steady, and ``share_ratio`` Kvasir's share over the
    program's, by all rounds in which it was steady for both.
    """

    program: str
    instructions: str
    case: Case
    speed: Spread
    ratio: Spread | None
    read: int
    share: Spread | None
    share_ratio: Spread | None
    alike: bool
    memory: tuple[float, float]
    turns: Sequence[Tries]


class ProgramPeak(msgspec.Struct, frozen=True):
    """The most anonymous memory that a program held, its whole process, bytes."""

    program: str
    instructions: str
    peak: int


class PeersFigures(msgspec.Struct, frozen=True):
    """One format on all programs. ``file_bytes``: of the others' file; ``absent``: what did not run, and why."""

    shape: str
    format: str
    file_bytes: int
    threads: int
    rounds: int
    steps: int
    rows: list[PeerRow]
    memory: list[ProgramPeak]
    absent: list[str]

    def show(self) -> None:
        """A table for each set of instructions, a row for each case, and the programs next to each other."""
        for instructions in dict.fromkeys(each.instructions for each in self.memory):
            peaks = {each.program: each.peak for each in self.memory if each.instructions == instructions}
            found = {(row.case, row.program): row for row in self.rows if row.instructions == instructions}
            cases = list(dict.fromkeys(case for case, _ in found))
            others = [name for name in peaks if name != OURS]
            show_table(
                f"{self.shape}, {self.format}, random weights, {instructions or 'any instructions'}, "
                f"{self.threads} threads: tok/s, medians and quartiles of interleaved rounds; "
                "in brackets the share of the speed that memory was read at just then",
                " | ".join(["step", *peaks, *(f"ours/{name}" for name in others)]),
                (
                    " | ".join(
                        [
                            str(case),
                            *(_speed(found.get((case, name))) for name in peaks),
                            *(ratio_cell(found.get((case, name)), self.rounds) for name in others),
                        ]
                    )
                    for case in cases
                ),
            )
            for case in cases:
                if case.of_memory:
                    _show_shares(case, [found[case, name] for name in peaks if (case, name) in found])
            show_line("at peak: " + ", ".join(f"{name} {peak / MB:,.0f} MB" for name, peak in peaks.items()))
        if any(row.case.kind == "verify" for row in self.rows):
            show_line("verify: for the others, as many sequences that share one prompt's keys and values decode")
        show_absent(self.absent)


def _speed(row: PeerRow | None) -> str:
    if row is None:
        return ""
    share = "" if row.share is None else f" [{row.share.median:.0%}]"
    return f"{row.speed.median:.1f} ({row.speed.low:.1f}-{row.speed.high:.1f}){share}"


def ratio_cell(row: PeerRow | None, rounds: int) -> str:
    """The ratio, of how many of the ``rounds`` it is, and how fast memory was in them."""
    if row is None or row.ratio is None:
        return ""
    slowest, fastest = (speed / GB for speed in row.memory)
    counted = f"{row.ratio.pairs} of {rounds}" if row.alike else f"all {row.ratio.pairs}, memory not alike,"
    return f"{row.ratio}, {counted} at {slowest:.0f}-{fastest:.0f} GB/s"


def _show_shares(case: Case, rows: Sequence[PeerRow]) -> None:
    shares = ", ".join(f"{row.program} {row.share} of {row.read / MB:,.0f} MB" for row in rows)
    ratios = "".join(
        f"; ours/{row.program} {row.share_ratio}, {row.share_ratio.pairs} of {len(row.turns)} rounds with steady memory"
        for row in rows
        if row.share_ratio is not None
    )
    show_line(f"share of memory's speed, {case}: {shares}{ratios}")


class PeerFiles(NamedTuple):
    """What a format is measured on: Kvasir's model and the others', and the bytes of matrices that a step reads."""

    title: str
    ours: Path
    theirs: Path
    our_bytes: int
    their_bytes: int


def peer_files(shape: Shape, kind: str, root: Path) -> PeerFiles:
    """Make what is missing of them under ``root``; ``kind`` is a GGUF type or :data:`GPTQ`.

    Raises ImportError without ``gguf``.
    """
    if kind != GPTQ:
        model = gguf_file(shape, root, kind)
        size = step_bytes(shape, kind)
        return PeerFiles(kind, model, model, size, size)
    packed = replace(shape, group=_GROUP, tied=False)  # a tied table would be read in 16 bits, the others' has 6
    theirs = peer_files(shape, _NEXT_TO_GPTQ, root)
    return theirs._replace(
        title=f"Kvasir in GPTQ int4 of groups of {_GROUP}, its head too, the others in {_NEXT_TO_GPTQ}",
        ours=gptq_folder(packed, root),
        our_bytes=sum(n * (k // 2 + 2 * (k // _GROUP)) for _, k, n in packed.linears()),
    )


def measure_peers(
    shape: Shape, kind: str, root: Path, folders: Sequence[Path], plan: CasePlan, *, rounds: int, threads: int
) -> PeersFigures:
    """Make the files where they are missing, and run Kvasir and the binaries in ``folders`` on them, ``rounds`` times.

    What fails is not asked again for cases of that kind, and named in ``absent``. Raises ImportError without ``gguf``.
    """
    peers = [Peer(folder) for folder in folders]
    say(f"making {shape.name} in {kind}")
    files = peer_files(shape, kind, root)
    absent: list[str] = []
    with ExitStack() as stack:
        entrants: list[Contestant] = []
        for instructions in dict.fromkeys(peer.instructions for peer in peers):
            say(f"loading Kvasir, {instructions or AUTO}")
            try:
                checked_size(files.ours)
                kvasir = KvasirProcess(instructions, files.ours, threads)
                stack.enter_context(kvasir.worker)
                entrants.append(kvasir)
            except (RuntimeError, OSError) as failure:
                absent.append(f"Kvasir, {instructions or AUTO}: {failure}")
                say(f"left out: {absent[-1]}")
            entrants += [peer for peer in peers if peer.instructions == instructions]
        turns = Interleaving(entrants, files.theirs, plan, threads, MemorySpeed(), absent).run(rounds)
        memory = [ProgramPeak(one.title, one.instructions, one.peak) for one in entrants]
    rows = [peer_row(name, case, turns, shape, files) for name in turns for case in turns[name]]
    size = files.theirs.stat().st_size
    return PeersFigures(shape.name, files.title, size, threads, rounds, plan.steps, rows, memory, absent)


def peer_row(name: Name, case: Case, turns: Turns, shape: Shape, files: PeerFiles) -> PeerRow:
    """The row of a program on a case that it has run."""
    program, instructions = name
    rounds, ours = turns[name][case], turns.get((OURS, instructions), {}).get(case, ())
    read, our_read = (_read(shape, case, files, each) for each in (program, OURS))
    others = [each for each in turns if each[0] != OURS and each[1] == instructions and case in turns[each]]
    compared = [pairing(ours, turns[each][case]) for each in ([name] if program != OURS else others)]
    pairs = [pair for each in compared for pair in each.pairs]
    own_turns = {pair[0 if program == OURS else 1] for pair in pairs}
    counted = [turn for tries in rounds for turn in tries if turn in own_turns] or [tries[0] for tries in rounds]
    speeds = [turn.memory for turn in (*counted, *itertools.chain(*pairs))]
    steady = [turn for tries in rounds for turn in tries if turn.steady] or counted
    ratios: list[float] = []
    shares: list[float] = []
    if program != OURS:
        ratios = [other.seconds / own.seconds for own, other in pairs]
        shares = [_share(our_read, own) / _share(read, other) for own, other in steady_pairs(ours, rounds) if read]
    return PeerRow(
        program=program,
        instructions=instructions,
        case=case,
        speed=spread([case.tokens / turn.seconds for turn in counted]),
        ratio=spread(ratios) if ratios else None,
        read=read,
        share=spread([_share(read, turn) for turn in steady]) if read else None,
        share_ratio=spread(shares) if shares else None,
        alike=all(each.alike for each in compared),
        memory=(min(speeds), max(speeds)),
        turns=rounds,
    )


def _share(read: int, turn: Turn) -> float:
    """How much of what memory gave during a step ``read`` bytes are."""
    return read / (turn.seconds * turn.memory)


def _read(shape: Shape, case: Case, files: PeerFiles, program: str) -> int:
    """Bytes of the file's matrices and of every sequence's keys and values in 16 bits, once a step, whatever the
    program really reads; 0 for a prompt, which computes rather than reads."""
    kept = 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim  # bytes of a token's keys and values
    weights = files.our_bytes if program == OURS else files.their_bytes
    return 0 if case.kind == "prompt" else weights + case.streams * case.context * kept
