"""The shards of `make test-all`: each test file is in one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARDS = ("window", "compute", "packaging", "serving")


def told(shard: str) -> str:
    """The call of pytest that `make` would make, if any."""
    command = ["make", "--dry-run", "cases-test-all", f"SHARD={shard}", f"PYTHON={sys.executable}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return "\n".join(line for line in said.splitlines() if "-m pytest" in line)


def paths(shard: str) -> list[Path]:
    return [ROOT / word for word in told(shard).split() if word.startswith("tests/")]


def test_each_file_is_in_one() -> None:
    found = {shard: paths(shard) for shard in SHARDS}
    assert all(path.exists() for given in found.values() for path in given)
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert files
    for file in files:
        inside = [shard for shard, given in found.items() if any(file.is_relative_to(path) for path in given)]
        assert len(inside) == 1, (file, inside)


@pytest.mark.parametrize(("shard", "runs"), [("", True), ("windows", False)])
def test_no_shard_is_everything_and_an_unknown_one_nothing(shard: str, runs: bool) -> None:
    assert ("pytest" in told(shard)) == runs
    assert not paths(shard)
