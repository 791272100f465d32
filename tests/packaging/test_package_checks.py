"""What `make package` refuses to let out: folders of the build machine, links that lead out, a newer C library."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit import checks, layout

from app.help.pages import SOURCES
from app.language import LANGUAGES
from engine.compute.native import build
from engine.compute.native.instructions import SETS

PATH = b"/home/builder/kvasir"


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "build_paths", lambda: [PATH])
    folder = tmp_path / "kvasir"
    (folder / "_internal").mkdir(parents=True)
    return folder


def test_a_trace_in_a_binary_file_is_found_and_overwritten_in_place(program):
    file = program / "_internal" / "libx.so"
    file.write_bytes(b"\x7fELF\0\0prefix=" + PATH + b"/lib\0after")
    assert checks.traces(program, [PATH]) == [(file, PATH)]
    before = file.read_bytes()
    assert checks.scrub(program) == [file]
    after = file.read_bytes()
    assert len(after) == len(before)
    assert after.endswith(b"/kvasir/lib\0after")  # the end stays: other strings may share it
    assert checks.traces(program, [PATH]) == []
    assert checks.scrub(program) == []


def test_a_link_out_of_the_program_and_one_to_nowhere_are_found(program, tmp_path):
    (tmp_path / "outside").write_text("x")
    (program / "inside").write_text("x")
    (program / "good").symlink_to("inside")
    (program / "bad").symlink_to(tmp_path / "outside")
    (program / "nowhere").symlink_to("missing")
    assert [file.name for file, _ in checks.traces(program, [PATH])] == ["bad", "nowhere"]


def test_code_for_macos_that_was_overwritten_is_signed_again(program, tmp_path, monkeypatch):
    code, text = program / "_internal" / "libx.dylib", program / "_internal" / "x.py"
    code.write_bytes(bytes.fromhex("cffaedfe") + b"\0prefix=" + PATH + b"\0")
    text.write_bytes(b"prefix = '" + PATH + b"'\n")
    (program / "untouched.dylib").write_bytes(bytes.fromhex("cffaedfe"))
    calls, tools = tmp_path / "calls", tmp_path / "tools"
    tools.mkdir()
    (tools / "codesign").write_text(f'#!/bin/sh\necho "$@" >>"{calls}"\n')
    (tools / "codesign").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    assert checks.sign_again(checks.scrub(program)) == [code]
    assert calls.read_text().splitlines() == [f"--force --sign - {code}"]


def test_code_that_cannot_be_signed_again_ends_the_build(program, tmp_path, monkeypatch):
    code = program / "libx.dylib"
    code.write_bytes(bytes.fromhex("cffaedfe"))
    (tmp_path / "codesign").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "codesign").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SystemExit, match="codesign failed with exit status 1"):
        checks.sign_again([code])


def test_the_c_library_that_a_file_wants_is_read(program, monkeypatch):
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has this C library")
    shutil.copy2("/bin/ls", program / "ls")
    assert checks.newer_glibc(program) == []
    monkeypatch.setattr(checks, "GLIBC", (2, 2))
    assert [file.name for file, _ in checks.newer_glibc(program)] == ["ls"]


def test_what_no_installed_program_reads_is_found(program):
    wrong = {"_internal/.gitignore", "_internal/x/a.pyi", "_internal/x-1.dist-info/RECORD", "_internal/x/conftest.pyc"}
    right = {"_internal/x-1.dist-info/METADATA", "_internal/x/a.py", "_internal/x/native.h", "kvasir"}
    for name in wrong | right:
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_bytes(b"x")
    assert {file.relative_to(program).as_posix() for file in checks.litter(program)} == wrong


def test_the_sizes_add_up(program):
    (program / "kvasir").write_bytes(b"1" * 10)
    (program / "_internal" / "torch").mkdir()
    (program / "_internal" / "torch" / "a").write_bytes(b"1" * 100)
    assert checks.sizes(program) == [("torch", 100), ("kvasir", 10)]


def test_the_build_looks_for_the_checkout_and_the_interpreter():
    assert str(layout.ROOT).encode() in checks.build_paths()
    assert sys.base_prefix.encode() in checks.build_paths() or sys.base_prefix == "/"


def test_nothing_in_packaging_hides_pypis_package_of_that_name():
    assert not (layout.PACKAGING / "__init__.py").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import packaging.version"], cwd=layout.ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0


def test_what_is_staged_is_what_git_tracks_of_the_program(tmp_path, monkeypatch):
    from kit import freeze

    monkeypatch.setattr(freeze, "STAGE", tmp_path / "stage")
    monkeypatch.setattr(freeze, "run", lambda *command, **_: None)
    freeze.stage_sources()
    stage = tmp_path / "stage"
    assert (stage / "engine" / "compute" / "native" / "products.c").is_file()
    assert (stage / "assets" / "demo" / "kvasir-guide" / "model.safetensors").is_file()
    papers = {file.name for file in (layout.ROOT / "assets" / "papers").glob("*.json")}
    assert papers == {file.name for file in (stage / "assets" / "papers").iterdir()}, "figures that the Lab shows"
    assert all((stage / "docs" / name).is_file() for name, _ in SOURCES), "the help is the documentation"
    assert '(str(stage / "docs"), "docs")' in (layout.PACKAGING / "kvasir.spec").read_text(encoding="utf-8")
    assert not list(stage.glob("assets/demo/*.py"))
    assert not (stage / "assets" / "demo" / "knowledge").exists()
    languages = [file for file in (stage / "assets" / "languages").rglob("*") if file.is_file()]
    assert {file.name for file in languages} == {f"{code}.qm" for code in LANGUAGES if code != "en"}
    assert not list(stage.rglob("kvasir_native_*"))
    assert not (stage / "tests").exists()


def test_qt_speaks_the_languages_of_the_window():
    spec = (layout.PACKAGING / "kvasir.spec").read_text(encoding="utf-8")
    rules = spec[spec.index("PLUGINS = ") : spec.index("analysis.binaries = ")]
    known = {"stage": layout.ROOT, "Path": Path, "os": os}
    exec(rules, known)
    for place in ("PySide6/Qt/translations", "PySide6/translations"):  # where Windows has them
        there = [f"{place}/{name}.qm" for name in ("qtbase_de", "qtbase_fr", "qt_help_de", "qtbase_en")]
        assert [name for name in there if known["wanted"]((name, "", "DATA"))] == [f"{place}/qtbase_de.qm"]
    assert known["wanted"](("assets/languages/de.qm", "", "DATA"))


def test_native_code_is_found_and_missed(tmp_path):
    spec = (layout.PACKAGING / "kvasir.spec").read_text(encoding="utf-8")
    pattern = re.search(r'glob\("(kvasir_native[^"]*)"\)', spec)[1]
    assert all(build.library_file(each).match(pattern) for each in SETS.values())
    folder = tmp_path / "_internal" / "engine" / "compute" / "native"
    folder.mkdir(parents=True)
    (folder / "native.c").touch()
    assert checks.native_code(tmp_path) == []
    (folder / "kvasir_native_portable.so").touch()
    assert [file.name for file in checks.native_code(tmp_path)] == ["kvasir_native_portable.so"]


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("strip"), reason="gcc or strip is not installed")
def test_a_library_without_what_debuggers_read_still_has_its_functions(tmp_path):
    from kit import python_tree

    library = tmp_path / "libpython3.so"
    (tmp_path / "x.c").write_text("static int inner(void) { return 6; }\nint answer(void) { return 7 * inner(); }\n")
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "x.c", "-o", library], cwd=tmp_path, check=True)
    assert str(tmp_path).encode() in library.read_bytes()
    python_tree.strip(library)
    assert str(tmp_path).encode() not in library.read_bytes()
    assert ctypes.CDLL(str(library)).answer() == 42
