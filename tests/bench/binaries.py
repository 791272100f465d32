"""llama.cpp and ik_llama.cpp as built binaries, one folder for each set of instructions that they were built for.

``tests/bench/build.sh`` makes such folders. Their names say what they hold: ``llama.cpp-avx2``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from engine.loading.memory.environment import without_bounds
from engine.services.experiments.measures.timing import PeakMemory
from tests.bench.cases import Case
from tests.bench.worker import WATCH_SECONDS, last_words

PROMPTS, STEPS = "llama-bench", "llama-batched-bench"
_IK = "ik_llama.cpp"
_TRIES = 2
"""llama-batched-bench hands its lines to a thread, and now and then ends before the last one is out."""
_COLUMNS = ("pp", "tg", "pl", "n_kv", "t_pp", "speed_pp", "t_tg")
"""How ``llama-batched-bench`` heads its table, which ik_llama.cpp's prints alone; so its JSON names them too."""


def readings(text: str) -> dict[tuple[int, int], float]:
    """Parse the output of either program: llama-bench's JSON, or the JSON lines or the table of llama-batched-bench.

    Seconds of a prompt by (its tokens, 0); of a step of so many sequences after it by (its tokens, sequences). Raises
    ValueError or KeyError for what is neither.
    """
    found = re.search(r"^\[\n.*^\]", text, re.DOTALL | re.MULTILINE)
    if found:
        return {(test["n_prompt"], 0): statistics.median(test["samples_ns"]) / 1e9 for test in json.loads(found[0])}
    rows = (row for line in text.splitlines() for row in _row(line))
    return {(int(row["pp"]), int(row["pl"])): float(row["t_tg"]) / int(row["tg"]) for row in rows}


def _row(line: str) -> Iterator[dict[str, str]]:
    if line.startswith("{"):
        yield json.loads(line)
    elif re.match(r"\| *[0-9]", line):
        yield dict(zip(_COLUMNS, line.strip("| ").split("|"), strict=False))


class Peer:
    """The programs of one folder, named PROGRAM-INSTRUCTIONS; each turn starts them anew.

    ``instructions`` is "" where the folder's name has no dash. ``peak`` is the most anonymous memory that they held so
    far, bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.title, dash, self.instructions = folder.name.rpartition("-")
        if not dash:
            self.title, self.instructions = folder.name, ""
        self.peak = 0

    def run(self, cases: Sequence[Case], model: Path, threads: int, steps: int) -> list[float]:
        """Seconds of a step of each case, which are all of one kind. Raises RuntimeError or OSError where it fails.

        Of decoding and verifying it is the mean of ``steps``. Rows to verify are sequences that share a prompt's keys
        and values: the programs measure nothing that is closer. Where streams decode, llama.cpp gives each a copy of
        the prompt's, while ik_llama.cpp always lets them share.
        """
        wanted = [(case.rows, 0) if case.kind == "prompt" else (case.context, case.tokens) for case in cases]
        first = sorted({tokens for tokens, _ in wanted})
        if cases[0].kind == "prompt":
            command = [PROMPTS, "-p", _listed(first), "-n", "0", "-r", "1", "-o", "json"]
        else:
            widths = sorted({streams for _, streams in wanted})
            room = widths[-1] * (first[-1] + steps)
            command = [STEPS, "-c", str(room), "-npp", _listed(first), "-ntg", str(steps), "-npl", _listed(widths)]
            command += ["-pps", *(["--no-mmap"] if self._ik else ["-lm", "none", "--output-format", "jsonl"])]
            command += ["-kvu"] * (cases[0].kind == "verify" and not self._ik)
        for _ in range(_TRIES):
            found = self._readings(*command, "-m", str(model), "-t", str(threads))
            if all(found.get(each) for each in wanted):
                return [found[each] for each in wanted]
        raise RuntimeError(f"{command[0]} did not print all times")

    @property
    def _ik(self) -> bool:
        return self.title.startswith(_IK)

    def _readings(self, program: str, *arguments: str) -> dict[tuple[int, int], float]:
        command = [str(self.folder / program), *arguments]
        with (
            tempfile.TemporaryDirectory(prefix="kvasir-bench-") as folder,  # ik_llama.cpp leaves a log where it runs
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder,
                env=without_bounds(os.environ),
            ) as process,
            PeakMemory(WATCH_SECONDS, process.pid) as memory,
        ):
            try:
                printed, words = process.communicate()
            except BaseException:
                process.kill()
                raise
        self.peak = max(self.peak, memory.peak)
        if process.returncode:
            raise RuntimeError(f"{program} stopped{_signal(process.returncode)}: {last_words(words)}")
        try:
            return readings(printed) or readings(words)  # ik_llama.cpp prints its table among the messages
        except (ValueError, KeyError) as error:
            raise RuntimeError(f"{program} printed what is not understood ({error!r})") from error


def built_folders(given: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """List those of the folders, and of the folders in them, that hold binaries; and why the others are of no use."""
    found: dict[str, Path] = {}
    absent = []
    for folder in given:
        built = [each.resolve() for each in (folder, *sorted(folder.glob("*/"))) if (each / STEPS).is_file()]
        absent += [f"{each}: another folder of that name is measured already" for each in built if each.name in found]
        found = {each.name: each for each in built} | found
        if not built:
            absent.append(f"{folder}: no {STEPS} in it (tests/bench/build.sh builds one)")
    return list(found.values()), absent


def _signal(status: int) -> str:
    """By which signal a program ended, such as that of an instruction that the processor lacks."""
    with suppress(ValueError):
        return f" by {signal.Signals(-status).name}"
    return ""


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
