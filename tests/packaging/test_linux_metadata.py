"""The menu entry, the file type, the description, the manual page and the icons."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from kit import icons, manual, publisher, share

ROOT = Path(__file__).resolve().parents[2]


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("program")
    share.write(program)
    return program / "share"


@needs("desktop-file-validate")
def test_menu_entry_is_valid(written: Path) -> None:
    entry = written / "applications" / "kvasir.desktop"
    done = subprocess.run(["desktop-file-validate", str(entry)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_window_belongs_to_the_menu_entry(written: Path) -> None:
    named = re.search(r'setDesktopFileName\("([^"]+)"\)', (ROOT / "app" / "start.py").read_text(encoding="utf-8"))
    assert named is not None
    entry = (written / "applications" / f"{named[1]}.desktop").read_text(encoding="utf-8")
    assert f"StartupWMClass={named[1]}\n" in entry
    assert "Exec=kvasir %f\n" in entry


@needs("appstreamcli")
@pytest.mark.parametrize("published", [False, True])
def test_description_is_valid(published: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "HOME", "https://example.org/kvasir" if published else "")
    monkeypatch.setattr(publisher, "PICTURES", "https://example.org/kvasir/docs/screenshots" if published else "")
    file = tmp_path / f"{publisher.COMPONENT}.metainfo.xml"
    file.write_text(share.metainfo(), encoding="utf-8")
    done = subprocess.run(
        ["appstreamcli", "validate", "--no-net", "--no-color", "--pedantic", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert not re.search(r"^\s*[EW]:", done.stdout, re.MULTILINE), done.stdout
    root = ElementTree.fromstring(share.metainfo())
    images = [image.text for image in root.iter("image")]
    assert bool(images) == published
    assert all(text and text.startswith(publisher.PICTURES + "/") for text in images)
    assert len(publisher.unset()) == (1 if published else 3)


def test_screenshots_named_are_there_in_their_size() -> None:
    images = list(ElementTree.parse(share.LINUX / "metainfo.xml").getroot().iter("image"))
    assert images
    for image in images:
        picture = ROOT / "docs" / "screenshots" / str(image.text)
        assert _size(picture) == (int(image.attrib["width"]), int(image.attrib["height"]))


def test_newest_release_is_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert share.releases()[0][0] == project["version"]


@needs("update-mime-database")
def test_files_are_known_by_name_and_by_content(written: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(written / "mime", data / "mime")
    done = subprocess.run(
        ["update-mime-database", "-V", str(data / "mime")], capture_output=True, text=True, check=True
    )
    assert "rror" not in done.stderr
    (tmp_path / "named.gguf").write_bytes(b"")
    (tmp_path / "unnamed").write_bytes(b"GGUF\x03\0\0\0")
    (tmp_path / "other").write_bytes(b"\0GGUF\x03\0\0")
    ask = (
        "import sys; from PySide6.QtCore import QMimeDatabase as D\n"
        "print(*[D().mimeTypeForFile(path).name() for path in sys.argv[1:]])"
    )
    files = [str(tmp_path / name) for name in ("named.gguf", "unnamed", "other")]
    environment = os.environ | {"XDG_DATA_HOME": str(data)}
    told = subprocess.run([sys.executable, "-c", ask, *files], env=environment, capture_output=True, check=True)
    assert told.stdout.decode().split() == ["application/x-gguf", "application/x-gguf", "application/octet-stream"]


def test_manual_names_every_command_and_option(written: Path) -> None:
    import typer.main

    from engine.doors.cli.main import app

    page = (written / "man" / "man1" / "kvasir.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert "kvasir chat" in manual.commands()
    assert "kvasir models check" in manual.commands()
    for command in manual.commands():
        assert f"\\fB{command}\\fR" in page
    chat = typer.main.get_command(app).commands["chat"]
    assert all(f"\\fB{name}\\fR" in page for option in chat.params for name in option.opts if name[0] == "-")
    assert "kvasir operation" not in page


@needs("man")
def test_manual_renders_without_warnings(written: Path) -> None:
    page = written / "man" / "man1" / "kvasir.1"
    environment = os.environ | {"LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert b"kvasir" in done.stdout


def test_icons_have_their_sizes_and_are_the_same_each_time(written: Path, tmp_path: Path) -> None:
    hicolor = written / "icons" / "hicolor"
    icons.write(tmp_path / "again")
    for size in (16, 22, 24, 32, 48, 64, 96, 128, 256, 512):
        relative = Path(f"{size}x{size}/apps/kvasir.png")
        assert _size(hicolor / relative) == (size, size)
        assert (hicolor / relative).read_bytes() == (tmp_path / "again" / relative).read_bytes()
    assert (hicolor / "scalable/apps/kvasir.svg").read_bytes() == icons.SOURCE.read_bytes()


def test_icon_shows_the_picture_on_a_transparent_ground(written: Path) -> None:
    from PySide6.QtGui import QImage

    picture = QImage(str(written / "icons/hicolor/256x256/apps/kvasir.png"))
    assert picture.pixelColor(0, 0).alpha() == 0
    assert picture.pixelColor(128, 10).name() == "#1b1e24"
    assert picture.pixelColor(74, 70).name() == "#5b8cff"


def _size(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack_from(">II", data, 16)
    return width, height
