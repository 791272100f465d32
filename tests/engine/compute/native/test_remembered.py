"""Trials that passed are not made again, until anything changes that could change their outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine.base.drivers import drivers_and_gpus
from engine.compute.native import remembered
from engine.compute.native.proof import tried

CUDA = torch.device("cuda", 0)


class Machine:
    """A GPU with its driver, and the trials that are made on it."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.driver, self.made = home / "cache" / "trials.json", "NVIDIA driver 580.95", []
        self.card = SimpleNamespace(name="H200", major=9, minor=0, multi_processor_count=132, total_memory=1 << 37)
        self.sources = remembered.sources_hash(remembered.SOURCES)
        monkeypatch.setenv("KVASIR_HOME", str(home))
        monkeypatch.setattr(remembered, "drivers_and_gpus", lambda: [self.driver] if self.driver else [])
        monkeypatch.setattr(remembered, "sources_hash", lambda folder: self.sources)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: self.card)

    def tries(self, name: str = "gate", says: str | None = None, device: torch.device = CUDA) -> bool:
        """Whether a new process makes the trial; what it says is what the caller gets."""
        remembered.state_of.cache_clear()
        before = len(self.made)
        assert tried((name, 1), device, self._trial(says)) == (says if len(self.made) > before else None)
        return len(self.made) > before

    def _trial(self, says: str | None) -> Callable[[], str | None]:
        def compare() -> str | None:
            self.made.append(says)
            return says

        return compare


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_trial_that_passed_is_made_once_and_one_that_failed_every_time(machine):
    assert machine.tries()
    assert not machine.tries()
    assert machine.tries("attend", "it computes wrongly")
    assert machine.tries("attend", "it computes wrongly")
    assert machine.tries("attend")
    assert not machine.tries("attend")
    assert not machine.tries()


@pytest.mark.parametrize("what", ["driver", "card", "sources"])
def test_another_driver_card_or_source_is_tried_again(what, machine):
    machine.tries()
    before = getattr(machine, what)
    other = {"driver": "NVIDIA driver 581.1", "sources": "other"}
    setattr(machine, what, other.get(what, SimpleNamespace(**(vars(machine.card) | {"multi_processor_count": 114}))))
    assert machine.tries()
    assert not machine.tries()
    setattr(machine, what, before)
    assert not machine.tries(), "the former state is still known"


def test_few_states_are_kept_and_the_latest_of_them(machine):
    for number in range(remembered.MOST + 3):
        machine.driver = f"driver {number}"
        assert machine.tries()
    assert len(json.loads(machine.file.read_text("utf-8"))) == remembered.MOST
    assert not machine.tries()
    machine.driver = "driver 0"
    assert machine.tries()


@pytest.mark.parametrize("text", ["", "[", "[]", '{"a": 3}', '{"a": [3]}', "\x00" * 40])
def test_a_damaged_file_costs_a_trial_and_is_written_again(text, machine):
    machine.tries()
    machine.file.write_text(text, "utf-8")
    assert machine.tries()
    assert not machine.tries()


def test_where_nothing_can_be_written_every_start_tries(machine):
    machine.file.parent.parent.mkdir(exist_ok=True)
    machine.file.parent.write_text("a file where the folder should be", "utf-8")
    assert machine.tries()
    assert machine.tries()


def test_nothing_is_remembered_without_a_gpu_or_a_known_driver_or_where_all_is_tried_afresh(machine, monkeypatch):
    assert machine.tries(device=torch.device("cpu"))
    assert machine.tries(device=torch.device("cpu"))
    machine.driver = ""
    assert machine.tries()
    assert machine.tries()
    machine.driver = "known"
    machine.tries()
    with remembered.afresh():
        assert machine.tries()
    assert not machine.tries()
    monkeypatch.setattr(remembered, "ALWAYS", True)
    assert machine.tries()


def test_any_source_of_kernels_and_their_definitions_counts(tmp_path):
    for name in ("compute/a.py", "cache/b.py", "services/c.py", "compute/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1", "utf-8")
    before = remembered.sources_hash(tmp_path)
    for name, counts in (("services/c.py", False), ("compute/d.txt", False), ("cache/b.py", True)):
        (tmp_path / name).write_text("x = 2", "utf-8")
        assert (remembered.sources_hash(tmp_path) != before) is counts
    before = remembered.sources_hash(tmp_path)
    (tmp_path / "compute/a.py").rename(tmp_path / "compute/e.py")
    assert remembered.sources_hash(tmp_path) != before
    assert drivers_and_gpus(tmp_path) == []
