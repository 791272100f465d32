"""`python -m tests.bench assisted`: transformers drafting with the weights that the packed files stand for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from engine.compute.batch import SequenceRows
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.library.paths import bundled_model
from engine.loading.runners import new_runner
from engine.protocol import Sampling
from engine.services.experiments.workloads import texts as speculation_texts
from engine.services.experiments.workloads.texts import Prompt, Text
from tests.bench import __main__ as tools
from tests.bench import assisted as speculation_assisted
from tests.bench.assisted import dequantised, measure_assisted
from tests.bench.report import AllFigures


def test_without_transformers_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation_assisted.importlib.util, "find_spec", lambda name: None)
    checkpoint = open_checkpoint(bundled_model().path)
    figures = measure_assisted(checkpoint, "", [Text("talk", "free talk", [Prompt([1], Sampling())])], 1)
    assert figures.rows == []
    assert figures.absent == [
        "transformers' assisted generation and prompt lookup: the package transformers is not installed"
    ]
    monkeypatch.undo()
    monkeypatch.setattr(speculation_assisted.psutil, "virtual_memory", lambda: type("", (), {"available": 1000}))
    (reason,) = measure_assisted(checkpoint, "", [Text("", "", [Prompt([1], Sampling())])], 1).absent
    assert "do not fit into memory" in reason


def test_transformers_has_the_weights_of_the_packed_file() -> None:
    """Its logits are those of this engine's model in float32 with the weights unpacked."""
    checkpoint = open_checkpoint(bundled_model().path)
    theirs = dequantised(checkpoint)
    ids = list(range(5, 69))
    ours = load_model(checkpoint, torch.device("cpu"), torch.float32, "16bit")
    rows = [SequenceRows(ids, 0, [1, 2, 3, 4], want_logits=len(ids))]
    logits = new_runner(ours, 5, torch.device("cpu")).forward(rows).logits
    with torch.inference_mode():
        assert torch.allclose(theirs(torch.tensor([ids])).logits[0], logits, atol=2e-3)


@pytest.mark.long
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one prompt of each kind."""
    monkeypatch.setattr(speculation_texts, "_CODE", speculation_texts._CODE[:1])
    monkeypatch.setattr(speculation_texts, "_AGAIN", speculation_texts._AGAIN[:1])
    monkeypatch.setattr(speculation_texts, "_LINES", ())
    monkeypatch.setattr(speculation_texts, "_ABOUT_KVASIR", speculation_texts._ABOUT_KVASIR[:1])
    monkeypatch.setattr(tools, "TOKENS", 24)
    file = tmp_path / "figures.json"
    done = CliRunner().invoke(tools.app, ["assisted", "--rounds", "1", "--json", str(file)])
    report = msgspec.json.decode(file.read_bytes(), type=AllFigures)
    assert report.assisted is not None
    assert [(row.text, row.title) for row in report.assisted.rows] == [
        (text, f"transformers, {way}")
        for text in ("code that goes on", "a given text edited", "free talk")
        for way in ("assisted", "lookup")
    ]
    assert all(row.equal == row.answers == 1 for row in report.assisted.rows)
    assert "transformers, lookup" in " ".join(done.output.split())
