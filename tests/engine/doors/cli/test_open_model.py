"""`kvasir FILE.gguf`: what counts as a model to open in the window, and what stays a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.base.installation import own_module
from engine.doors.cli import main as command
from engine.doors.cli import window
from engine.doors.cli.window import model_in

COMMANDS = {"chat", "serve", "models"}


def test_what_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "mine").mkdir()
    assert model_in(["mine"], COMMANDS) == "mine"
    assert model_in([str(tmp_path)], COMMANDS) == str(tmp_path)
    assert model_in(["gone.GGUF"], COMMANDS) == "gone.GGUF"
    assert model_in(["file:///models/a%20b.gguf"], COMMANDS) == "file:///models/a%20b.gguf"


@pytest.mark.parametrize("arguments", [[], [""], ["models"], ["x"], ["--version"], ["mine", "chat"], ["chat", "mine"]])
def test_what_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("models", "mine", "chat", "--version"):
        (tmp_path / name).mkdir()
    assert model_in(arguments, COMMANDS) == ""


def test_the_command_knows_its_own_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(window, "open_window", lambda model="": opened.append(model) or 0)
    for name in ("doctor", "qwen"):
        (tmp_path / name).mkdir()
    command._open_model(["doctor"])
    assert opened == []
    with pytest.raises(SystemExit) as left:
        command._open_model(["qwen"])
    assert (left.value.code, opened) == (0, ["qwen"])


def test_the_window_gets_the_path(tmp_path: Path) -> None:
    """Without a display the window is refused, not the argument."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    kept.pop("QT_QPA_PLATFORM", None)
    model = tmp_path / "a model.gguf"
    model.write_bytes(b"GGUF")
    environment = {**kept, "KVASIR_HOME": str(tmp_path)}
    line = [sys.executable, "-m", "engine.doors.cli.main", str(model)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "no display" in done.stderr


def test_it_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(window, "has_display", lambda: True)
    monkeypatch.setattr(os, "name", "other")  # where a process cannot become another one
    monkeypatch.setattr(subprocess, "call", lambda line, env: ran.append(line) or 0)
    assert window.open_window("a model.gguf") == 0
    assert window.open_window() == 0
    assert ran == [[*own_module("app"), "a model.gguf"], own_module("app")]
