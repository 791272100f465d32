"""Kvasir compared with other programs on one shape: all loaded at once, run in turn, as ratios pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from engine.bench.folders import gptq_folder
from engine.bench.gguf_files import gguf_file
from engine.bench.measure import median_ratio
from engine.bench.peers.entrants import Entrant, Result, course, race
from engine.bench.peers.programs import PROGRAMS
from engine.bench.peers.worker import LoadFigures
from engine.bench.shapes import Shape


class ProgramFigures(msgspec.Struct, frozen=True):
    """One program's medians: tokens per second, bytes, seconds.

    Ratios are Kvasir's speed over this program's; None where Kvasir did not run.
    """

    program: str
    prefill: float
    decode: float
    prefill_ratio: float | None
    decode_ratio: float | None
    load: LoadFigures


class Comparison(msgspec.Struct, frozen=True):
    shape: str
    prompt_tokens: int
    decode_tokens: int
    rounds: int
    rows: list[ProgramFigures]
    absent: list[str]


def compare(
    shape: Shape,
    names: Sequence[str],
    root: Path,
    *,
    prompt_tokens: int = 512,
    decode_tokens: int = 128,
    rounds: int = 5,
    threads: int = 2,
    say: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Run every program of ``names`` on ``shape`` in turn, ``rounds`` times after one warm-up round.

    A program whose package is not installed is left out and named in ``absent``; so is one that fails, with its words.
    """
    entrants = [
        Entrant(PROGRAMS[name][0], name, partial(gguf_file if name == "llama.cpp" else gptq_folder, shape, root))
        for name in names
    ]
    results, absent = race(entrants, course(shape, prompt_tokens, decode_tokens, rounds, threads), say)
    ours = next((result for result in results if result.entrant.program == "kvasir"), None)
    rows = [row(result, ours, prompt_tokens) for result in results]
    return Comparison(shape.name, prompt_tokens, decode_tokens, rounds, rows, absent)


def row(result: Result, ours: Result | None, prompt_tokens: int) -> ProgramFigures:
    """The medians of a result, and the ratios of Kvasir's to them."""
    prefill = [speed.prefill_seconds for speed in result.speeds]
    decode = [speed.decode_seconds_per_token for speed in result.speeds]
    ratios: tuple[float | None, float | None] = (None, None)
    if ours is not None:
        ratios = (
            median_ratio(prefill, [speed.prefill_seconds for speed in ours.speeds]),
            median_ratio(decode, [speed.decode_seconds_per_token for speed in ours.speeds]),
        )
    return ProgramFigures(
        result.entrant.title,
        prompt_tokens / statistics.median(prefill),
        1 / statistics.median(decode),
        *ratios,
        result.load,
    )
