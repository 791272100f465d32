"""What a desktop reads about the program: its menu entry, icons, file type, description and manual page."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

from kit import icons, manual, publisher
from kit.layout import LINUX, ROOT


def write(program: Path) -> None:
    """Fill ``program``/share, from nothing."""
    share = program / "share"
    shutil.rmtree(share, ignore_errors=True)
    _text(share / "applications" / "kvasir.desktop", (LINUX / "kvasir.desktop").read_text(encoding="utf-8"))
    _text(share / "mime" / "packages" / "kvasir.xml", (LINUX / "kvasir.xml").read_text(encoding="utf-8"))
    _text(share / "metainfo" / f"{publisher.COMPONENT}.metainfo.xml", metainfo())
    _text(share / "man" / "man1" / "kvasir.1", manual.text())
    _text(share / "doc" / "using.md", (ROOT / "docs" / "using.md").read_text(encoding="utf-8"))
    icons.write(share / "icons" / "hicolor")


def metainfo() -> str:
    """The AppStream description, with what publisher.py knows; a part that it does not know is left out."""
    tree = ElementTree.parse(LINUX / "metainfo.xml")
    component = tree.getroot()
    _found(component, "id").text = publisher.COMPONENT
    _found(component, "developer_name").text = publisher.NAME
    screenshots = _found(component, "screenshots")
    for image in screenshots.iter("image"):
        image.text = f"{publisher.PICTURES}/{image.text}"
    if not publisher.PICTURES:
        component.remove(screenshots)
    if publisher.HOME:
        home = ElementTree.Element("url", type="homepage")
        home.text = publisher.HOME
        home.tail = "\n  "
        component.insert(list(component).index(_found(component, "launchable")), home)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(component, encoding="unicode") + "\n"


def releases() -> list[tuple[str, str, str]]:
    """(version, date as YYYY-MM-DD, what is new) of every release, the newest first."""
    listed = _found(ElementTree.parse(LINUX / "metainfo.xml").getroot(), "releases")
    return [
        (release.attrib["version"], release.attrib["date"], " ".join(" ".join(release.itertext()).split()))
        for release in listed
    ]


def _found(parent: ElementTree.Element, name: str) -> ElementTree.Element:
    element = parent.find(name)
    if element is None:
        raise ValueError(f"metainfo.xml has no <{name}>.")
    return element


def _text(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8", newline="\n")
