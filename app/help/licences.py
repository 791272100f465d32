"""Components of Kvasir: those of a package, or those of the Python environment that it runs in. No widgets."""

from __future__ import annotations

import logging
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import msgspec

from app.language import tr

log = logging.getLogger(__name__)

INDEX = "index.json"
_TEXTS = ("licen", "copying", "notice", "authors", "copyright")
"""Beginnings of the names of files with licence texts, in lower case."""
_LONGEST_NAME = 60
"""The field "License" holds a name, or the whole text, which is no name."""
_HOMES = ("homepage", "home-page", "home", "repository", "source", "source code", "documentation")


class Bundled(NamedTuple):
    """One part. ``files`` hold its texts."""

    name: str
    version: str
    licence: str
    home: str
    files: tuple[Path, ...]


class _Component(msgspec.Struct):
    name: str
    version: str = ""
    licence: str = ""
    home: str = ""
    files: list[str] = []


def load(folder: Path) -> list[Bundled]:
    """Load the components in the index of a package, Kvasir first; without an index, the distributions installed here.

    Raises msgspec.MsgspecError for an invalid index, OSError for one that cannot be read.
    """
    try:
        entries = msgspec.json.decode((folder / INDEX).read_bytes(), type=list[_Component])
    except FileNotFoundError:
        return installed()
    return _sorted([Bundled(e.name, e.version, e.licence, e.home, _inside(folder, e.files)) for e in entries])


def installed() -> list[Bundled]:
    """The distributions of this Python environment, each once."""
    found: dict[str, Bundled] = {}
    for distribution in metadata.distributions():
        entry = _describe(distribution)
        if entry.name:
            found.setdefault(entry.name.lower(), entry)
    return _sorted(list(found.values()))


def search(entries: list[Bundled], words: str) -> list[Bundled]:
    """The parts whose name or licence hold every word, in any order."""
    wanted = words.lower().split()
    return [e for e in entries if all(word in f"{e.name} {e.version} {e.licence}".lower() for word in wanted)]


def text(entry: Bundled) -> str:
    """The texts of a part, each below the name of its file where there are several; where there are none, that."""
    parts = []
    for path in entry.files:
        try:
            body = path.read_text(encoding="utf-8", errors="replace").rstrip().lstrip("\n")
        except OSError as error:
            log.warning("licence text %s: %s", path, error)
            body = tr("This text could not be read ({why}).", why=error.strerror)
        parts.append(f"{path.name}\n\n{body}" if len(entry.files) > 1 else body)
    if parts:
        return "\n\n\n".join(parts)
    none = tr("Its licence's text did not come with it.")
    return f"{none} {tr('It is at {address}.', address=entry.home)}" if entry.home else none


def _sorted(entries: list[Bundled]) -> list[Bundled]:
    return sorted(entries, key=lambda entry: (entry.name.lower() != "kvasir", entry.name.lower()))


def _inside(folder: Path, names: list[str]) -> tuple[Path, ...]:
    """Names that lead out of the folder are not texts of its index."""
    root = folder.resolve()
    return tuple(path for name in names if (path := (root / name).resolve()).is_relative_to(root))


def _describe(distribution: metadata.Distribution) -> Bundled:
    facts = distribution.metadata
    files = tuple(
        Path(str(file.locate()))
        for file in distribution.files or ()
        if file.name.lower().startswith(_TEXTS) and any(".dist-info" in part for part in file.parts)
    )
    return Bundled(_field(facts, "Name"), _field(facts, "Version"), _licence(facts), _home(facts), files)


def _field(facts: metadata.PackageMetadata, name: str) -> str:
    """ "" where there is none: some readers of metadata raise KeyError for that, some give None."""
    return next(iter(facts.get_all(name) or []), "")


def _licence(facts: metadata.PackageMetadata) -> str:
    for field in ("License-Expression", "License"):
        value = _field(facts, field).strip()
        if value not in ("", "UNKNOWN") and "\n" not in value and len(value) <= _LONGEST_NAME:
            return value
    names = [
        classifier.split(" :: ")[-1]
        for classifier in facts.get_all("Classifier") or []
        if classifier.startswith("License :: ") and not classifier.endswith("OSI Approved")
    ]
    return ", ".join(names)


def _home(facts: metadata.PackageMetadata) -> str:
    urls = {}
    for line in facts.get_all("Project-URL") or []:
        label, _, url = line.partition(",")
        urls[label.strip().lower()] = url.strip()
    return _field(facts, "Home-page") or next((urls[name] for name in _HOMES if name in urls), "")
