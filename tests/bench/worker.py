"""One program in its own process: orders as JSON lines on standard input, results as JSON lines on standard output.

Run as ``python -m tests.bench.worker NAME MODEL THREADS``; used through :class:`ProgramWorker` alone.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.loading.memory.environment import without_bounds
from engine.services.experiments.measures.timing import PeakMemory, anonymous_bytes, timed
from tests.bench.cases import Case
from tests.bench.programs import PROGRAMS, RunSpeed

WATCH_SECONDS = 0.02
"""Between two looks at the memory of another process."""


class LoadFigures(msgspec.Struct, frozen=True):
    """Figures of one load: seconds, and bytes of anonymous memory above the bare process, at peak and at rest.

    ``parts`` is what the seconds went into, where the program tells.
    """

    seconds: float
    peak: int
    rest: int
    parts: dict[str, float] = {}


def missing(name: str) -> str:
    """The first package that program ``name`` lacks here, or an empty string."""
    return next((package for package in PROGRAMS[name].requires if importlib.util.find_spec(package) is None), "")


def last_words(text: str) -> str:
    """The last line of what a program that stopped has printed."""
    return text.strip().splitlines()[-1] if text.strip() else "no message"


class ProgramWorker:
    """A handle on the process. Raises RuntimeError with the process's last words when it fails."""

    def __init__(self, name: str, model: Path, threads: int, variables: Mapping[str, str] | None = None) -> None:
        """``variables`` are set in the process's environment."""
        command = [sys.executable, "-m", "tests.bench.worker", name, str(model), str(threads)]
        own = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", **(variables or {})}
        environment = without_bounds(os.environ) | own
        self.name = name
        self.peak = 0
        """The most anonymous memory that the whole process held while it answered, bytes."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.load = msgspec.json.decode(self._answer(), type=LoadFigures)

    def run(self, prompt: list[int], tokens: int) -> RunSpeed:
        return msgspec.json.decode(self._ask(prompt, tokens), type=RunSpeed)

    def steps(self, case: Case, count: int) -> list[float]:
        """Call :meth:`tests.bench.programs.KvasirSteps.run`; the process must run that program."""
        return msgspec.json.decode(self._ask(case, count), type=list[float])

    def _ask(self, *order: object) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        with PeakMemory(WATCH_SECONDS, self._process.pid) as memory:
            line = next((line for line in self._process.stdout if line.startswith(("{", "["))), "")
        self.peak = max(self.peak, memory.peak)
        if line:
            return line
        _, words = self._process.communicate()
        raise RuntimeError(f"it stopped: {last_words(words)}")

    def __enter__(self) -> ProgramWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """The process's own side."""
    name, model, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the replies
    program = PROGRAMS[name].make()
    bare = anonymous_bytes()
    with PeakMemory() as memory, timed() as load:
        parts = program.load(model, threads)
    figures = LoadFigures(load.seconds, memory.peak - bare, anonymous_bytes() - bare, parts)
    print(msgspec.json.encode(figures).decode(), file=replies, flush=True)
    for line in sys.stdin:
        print(msgspec.json.encode(program.run(*msgspec.json.decode(line))).decode(), file=replies, flush=True)


if __name__ == "__main__":
    main()
