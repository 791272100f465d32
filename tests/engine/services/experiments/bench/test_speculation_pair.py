"""The script that measures speculation on a GPU, at a toy shape on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gpu import bench_speculation as on_gpu


@pytest.mark.slow
def test_the_script_for_a_gpu_at_a_toy_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first layers agree as often as was asked, and draft; each way is held against plain decoding."""
    file = tmp_path / "figures.json"
    told = ["--dry-run", "--rates", "0.6", "0.9", "--batches", "2", "--lengths", "3", "--tokens", "40", "--rounds", "1"]
    figures = on_gpu.main([*told, "--json", str(file)])
    drafters = ("first layers as a draft", "early exit")
    ways = (*(f"{title}, {length}" for title in drafters for length in ("3 ahead", "adaptive")), "automatic")
    assert [figure.way for figure in figures] == [*ways, *ways]
    low, high = (figure for figure in figures if figure.way == ways[0])
    assert (low.found, high.found) == (pytest.approx(0.6, abs=0.02), pytest.approx(0.9, abs=0.02))
    assert low.factor > high.factor > 0
    assert low.holds < high.holds
    assert abs(high.holds - 0.9) < 0.12
    assert high.tokens_per_step > 2.5
    assert all(min(figure.tokens_per_second, figure.plain) > 0 for figure in figures)
    assert "SYNTHETIC" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert "synthetic" in written["pair"]
    assert len(written["figures"]) == len(figures)


def test_drafts_that_were_reached_in_a_batch() -> None:
    """Of three chains, one of 2 that held whole, one of 3 that held whole, one of 3 that failed at its second."""
    assert on_gpu._whole((3, 3, 2), (3, 2, 1)) == 2
    assert on_gpu._whole((1,), (0,)) == 0
