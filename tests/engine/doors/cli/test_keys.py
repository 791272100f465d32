"""`kvasir keys …` on a terminal and for other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app
from engine.services.keys import KnownKeys


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))


def keys(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments])


def test_a_key_is_added_listed_and_revoked() -> None:
    made = keys("add", "laptop", "--rate", "60", "--concurrent", "4")
    key = made.stdout.splitlines()[0]
    assert "not shown again" in made.stdout
    assert KnownKeys().find(key) is not None
    shown = keys("list").stdout
    assert [word in shown for word in ("laptop", "60", "4", "never", key)] == [True] * 4 + [False]
    assert "opens nothing" in keys("revoke", "laptop").stdout
    assert KnownKeys().find(key) is None
    again = keys("revoke", "laptop")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "no key 'laptop'" in again.stderr


def test_other_programs_get_records() -> None:
    made = json.loads(keys("add", "laptop", "--days", "2", "--json").stdout)
    (listed,) = map(json.loads, keys("list", "--json").stdout.splitlines())
    assert listed == made["record"]
    assert listed["expires"] - listed["created"] == 2 * 24 * 3600
    assert made["key"].startswith("kv-")


@pytest.mark.parametrize("limit", ["--rate", "--concurrent", "--days"])
def test_limits_are_numbers(limit: str) -> None:
    assert keys("add", "laptop", limit, "-1").exit_code == 2
