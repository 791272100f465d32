"""The compiled library: that it is built, what is said where it is not, and its threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.compute.native import build, library
from engine.compute.native.instructions import PORTABLE, SETS


def test_it_is_built_wherever_there_is_a_compiler() -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    for each in filter(build.runs_here, SETS.values()):
        built = library.load(each)
        assert built.library is not None or (compiler is None and "not built" in built.reason), built.reason


def test_building_says_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    assert "could not run" in str(build.compile_library(SETS[PORTABLE], tmp_path / "a.so"))
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'products.c:1: error: no such thing' >&2\nexit 1\n", "utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert "no such thing" in str(build.compile_library(SETS[PORTABLE], tmp_path / "a.so"))
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(build, "zig", lambda: None)
    assert "install the package gcc" in str(build.compile_library(SETS[PORTABLE], tmp_path / "a.so"))
    assert not list(tmp_path.glob("*.so")) + list(tmp_path.glob("*.part"))


def test_a_stale_or_damaged_library_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SETS[PORTABLE]
    if build.library_file(plain).is_file():
        monkeypatch.setattr(library, "source_hash", lambda _: "another")
        assert "another version" in library.load(plain).reason
        monkeypatch.setattr(build, "source_hash", lambda _: "another")
        assert not build.is_current(plain)
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"not a library")
    monkeypatch.setattr(library, "library_file", lambda _: damaged)
    assert "does not load" in library.load(plain).reason
    monkeypatch.setattr(library, "library_file", lambda _: tmp_path / "absent.so")
    assert "not built" in library.load(plain).reason


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("check", ["-fsanitize=thread", "-fsanitize=address,undefined", "fork"])
def test_loops_are_done_whole_and_once(check: str, tmp_path: Path) -> None:
    """By threads that wake late, from several callers, and in a process that was forked; see threads.c."""
    program, source = tmp_path / "threads", Path(__file__).with_name("threads.c")
    flags = ["-std=gnu11", "-O2", "-g", "-pthread", *([check] if check.startswith("-") else [])]
    made = ["gcc", *flags, f"-I{build.FOLDER}", "-o", str(program), str(source), str(build.FOLDER / "threads.c")]
    if subprocess.run(made, capture_output=True, check=False).returncode and check.startswith("-"):
        pytest.skip(f"gcc has no library for {check}")
    command = [str(program), *([] if check.startswith("-") else [check])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
