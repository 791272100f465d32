"""The native code's compilers and libraries that are damaged or not for this processor."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from engine.compute.native import build, library
from engine.compute.native.instructions import PORTABLE, SETS

PLAIN = SETS[PORTABLE]
linux = pytest.mark.skipif(platform.system() != "Linux", reason="libraries of other systems are no ELF files")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library file that a test may damage, the only one there is."""
    built = build.library_file(PLAIN)
    if not built.is_file():
        pytest.skip("the native code is not built")
    file = Path(shutil.copy(built, tmp_path / "copy.so"))
    for module in (build, library):
        monkeypatch.setattr(module, "library_file", lambda _: file)
    return file


@linux
@pytest.mark.parametrize("kept", [0, 10, 64, 1000, 4096, 0.25, 0.5, 0.75, 0.99])
def test_a_library_that_is_cut_short_is_not_loaded(kept: float, copy: Path) -> None:
    whole = copy.read_bytes()
    copy.write_bytes(whole[: int(kept if kept > 1 else kept * len(whole))])
    assert not build.runs_here(PLAIN)
    found, reason = library.find_with.__wrapped__("auto")
    assert found is None
    assert reason.startswith("Kvasir's native code does not load here (")


@linux
def test_a_library_for_another_processor_is_told(copy: Path) -> None:
    whole = bytearray(copy.read_bytes())
    whole[18] = 62 + 183 - whole[18]
    copy.write_bytes(whole)
    assert not build.runs_here(PLAIN)
    assert f"is for another processor than {platform.machine()}" in library.load(PLAIN).reason


def test_a_library_of_other_code_is_told(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes().replace(build.source_hash(PLAIN).encode(), b"0" * 16))
    assert "was built from another version" in library.load(PLAIN).reason


def test_without_a_library_the_reason_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library_file", lambda _: tmp_path / "none.so")
    monkeypatch.setattr(build, "compilers", list)
    assert library.load(PLAIN).reason.endswith("there is no C compiler: install gcc, then `make native`")
    monkeypatch.setattr(build, "compilers", lambda: [["cc"]])
    assert library.load(PLAIN).reason.endswith("is not built (python -m engine.compute.native.build does it)")
    monkeypatch.setattr(build, "SOURCES", [])
    assert "did not come with this installation" in library.load(PLAIN).reason


def test_zig_compiles_where_there_is_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(build, "zig", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.compilers() == []
    assert build.compile_library(PLAIN, tmp_path / "none.so") == build.NO_COMPILER
    monkeypatch.setattr(build, "zig", lambda: Path("/zig"))
    assert [command[:3] for command in build.compilers()] == [["/zig", "cc", "-target"]]
    monkeypatch.setenv("CC", "other --flag")
    assert build.compilers() == [["other", "--flag"]]
