"""The plugins of tests/kit: seconds measured, recorded and held; the command of a case that failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import durations
from tests.kit.rerun import command

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from tests.kit import durations
durations.SLOW_S, durations.LONG_S, durations.TOLERANCE = 0.05, 0.4, 2.5
durations.RECORD = durations.Path(__file__).with_name("durations.json")
pytest_plugins = ["tests.kit.durations", "tests.kit.rerun"]
"""
CASES = """
import time
import pytest

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="module")
def inner():
    burn(0.2)

@pytest.fixture(scope="module")
def shared(inner):
    burn(0.2)

def test_shares(shared): pass
def test_unmarked(): burn(0.2)
@pytest.mark.slow
def test_marked(): burn(0.2)
@pytest.mark.long
def test_long(): burn(1.25)
def test_recorded(): pass
@pytest.mark.slow
def test_over_ten(): pass
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_cases.py").write_text(CASES)
    (folder / "test_first.py").write_text("def test_nothing(): pass\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    long\n")
    cases = {"test_cases.py::test_recorded": 0.3, "test_cases.py::test_over_ten": 0.5, "test_cases.py::test_long": 9.0}
    record = {"files": {"test_first.py": 99.0, "test_cases.py": 1.0}, "cases": cases}
    (folder / "durations.json").write_text(json.dumps(record))
    without = [part for name in ("qt", "hypothesispytest", "anyio", "timeout") for part in ("-p", f"no:{name}")]
    line = [sys.executable, "-m", "pytest", *without, "--record-durations", "out.json", *arguments]
    return subprocess.run(
        line, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")])
def test_a_case_over_its_limit_fails_the_run(tmp_path: Path, workers: tuple[str, ...]) -> None:
    ran = run(tmp_path, "-v", *workers)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout
    assert "7 passed" in ran.stdout
    over = [line for line in ran.stdout.splitlines() if "limit is" in line]
    found = ["test_over_ten", "test_recorded", "test_unmarked"]
    assert [line.split()[0] for line in over] == [f"test_cases.py::{name}" for name in found]
    assert ran.stdout.index("test_first.py::test_nothing") < ran.stdout.index("test_cases.py::test_shares")
    measured = json.loads((tmp_path / "out.json").read_text())
    cpu, shared, _ = measured["test_cases.py::test_shares"]
    assert cpu < 0.15 < 0.375 < shared
    assert "test_cases.py::test_long" in durations.summed(measured).cases


@pytest.mark.slow
def test_within_the_limits_nothing_is_said(tmp_path: Path) -> None:
    ran = run(tmp_path, "-k", "shares or marked and not unmarked or nothing")
    assert (ran.returncode, "limit is" in ran.stdout) == (0, False), ran.stdout


def test_a_record_takes_over_the_files_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "record.json"
    kept.write_text(json.dumps({"files": {"a.py": 3.0, "b.py": 9.0}, "cases": {"a.py::x": 2.0, "b.py::y": 7.0}}))
    measured = {"b.py::z[1]": [1.26, 0.0, 2.04], "b.py::small": [0.2, 8.0, 9.5]}
    (tmp_path / "run.json").write_text(json.dumps(measured))
    monkeypatch.setattr(durations, "RECORD", kept)
    assert durations.main([str(tmp_path / "run.json")]) == 0
    assert durations.load(kept) == ({"a.py": 3.0, "b.py": 11.5}, {"a.py::x": 2.0, "b.py::z[1]": 1.3})


def test_a_failed_case_says_how_it_runs_alone() -> None:
    assert command("tests/test_x.py::test_y[a b]").endswith(" -m pytest 'tests/test_x.py::test_y[a b]'")
