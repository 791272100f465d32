"""Kvasir beside other programs on one shape: all loaded at once, run in turn, compared as ratios pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from engine.bench.checkpoint import Shape, gguf_file, gptq_folder
from engine.bench.measure import median_ratio
from engine.bench.programs import Speed
from engine.bench.worker import LoadFigures, Worker, missing


class Row(msgspec.Struct, frozen=True):
    """One program's medians: tokens per second, bytes, seconds; ratios are Kvasir's speed over this program's."""

    program: str
    prefill: float
    decode: float
    prefill_ratio: float
    decode_ratio: float
    load: LoadFigures


class Comparison(msgspec.Struct, frozen=True):
    shape: str
    prompt_tokens: int
    decode_tokens: int
    rounds: int
    rows: list[Row]
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
    absent = [f"{name}: the package {package} is not installed" for name in names if (package := missing(name))]
    prompt = [5 + (index * 7919) % (shape.vocabulary - 5) for index in range(prompt_tokens)]
    with ExitStack() as stack:
        workers: list[Worker] = []
        for name in names:
            if missing(name):
                continue
            model = gguf_file(shape, root) if name == "llama.cpp" else gptq_folder(shape, root)
            say(f"loading {name}")
            try:
                worker = stack.enter_context(Worker(name, model, threads))
                worker.run(prompt, 4)
            except RuntimeError as failure:
                absent.append(f"{name}: {failure}")
            else:
                workers.append(worker)
        speeds: dict[str, list[Speed]] = {worker.name: [] for worker in workers}
        for index in range(rounds):
            say(f"round {index + 1} of {rounds}")
            for worker in workers:
                speeds[worker.name].append(worker.run(prompt, decode_tokens))
        rows = [_row(worker, workers[0], speeds, prompt_tokens) for worker in workers]
    return Comparison(shape.name, prompt_tokens, decode_tokens, rounds, rows, absent)


def _row(worker: Worker, first: Worker, speeds: dict[str, list[Speed]], prompt_tokens: int) -> Row:
    mine, theirs = speeds[first.name], speeds[worker.name]
    prefill = [speed.prefill_seconds for speed in theirs]
    decode = [speed.decode_seconds_per_token for speed in theirs]
    return Row(
        worker.title,
        prompt_tokens / statistics.median(prefill),
        1 / statistics.median(decode),
        median_ratio(prefill, [speed.prefill_seconds for speed in mine]),
        median_ratio(decode, [speed.decode_seconds_per_token for speed in mine]),
        worker.load,
    )
