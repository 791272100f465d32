"""One program in its own process: orders as JSON lines on standard input, results as JSON lines on standard output.

Run as ``python -m engine.bench.peers.worker NAME MODEL THREADS``; used through :class:`ProgramWorker` alone.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from engine.bench.measure import PeakMemory, anonymous_bytes, timed
from engine.bench.peers.programs import PROGRAMS, Speed
from engine.installation import module_command


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


class ProgramWorker:
    """A handle on the process. Raises RuntimeError with the process's last words when it fails."""

    def __init__(self, name: str, model: Path, threads: int) -> None:
        command = [*module_command("engine.bench.peers.worker"), name, str(model), str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.load = msgspec.json.decode(self._answer(), type=LoadFigures)

    def run(self, prompt: list[int], tokens: int) -> Speed:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode((prompt, tokens)).decode() + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._answer(), type=Speed)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("{", "[")):
                return line
        _, words = self._process.communicate()
        raise RuntimeError(f"it stopped: {words.strip().splitlines()[-1] if words.strip() else 'no message'}")

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
        prompt, tokens = msgspec.json.decode(line, type=tuple[list[int], int])
        speed = program.run(prompt, tokens)
        print(msgspec.json.encode(speed).decode(), file=replies, flush=True)


if __name__ == "__main__":
    main()
