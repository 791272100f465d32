"""Runs the tests of a tree, the nearest first, until one fails."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

BATCHES = (3, 6, 12)
"""Files of the first calls of pytest: few, since all files of a call are imported before its first test."""
_LISTENER = Path(__file__).with_name("listener.py")
_PLUGIN = "kvasir_fault_listener"


class Verdict(NamedTuple):
    """``test`` is the first that failed, "" if none did; ``seconds`` are those that processors worked.

    ``files`` of tests ran, at least in part. ``whole``: none of them was cut off by the limit.
    """

    test: str
    seconds: float
    files: int
    whole: bool = True


class _Run(NamedTuple):
    """One call of pytest: what failed, in order, and whether it came to its end."""

    failed: list[str]
    whole: bool


class Suite:
    """The tests of the tree in ``folder``, whose code they import and no other checkout's."""

    def __init__(self, folder: Path, limit: float, patience: float, options: Sequence[str] = ()) -> None:
        """``limit``: CPU seconds for a fault; ``patience``: seconds after which a test that has not ended has failed,
        since many faults leave a window waiting; ``options`` of pytest. Raises RuntimeError where another checkout's
        code would be imported."""
        self.folder, self.limit, self.patience, self.options = folder, limit, patience, options
        self.untrusted: set[str] = set()
        """Tests that fail without a fault, too."""
        code = "import engine, os; print(os.path.dirname(os.path.dirname(engine.__file__)))"
        found = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=self._surroundings(),
            capture_output=True,
            text=True,
            check=True,
        )
        if Path(found.stdout.strip()).resolve() != folder.resolve():
            raise RuntimeError(f"tests in {folder} would import {found.stdout.strip()}")

    def first_failure(self, files: Sequence[str], named: Sequence[str] = ()) -> Verdict:
        """The first test of these files that fails, file by file. Before them come the ``named`` tests of some, as
        pytest names them without their cases."""
        began, done = _cpu_seconds(), 0
        for batch, of_them in ((_files_of(named), _names_of(named)), *((batch, []) for batch in _batches(files))):
            done += 0 if of_them else len(batch)
            left = self.limit - (_cpu_seconds() - began)
            run = self._pytest([*batch, *of_them, "-x"], left) if batch else _Run([], True)
            seconds = _cpu_seconds() - began
            if run.failed or not run.whole:
                return Verdict(next(iter(run.failed), ""), seconds, done, run.whole or bool(run.failed))
        return Verdict("", _cpu_seconds() - began, done)

    def failing(self, tests: Iterable[str]) -> set[str]:
        """Those of the tests, or test files that could not be imported, that fail in the tree as it is."""
        asked = sorted(tests)
        single, whole = [name for name in asked if "::" in name], [name for name in asked if "::" not in name]
        failed = set(self._pytest(single, None).failed) if single else set()
        return failed | (set(self._pytest([*whole, "--collect-only"], None).failed) if whole else set())

    def _pytest(self, arguments: Sequence[str], limit: float | None) -> _Run:
        """Raises RuntimeError where pytest could not do as it was told."""
        with tempfile.TemporaryDirectory(prefix="kvasir-fault-") as place:
            shutil.copyfile(_LISTENER, Path(place, f"{_PLUGIN}.py"))
            report, output = Path(place, "report"), Path(place, "output")
            report.touch()
            command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:xdist", "-p", _PLUGIN]
            command += [*self.options, "--hypothesis-seed=0", *arguments]
            command += [f"--deselect={test}" for test in sorted(self.untrusted) if "::" in test]
            surroundings = self._surroundings(place) | {"KVASIR_FAULT_REPORT": str(report)}
            with output.open("wb") as stream:
                process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=surroundings,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                status = _wait(process, limit, lambda: _seconds_since(report) > self.patience)
            shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
            lines = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
            failed = [line["failed"] for line in lines if "failed" in line]
            if status is None:
                return _Run(failed, False)
            died = status < 0 or status > pytest.ExitCode.NO_TESTS_COLLECTED
            if died and not failed and lines:  # the whole process went down with the test that ran, if one did
                failed = [test for test in [lines[-1].get("began")] if test]
            elif not failed and status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                raise RuntimeError(f"pytest ended with {status}:\n{output.read_text('utf-8', 'replace')[-2000:]}")
            return _Run(failed, True)

    def _surroundings(self, *more: str) -> dict[str, str]:
        """The environment of the tests, as `make test` sets it."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PYTHONPATH": os.pathsep.join([str(self.folder), *more]),
            "QT_QPA_PLATFORM": "offscreen",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }


def _files_of(tests: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


def _names_of(tests: Iterable[str]) -> list[str]:
    """Options that choose the tests in their files; one that is there no more is no error."""
    names = " or ".join(test.rpartition("::")[2] for test in tests)
    return ["-k", names] if names else []


def _batches(files: Sequence[str]) -> Iterator[Sequence[str]]:
    at = 0
    for size in (*BATCHES, len(files)):
        if at < len(files):
            yield files[at : at + size]
        at += size


def _cpu_seconds() -> float:
    """Of all processes that ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds_since(report: Path) -> float:
    """Seconds since a test began or failed or ended; 0 while none has begun."""
    written = report.stat()
    return time.time() - written.st_mtime if written.st_size else 0.0


def _wait(process: subprocess.Popen[bytes], limit: float | None, stuck: Callable[[], bool]) -> int | None:
    """The exit status, that of a kill where it is ``stuck``; None where the process reached the limit. It is ended with
    all that it started."""
    try:
        while limit is None or _used(process.pid) < limit:
            if stuck():
                return -signal.SIGKILL
            with suppress(subprocess.TimeoutExpired):
                return process.wait(1)
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _used(pid: int) -> float:
    """CPU seconds of a process, of those below it and of those that these have waited for."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for each in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total
