"""`kvasir train-heads` as a user runs it, on the bundled model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

COMMAND = [sys.executable, "-m", "engine.cli.main", "train-heads", "kvasir-guide", "--rows", "8", "--length", "64"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {"KVASIR_HOME": str(tmp_path), "KVASIR_MODELS": "", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return {**os.environ, **own, "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.md"
    file.write_text("A page holds sixteen tokens of one answer, and is freed when the answer ends.\n" * 40, "utf-8")
    return file


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_training_is_stopped_and_gone_on_with(environment: dict[str, str], text: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle; then the same command with fewer steps ends it and says what was gained."""
    asked = ("--kind", "medusa", "--text", str(text), "--out", str(tmp_path / "heads"))
    command = [*COMMAND, *asked, "--steps", "1000000"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        for line in started.stdout:
            if line.startswith("training"):
                break
        started.send_signal(signal.SIGINT)
        rest = started.stdout.read()
        assert started.wait(300) == 130
    assert "Stopped after" in rest
    assert "continues from there" in rest
    assert {file.name for file in (tmp_path / "heads" / "training").iterdir()} >= {
        "rows.safetensors",
        "state.safetensors",
    }
    ended = run(environment, *asked, "--steps", "3", "--resume")
    assert ended.returncode == 0, ended.stderr
    assert "Tokens per step:" in ended.stdout
    assert "with a tree of 63" in ended.stdout
    assert f"Written to {tmp_path / 'heads'}" in ended.stdout
    assert len(load_file(tmp_path / "heads" / "medusa_lm_head.safetensors")) == 4 * 4


@pytest.mark.slow
def test_layers(environment: dict[str, str], text: Path, tmp_path: Path) -> None:
    done = run(environment, "--kind", "layers", "--text", str(text), "--out", str(tmp_path / "chosen"))
    assert done.returncode == 0, done.stderr
    assert "Early exit: the first" in done.stdout
    assert (tmp_path / "chosen" / "speculation.json").is_file()


@pytest.mark.slow
def test_what_cannot_be_done_is_one_sentence(environment: dict[str, str], text: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("--text", str(tmp_path / "none.txt")), "There is no text at"),
        (("--text", str(text), "--resume", "--out", str(tmp_path / "x")), "holds no training to go on with"),
        (("--text", str(text), "--out", str(text)), "cannot be made"),
    ):
        done = run(environment, "--kind", "eagle", *arguments)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert words in done.stderr
    done = run(environment, "--kind", "other", "--text", str(text))
    assert done.returncode == 2
    assert "none of medusa, eagle, layers" in done.stderr
