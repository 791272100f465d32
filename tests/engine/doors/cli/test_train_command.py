"""`kvasir train-heads` as a user runs it, on the bundled model."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from engine.doors.cli import train
from engine.doors.cli.main import app


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    monkeypatch.setenv("KVASIR_MODELS", "")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.md"
    file.write_text("A page holds sixteen tokens of one answer, and is freed when the answer ends.\n" * 40, "utf-8")
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["train-heads", "kvasir-guide", "--rows", "8", "--length", "64", *arguments])


@pytest.mark.slow
def test_a_training_is_stopped_and_gone_on_with(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle; then the same command with fewer steps ends it and says what was gained."""
    asked = ("--kind", "medusa", "--text", str(text), "--out", str(tmp_path / "heads"))
    facts = train._facts

    def interrupted(report: train.TrainingProgress) -> str:
        if report.stage == "training":
            signal.raise_signal(signal.SIGINT)
        return facts(report)

    with monkeypatch.context() as patch:
        patch.setattr(train, "_LINE_SECONDS", 0.0)
        patch.setattr(train, "_facts", interrupted)
        before = signal.getsignal(signal.SIGINT)
        stopped = run(*asked, "--steps", "1000000")
        assert signal.getsignal(signal.SIGINT) is before
    assert stopped.exit_code == 130, stopped.output
    assert "Stopped after" in stopped.output
    assert "continues from there" in stopped.output
    assert {file.name for file in (tmp_path / "heads" / "training").iterdir()} >= {
        "rows.safetensors",
        "state.safetensors",
    }
    ended = run(*asked, "--steps", "3", "--resume")
    assert ended.exit_code == 0, ended.output
    assert "Tokens per step:" in ended.output
    assert "with a tree of 63" in ended.output
    assert f"Written to {tmp_path / 'heads'}" in ended.output
    assert len(load_file(tmp_path / "heads" / "medusa_lm_head.safetensors")) == 4 * 4


@pytest.mark.slow
def test_layers(text: Path, tmp_path: Path) -> None:
    done = run("--kind", "layers", "--text", str(text), "--out", str(tmp_path / "chosen"))
    assert done.exit_code == 0, done.output
    assert "Early exit: the first" in done.output
    assert (tmp_path / "chosen" / "speculation.json").is_file()


def test_what_cannot_be_done_is_one_sentence(text: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("--text", str(tmp_path / "none.txt")), "There is no text at"),
        (("--text", str(text), "--resume", "--out", str(tmp_path / "x")), "holds no training to go on with"),
        (("--text", str(text), "--out", str(text)), "cannot be made"),
    ):
        done = run("--kind", "eagle", *arguments)
        assert done.exit_code == 1
        assert isinstance(done.exception, SystemExit), done.exception
        assert words in done.stderr
    done = run("--kind", "other", "--text", str(text))
    assert done.exit_code == 2
    assert "none of medusa, eagle, layers" in done.stderr
