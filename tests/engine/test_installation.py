"""Where programs and tools lie, in a Python environment and in a packaged program."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.link import child
from engine import installation


def test_in_a_python_environment_modules_run_by_the_interpreter():
    assert not installation.packaged()
    assert installation.program_folder() is None
    assert installation.uv() is None
    assert installation.python() == Path(sys.executable)
    assert installation.module_command("engine.bench.peers.worker") == [
        sys.executable,
        "-m",
        "engine.bench.peers.worker",
    ]
    assert child.engine_command() == installation.engine_command()
    assert (installation.sources() / "engine" / "installation.py").is_file()
    with pytest.raises(RuntimeError):
        installation.program("kvasir")


def test_in_a_packaged_program_everything_lies_beside_it(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "kvasir-window"))
    monkeypatch.setattr(sys, "platform", "linux")
    engine = str(tmp_path / "kvasir-engine")
    assert installation.engine_command() == child.engine_command() == [engine]
    assert installation.module_command("engine.bench.peers.worker") == [
        engine,
        "run-module",
        "engine.bench.peers.worker",
    ]
    assert child.default_command() == [engine, "serve", "--child"]
    assert installation.python().parent.parent == tmp_path / "python"
    assert installation.uv() == tmp_path / "tools" / "uv"


def test_a_module_of_kvasirs_runs_as_python_would_run_it(tmp_path):
    command = [*installation.engine_command(), "run-module", "engine.native.build"]
    subprocess.run(installation.module_command("engine.native.build"), capture_output=True, check=False)
    direct = subprocess.run(installation.module_command("engine.native.build"), capture_output=True, check=False)
    through = subprocess.run(command, capture_output=True, check=False)
    assert (through.returncode, through.stdout) == (direct.returncode, direct.stdout)


def test_only_modules_of_kvasirs_are_run():
    done = subprocess.run(
        [*installation.engine_command(), "run-module", "antigravity"], capture_output=True, check=False
    )
    assert done.returncode == 2
