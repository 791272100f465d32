"""Where programs and tools lie, in a Python environment and in a packaged program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.link import child
from engine.base import installation
from engine.doors.cli import window


def test_in_a_python_environment_modules_run_by_the_interpreter():
    assert not installation.packaged()
    assert installation.program_folder() is None
    assert installation.uv() is None
    assert installation.python() == Path(sys.executable)
    assert (installation.sources() / "engine" / "base" / "installation.py").is_file()
    with pytest.raises(RuntimeError):
        installation.program("kvasir")


def test_no_child_imports_from_the_folder_that_one_stands_in(monkeypatch, tmp_path):
    (tmp_path / "random.py").write_text('raise SystemExit("my own random.py ran")')
    monkeypatch.chdir(tmp_path)
    opened = []
    with monkeypatch.context() as patch:
        patch.setattr(window, "has_display", lambda: True)
        patch.setattr(os, "name", "other")  # where a process cannot become another one
        patch.setattr(subprocess, "call", lambda line, env: opened.append(line) or 0)
        window.open_window()
    engine, module = installation.engine_command(), installation.own_module("engine.compute.native.build")
    for line in (engine, module, child.default_command(), opened[0]):
        assert line[:3] == [sys.executable, "-P", "-m"]
    done = subprocess.run([*engine, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="the folder of a process cannot be deleted there")
def test_a_folder_that_was_deleted_is_none_to_import_from(monkeypatch, tmp_path):
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "-P" in installation.engine_command()


def test_in_a_packaged_program_everything_lies_beside_it(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "kvasir-window"))
    monkeypatch.setattr(sys, "platform", "linux")
    engine = str(tmp_path / "kvasir-engine")
    assert installation.engine_command() == [engine]
    assert child.default_command() == [engine, "serve", "--child"]
    assert installation.python().parent.parent == tmp_path / "python"
    assert installation.uv() == tmp_path / "tools" / "uv"
