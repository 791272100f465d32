"""Thousands of damaged files of every format: they load, or a sentence says why not; nothing crashes or hangs."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.formats.mutants import FORMS

ROOT = Path(__file__).resolve().parents[3]
HANG = 100
"""Seconds without a word, on a machine that may be busy."""
MOST_FAILURES = 5
OPTIONAL = ("generation_config.json", "tokenizer_config.json")
"""A model loads without them."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are set as Linux has it")


class Worker:
    """The process that loads them; another takes its place when it ends."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.formats.mutants"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process, self._lines))
        self._reader.start()
        assert self._lines.get(timeout=HANG) == "ready\n", "a sound file does not load"

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def judge(self, form: str, end: int) -> tuple[int, list[str]]:
        """How many of the files that the seeds from 0 to ``end`` make load, and what went wrong."""
        loaded, wrong, seed = 0, [], 0
        while seed < end and len(wrong) < MOST_FAILURES:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{form} {seed} {end}\n")
            self._process.stdin.flush()
            while seed < end:
                try:
                    line = self._lines.get(timeout=HANG)
                except queue.Empty:
                    line = ""
                if not line:
                    self.end()
                    wrong.append(f"{form} {seed}: crashed or hung ({self._process.returncode})")
                    self._begin()
                    seed += 1
                    break
                seed, said, fault = json.loads(line)
                wrong += [f"{form} {seed}: {fault}"] if fault else []
                loaded += not said
                seed += 1
        return loaded, wrong


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.end()


def check(worker: Worker, form: str, count: int) -> None:
    """Each line of a failure begins with what replays it: python -m tests.engine.formats.mutants FORM SEED."""
    loaded, wrong = worker.judge(form, count)
    assert not wrong, "\n".join(wrong)
    assert 0 < loaded < count or (form in OPTIONAL and loaded == count)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_damaged_files(worker: Worker, form: str) -> None:
    check(worker, form, 60)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", FORMS)
def test_many_damaged_files(worker: Worker, form: str) -> None:
    check(worker, form, 20_000)
