"""The index of licences, made for a stand-in program from the tests' own environment."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from kit import environment, licences, system_licences

from tests.packaging import linux_standin

PYTHON = Path(sys.executable)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = linux_standin.window(tmp_path_factory.mktemp("program"))
    licences.collect(program, PYTHON)
    return program


def index(program: Path) -> dict[str, dict[str, object]]:
    listed = json.loads((program / "_internal" / "licences" / "index.json").read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in listed}


def test_what_is_bundled_is_named_and_nothing_else(program: Path) -> None:
    named = set(index(program))
    assert {"Kvasir", "CPython", "uv", "PySide6_Essentials", "Qt", "ICU", "shiboken6", "torch"} <= named
    assert {"GCC runtime libraries", "libquadmath"} <= named
    assert not named & {"pytest", "ruff", "transformers", "OpenBLAS", "kvasir"}


def test_texts_are_those_that_the_index_names(program: Path) -> None:
    folder = program / "_internal" / "licences"
    named = [file for entry in index(program).values() for file in entry["files"]]  # type: ignore[attr-defined]
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert set(named) | {"index.json"} == there
    assert all((folder / file).stat().st_size for file in named)
    assert all(entry["licence"] for entry in index(program).values())


def test_each_thing_stands_once_in_the_order_of_names_with_a_licence_on_one_line(program: Path) -> None:
    listed = json.loads((program / "_internal" / "licences" / "index.json").read_text(encoding="utf-8"))
    names = [entry["name"].lower() for entry in listed]
    assert names == sorted(set(names))
    folders = [file.split("/")[0] for entry in listed for file in entry["files"][:1]]
    assert len(set(folders)) == len(folders)
    assert all(len(entry["licence"].splitlines()) == 1 for entry in listed)


def test_qt_comes_with_the_lgpl_and_where_its_source_is(program: Path) -> None:
    folder = program / "_internal" / "licences"
    assert index(program)["Qt"]["version"] == index(program)["PySide6_Essentials"]["version"]
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in (folder / "qt" / "LGPL-3").read_text(encoding="utf-8")
    assert "https://download.qt.io/official_releases/" in (folder / "qt" / "SOURCE.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_library_of_this_machine_is_named_by_its_package(program: Path, tmp_path: Path) -> None:
    library = Path("/usr/lib/x86_64-linux-gnu/libz.so.1")
    if system_licences.package_of("libz.so.1") == "":
        pytest.skip("no package of this machine brings libz.so.1")
    other = linux_standin.program(tmp_path)
    shutil.copy(library.resolve(), other / "_internal" / "libz.so.1")
    licences.collect(other, PYTHON)
    assert index(other)["zlib1g"]["files"] == ["zlib1g/copyright"]


def test_same_twice(program: Path) -> None:
    folder = program / "_internal" / "licences"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "left-over").write_text("old", encoding="utf-8")
    licences.collect(program, PYTHON)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_thing_without_a_text_stops_the_build(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "TEXTS", {})
    with pytest.raises(licences.MissingLicence, match=r"PySide6_Essentials, shiboken6\."):
        licences.collect(program, PYTHON)


@pytest.mark.slow
def test_binary_that_nobody_brought_stops_the_build(tmp_path: Path) -> None:
    other = linux_standin.program(tmp_path)
    shutil.copy(linux_standin.TRUE, other / "_internal" / "unheard-of")
    with pytest.raises(licences.MissingLicence, match=r"_internal/unheard-of"):
        licences.collect(other, PYTHON)


@pytest.mark.slow
def test_library_under_the_gpl_alone_stops_the_build(tmp_path: Path) -> None:
    library = Path("/usr/lib/x86_64-linux-gnu/libreadline.so.8")
    if not library.exists() or not system_licences.package_of(library.name):
        pytest.skip("no package of this machine brings libreadline.so.8")
    other = linux_standin.program(tmp_path)
    shutil.copy(library.resolve(), other / "_internal" / library.name)
    with pytest.raises(licences.RefusedLicence, match=r"libreadline8 \(leave out the module readline\)"):
        licences.collect(other, PYTHON)


def test_module_in_a_program_s_archive_counts_as_bundled(program: Path) -> None:
    item = {"name": "some-dist", "files": ["some/part.py", "some_dist-1.dist-info/METADATA"]}
    assert licences._is_taken(item, program, {"frozen": True, "modules": ["some.part"]})
    assert not licences._is_taken(item, program, {"frozen": True, "modules": ["some", "other.part"]})


def test_compiled_module_counts_as_bundled(tmp_path: Path) -> None:
    item = {"name": "some-dist", "files": ["some/part.py", "some_dist-1.dist-info/METADATA"]}
    nothing = {"frozen": True, "modules": []}
    assert not licences._is_taken(item, tmp_path, nothing)
    (tmp_path / "_internal" / "some").mkdir(parents=True)
    (tmp_path / "_internal" / "some" / "part.pyc").write_bytes(b"compiled")
    assert licences._is_taken(item, tmp_path, nothing)


def test_frozen_program_begins_with_pyinstaller_s_code(tmp_path: Path) -> None:
    item = {"name": "pyinstaller", "files": ["PyInstaller/__init__.py"]}
    assert licences._is_taken(item, tmp_path, {"frozen": True, "modules": []})
    assert not licences._is_taken(item, tmp_path, {"frozen": False, "modules": []})


def test_program_that_pyinstaller_did_not_make_has_no_modules(tmp_path: Path) -> None:
    assert environment.modules(linux_standin.TRUE) == []
