"""Programs with a model each, all loaded at once and run in turn: what every comparison is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from engine.bench.peers.programs import Speed
from engine.bench.peers.worker import LoadFigures, ProgramWorker, missing
from engine.bench.shapes import Shape

_ROOM = 1.3
"""The memory of a process, as a rough multiple of its model's file."""


class Entrant(NamedTuple):
    """``program`` is a key of :data:`engine.bench.peers.programs.PROGRAMS`; ``model`` returns the path of its files."""

    title: str
    program: str
    model: Callable[[], Path]


class Course(msgspec.Struct, frozen=True):
    """What every entrant does in every round."""

    prompt: list[int]
    tokens: int
    rounds: int
    threads: int


class Result(NamedTuple):
    """One entrant's rounds, in their order. ``size`` is that of its files, bytes."""

    entrant: Entrant
    load: LoadFigures
    size: int
    speeds: list[Speed]


def course(shape: Shape, prompt_tokens: int, decode_tokens: int, rounds: int, threads: int) -> Course:
    """The same made-up prompt for everyone."""
    prompt = [5 + (index * 7919) % (shape.vocabulary - 5) for index in range(prompt_tokens)]
    return Course(prompt, decode_tokens, rounds, threads)


def race(
    entrants: Sequence[Entrant], course: Course, say: Callable[[str], None] = lambda line: None
) -> tuple[list[Result], list[str]]:
    """The results of those that ran, and a line for each that did not: what it lacks, or its last words.

    Loaded one after the other, then run in turn ``course.rounds`` times after a warm-up.
    """
    absent: list[str] = []
    with ExitStack() as stack:
        running: list[tuple[ProgramWorker, Result]] = []
        for entrant in entrants:
            package = missing(entrant.program)
            if package:
                absent.append(f"{entrant.title}: the package {package} is not installed")
                continue
            say(f"loading {entrant.title}")
            try:
                model = entrant.model()
                size = _size(model)
                _check_room(size)
                worker = stack.enter_context(ProgramWorker(entrant.program, model, course.threads))
                worker.run(course.prompt, 4)
            except (RuntimeError, ImportError, OSError) as failure:
                absent.append(f"{entrant.title}: {failure}")
            else:
                running.append((worker, Result(entrant, worker.load, size, [])))
        for index in range(course.rounds):
            say(f"round {index + 1} of {course.rounds}")
            for worker, result in list(running):
                try:
                    result.speeds.append(worker.run(course.prompt, course.tokens))
                except (RuntimeError, OSError) as failure:
                    absent.append(f"{result.entrant.title}: {failure}")
                    running.remove((worker, result))
    return [result for _, result in running], absent


def _size(model: Path) -> int:
    files = [model] if model.is_file() else model.glob("*.safetensors")
    return sum(file.stat().st_size for file in files)


def _check_room(size: int) -> None:
    free = psutil.virtual_memory().available
    if size * _ROOM > free:
        raise RuntimeError(f"{size / 1e9:.1f} GB more do not fit next to the others ({free / 1e9:.1f} GB are free)")
