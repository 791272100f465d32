"""How many threads torch is left: no more than cores that the process may use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.loading.memory import probe


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of a machine with 16 cores; the process lives in outer/inner."""
    (tmp_path / "outer/inner").mkdir(parents=True)
    (tmp_path / "own").write_text("0::/outer/inner\n")
    monkeypatch.setattr(probe, "_CGROUP", tmp_path)
    monkeypatch.setattr(probe, "_OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(probe.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("place", "limit", "cores"),
    [
        (".", "max 100000", 16),
        (".", "100000 100000", 1),
        ("outer", "250000 100000", 2),
        ("outer/inner", "50000 100000", 1),
        ("outer/inner", "9900000 100000", 16),
        (".", "nonsense", 16),
        (".", "", 16),
    ],
)
def test_quotas_limit_cores(place: str, limit: str, cores: int, groups: Path) -> None:
    (groups / place / "cpu.max").write_text(limit)
    assert probe.usable_cores() == cores


def test_the_smallest_quota_counts(groups: Path) -> None:
    (groups / "cpu.max").write_text("400000 100000")
    (groups / "outer/cpu.max").write_text("300000 100000")
    (groups / "outer/inner/cpu.max").write_text("max 100000")
    assert probe.usable_cores() == 3


def test_affinity_counts(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert probe.usable_cores() == 2


def test_threads_follow_cores(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        (groups / "cpu.max").write_text("300000 100000")
        probe.limit_threads()
        assert torch.get_num_threads() == 4
        monkeypatch.delenv("OMP_NUM_THREADS")
        probe.limit_threads()
        assert torch.get_num_threads() == 3
        probe.limit_threads(spare=1)
        assert torch.get_num_threads() == 2
        (groups / "cpu.max").write_text("100000 100000")
        probe.limit_threads(spare=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
