"""`kvasir desktop`: an entry that starts the program wherever it lies, and leaves no trace when it is removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.doors.cli.errors import CommandFailed
from engine.doors.cli.installation import desktop
from engine.doors.cli.installation.desktop import ENTRY, entry, install, installed, quote, remove, starts
from engine.doors.cli.main import app

TEMPLATE = """[Desktop Entry]
Type=Application
Version=1.4
Name=Kvasir
Comment=Chat with language models on this computer
Exec=kvasir %f
Icon=kvasir
Terminal=false
Categories=Utility;
MimeType=application/x-gguf;
Actions=doctor;

[Desktop Action doctor]
Name=Check this computer
Exec=kvasir-engine doctor
"""
MIME = """<?xml version="1.0" encoding="UTF-8"?>
<mime-info xmlns="http://www.freedesktop.org/standards/shared-mime-info">
  <mime-type type="application/x-gguf"><comment>GGUF model</comment><glob pattern="*.gguf"/></mime-type>
</mime-info>
"""
PATHS = [
    "plain",
    "with space",
    "Ærø 漢字 🐦",
    'q"uote',
    "do$HOME`id`",
    "per%fcent",
    "back\\slash",
    "tab\tbed",
    " lead",
    "a;b",
]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="freedesktop.org")


def program(folder: Path) -> Path:
    share = folder / "share"
    for name, content in {
        ENTRY: TEMPLATE,
        "icons/hicolor/48x48/apps/kvasir.png": "png",
        "icons/hicolor/scalable/apps/kvasir.svg": "<svg/>",
        "mime/packages/kvasir.xml": MIME,
        "metainfo/kvasir.xml": "not for a home",
    }.items():
        (share / name).parent.mkdir(parents=True, exist_ok=True)
        (share / name).write_text(content, "utf-8")
    return folder


def files(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}


def command(value: str) -> list[str]:
    """Exec's value read by the letter of the specification, field codes left as they are but for %%."""
    for written, character in (("\\s", " "), ("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r")):
        value = value.replace("\\\\", "\0").replace(written, character).replace("\0", "\\\\")
    value = value.replace("\\\\", "\\")
    found, rest = [], value
    while rest:
        if rest[0] == '"':
            argument, rest = "", rest[1:]
            while rest[0] != '"':
                if rest[0] == "\\":
                    rest = rest[1:]
                argument, rest = argument + rest[0], rest[1:]
            found.append(argument.replace("%%", "%"))
            rest = rest[1:].lstrip(" ")
        else:
            argument, _, rest = rest.partition(" ")
            found.append(argument)
    return found


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_path_is_one_argument(path: str) -> None:
    assert command(f"{quote(path)} %f") == [path, "%f"]


@linux
@pytest.mark.parametrize("name", PATHS)
def test_the_entry_starts_the_program_where_it_lies(tmp_path: Path, name: str) -> None:
    where, home = program(tmp_path / name), tmp_path / "share"
    written = install(where, home)
    lines = written.read_text("utf-8").split("\n")
    executed = [command(line.removeprefix("Exec=")) for line in lines if line.startswith("Exec=")]
    starter = ["env"] if "%" in name else []
    assert executed == [[*starter, str(where / "kvasir"), "%f"], [*starter, str(where / "kvasir-engine"), "doctor"]]
    assert installed(home)
    assert starts(home, where)
    assert not starts(home, tmp_path)
    if shutil.which("desktop-file-validate"):
        checked = subprocess.run(["desktop-file-validate", written], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout) == (0, "")
    expected = {
        "icons/hicolor/48x48/apps/kvasir.png",
        "icons/hicolor/scalable/apps/kvasir.svg",
        "mime/packages/kvasir.xml",
    }
    assert expected | {str(ENTRY)} <= files(home)
    assert not [path for path in files(home) if "metainfo" in path]
    remove(home)
    assert not home.exists() or not list(home.rglob("*"))


@linux
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("template", ["", "TryExec=kvasir\n"])
def test_menus_leave_out_a_program_that_is_gone(tmp_path: Path, name: str, template: str) -> None:
    where = program(tmp_path / name)
    text = entry(TEMPLATE.replace("Exec=kvasir %f\n", f"{template}Exec=kvasir %f\n"), where, [])
    tried = [line.removeprefix("TryExec=") for line in text.split("\n") if line.startswith("TryExec=")]
    assert [desktop._unescaped(value) for value in tried] == [str(where / "kvasir")]
    assert text.index("TryExec=") < text.index("[Desktop Action")


@linux
@pytest.mark.skipif(shutil.which("gio") is None, reason="GLib's launcher is not installed")
@pytest.mark.parametrize("name", ["with space", 'q"uo$te`', "per%fcent", "back\\slash", "Ærø 漢字"])
def test_a_desktop_launches_it(tmp_path: Path, name: str) -> None:
    where = program(tmp_path / name)
    starter = where / "kvasir"
    starter.write_text('#!/bin/sh\nprintf %s "$1" > "$(dirname "$0")/started"\n')
    starter.chmod(0o755)
    written = install(where, tmp_path / "share")
    model = tmp_path / "a model æ.gguf"
    model.touch()
    launched = subprocess.run(
        ["gio", "launch", written, model], capture_output=True, text=True, timeout=300, check=False
    )
    assert launched.returncode == 0, launched.stderr
    assert (where / "started").read_text() == str(model)


@linux
@pytest.mark.skipif(shutil.which("update-mime-database") is None, reason="shared-mime-info is not installed")
def test_other_file_types_and_entries_stay(tmp_path: Path) -> None:
    home = tmp_path / "share"
    (home / "mime/packages").mkdir(parents=True)
    (home / "mime/packages/other.xml").write_text(MIME.replace("gguf", "other"))
    (home / "applications").mkdir()
    (home / "applications/other.desktop").write_text(TEMPLATE)
    (home / "icons/hicolor/48x48/apps").mkdir(parents=True)
    (home / "icons/hicolor/48x48/apps/other.png").touch()
    install(program(tmp_path / "program"), home)
    assert "x-gguf" in (home / "mime/globs").read_text()
    remove(home)
    assert "x-gguf" not in (home / "mime/globs").read_text()
    assert "x-other" in (home / "mime/globs").read_text()
    kept = {"mime/packages/other.xml", "applications/other.desktop", "icons/hicolor/48x48/apps/other.png"}
    assert kept <= files(home)
    assert not [name for name in files(home) if "kvasir" in name]


def test_an_entry_of_the_users_own_is_left(tmp_path: Path) -> None:
    home = tmp_path / "share"
    (home / "applications").mkdir(parents=True)
    (home / ENTRY).write_text(TEMPLATE)
    with pytest.raises(CommandFailed, match="not made by Kvasir"):
        install(program(tmp_path / "program"), home)
    assert remove(home) == []
    assert (home / ENTRY).read_text() == TEMPLATE


def test_an_entry_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / "share"
    (home / "applications").mkdir(parents=True)
    for name in ("precious", "share/precious"):
        (tmp_path / name).touch()
    (home / ENTRY).write_text(
        f"[Desktop Entry]\n{desktop.FILES}=../precious;{tmp_path}/precious;precious;icons/../../precious;\n"
    )
    assert remove(home) == [home / ENTRY]
    assert (tmp_path / "precious").exists()
    assert (home / "precious").exists()


def test_installing_again_replaces(tmp_path: Path) -> None:
    home = tmp_path / "share"
    old, new = program(tmp_path / "old"), program(tmp_path / "new")
    (old / "share/icons/hicolor/48x48/apps/kvasir-old.png").touch()
    install(old, home)
    install(new, home)
    assert starts(home, new)
    assert not (home / "icons/hicolor/48x48/apps/kvasir-old.png").exists()


def test_a_path_that_no_entry_can_hold() -> None:
    with pytest.raises(CommandFailed, match="equals sign"):
        entry(TEMPLATE, Path("/opt/a=b"), [])


def test_where_there_is_no_program_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["desktop", "install"])
    assert done.exit_code == 1
    assert "Python environment" in done.output
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(desktop, "program_folder", lambda: Path("/usr/lib/kvasir"))
    assert "everybody's menu" in CliRunner().invoke(app, ["desktop", "install"]).output
    removed = CliRunner().invoke(app, ["desktop", "remove"])
    assert (removed.exit_code, "nothing into your menu" in removed.output) == (0, True)


@linux
def test_the_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "share æ"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setattr(desktop, "program_folder", lambda: program(tmp_path / "kvasir 0.1.0"))
    done = CliRunner().invoke(app, ["desktop", "install"])
    assert done.exit_code == 0, done.output
    assert installed(home)
    assert CliRunner().invoke(app, ["desktop", "remove"]).exit_code == 0
    assert not installed(home)
