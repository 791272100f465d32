"""Files that a user's Kvasir keeps outside its program: which, how large, and how they are deleted.

Only what Kvasir makes is named here, so nothing else can be deleted: other files in its folders are told apart and
stay. Links are never followed: a link goes, what it points to stays. The bundled model belongs to the program, and
folders named by ``KVASIR_MODELS`` to their user: neither is looked into.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from engine.formats.gguf.find import is_gguf
from engine.library import paths as config
from engine.library.roots import UNFINISHED, store_folder, usual_store
from engine.library.store import repositories

_SETTINGS = (
    r"settings(\.version-\d+)?\.json(\.new|\.broken)?|hub-tokens\.json(\.new)?|models\.json(\.new|\.broken|\.lock)?"
    r"|(server-keys|mcp)\.json(\.new|\.lock)?|server-[0-9a-f]{16}\.pem(\.new)?"
)
_CHATS = (
    r"history\.db(\.(before|unread)-\d+(\.unfinished)?)?(-(wal|shm|journal))?"
    r"|history\.damaged-\d+\.db|version\.json(\.new)?"
)
"""The history, its copies from before upgrades and repairs, those set aside, and what SQLite keeps next to them."""

_MEASURED = r"runs\.(json|\d+)|activations\.json(\.new|\.lock)?"
"""Times of runs, and what 8-bit activations cost each model."""


class Entry(NamedTuple):
    """Something that Kvasir made, or that its user put among its models."""

    path: Path
    size: int
    """Bytes of the files in it; a link is none."""


class Item(NamedTuple):
    """A group of files that the user is asked about in one question."""

    key: str
    """The KEY of ``--purge-KEY``."""
    title: str
    question: str
    folder: Path
    entries: list[Entry]
    others: list[Entry] = []
    """What lies among them and is not Kvasir's."""
    also: list[Entry] = []
    """What goes with them and is listed, and counted, with another item."""

    @property
    def all(self) -> list[Entry]:
        return self.entries + self.also

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


def inventory() -> list[Item]:
    """Every item, also where nothing of it exists. Makes and changes nothing."""
    places = config.places()
    data, cache = places.data, places.cache
    store = store_folder()
    models, others = _models(store)
    return [
        Item("settings", "settings", "Delete the settings?", places.config, _matching(places.config, _SETTINGS)),
        Item(
            "chats",
            "chats",
            "Delete all chats, with their copies from before upgrades and what is saved to go on with them?",
            data,
            _matching(data, _CHATS) + _matching(data / "passages", r"[0-9a-f]{32}-[0-9a-f]{32}\.vectors"),
            also=_saved_chats(cache),  # they tell what was said
        ),
        Item("models", "models", "Delete the models in Kvasir's folder?", store, models, others),
        Item(
            "making",
            "unfinished models and measurements",
            "Delete models that are being made and are not finished, measurements, and the Lab's results?",
            data,
            _whole(data / "making") + _whole(data / "lab") + _matching(data, _MEASURED),
        ),
        Item("heads", "trained heads", "Delete the trained heads?", data / "heads", _whole(data / "heads")),
        Item("gpu", "GPU packs", "Delete the GPU packs?", data / "gpu", _whole(data / "gpu")),
        Item("caches", "caches", "Delete the caches (quantised weights, saved chats)?", cache, _caches(cache)),
        Item("logs", "logs", "Delete the logs?", places.log, _matching(places.log, r"kvasir\.log(\.\d+)?")),
    ]


def left_in_folders() -> list[Path]:
    """List what still lies in Kvasir's folders, at most two levels deep, folders before their contents."""
    places = config.places()
    found: list[Path] = []
    for folder in dict.fromkeys((places.config, places.data, places.cache, places.log)):
        for path in _listed(folder):
            inside = _listed(path) if path.name in ("models", "quantised", "chats", "passages") else []
            found += inside or [path]
    return list(dict.fromkeys(found))


def remove(path: Path) -> list[str]:
    """Delete a file, a link, or a folder with what is in it; a sentence for each that stays."""
    failed: list[str] = []

    def note(_: object, where: str, found: tuple[type[BaseException], BaseException, object]) -> None:
        error = found[1]
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            failed.append(f"{where} cannot be deleted ({error.strerror or error}).")

    try:
        if _is_folder(path):
            shutil.rmtree(path, onerror=note)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        failed.append(f"{path} cannot be deleted ({error.strerror or error}).")
    return failed


def remove_empty_folders() -> None:
    """Kvasir's folders that have nothing left in them, and the folders above that are Kvasir's alone."""
    places = config.places()
    inner = [places.data / "models", places.data / "passages", places.cache / "quantised", places.cache / "chats"]
    for folder in (*inner, places.run, places.log, places.cache, places.config, places.data, *places.above):
        with contextlib.suppress(OSError):
            folder.rmdir()  # refuses what is not empty, and links


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; links count nothing, nor does what cannot be read."""
    total, files = 0, [str(path)]
    if _is_folder(path):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    for file in files:
        with contextlib.suppress(OSError):
            status = os.lstat(file)
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def _models(folder: Path) -> tuple[list[Entry], list[Entry]]:
    """Split the folder into models (or folders with some) and the rest. In a folder that the user chose, only what was
    downloaded or copied there is Kvasir's."""
    if folder.is_symlink():
        return _whole(folder), []
    usual = folder == usual_store()
    models = [Path(os.path.abspath(path)) for path in config.models_in(folder)] if usual and folder.is_dir() else []
    fetched = [path for path, _ in repositories(folder)]
    found: tuple[list[Entry], list[Entry]] = [], []
    for path in _listed(folder):
        inside = [each for each in fetched if each.parent == path]
        rest = (
            [each for each in _listed(path) if each not in inside]
            if inside and not (usual or path.is_symlink())
            else []
        )
        if rest:  # the organisation's folder stays, with what the user put there
            found[0].extend(Entry(each, size_of(each)) for each in inside)
            found[1].extend(Entry(each, size_of(each)) for each in rest)
            continue
        own = path.name == UNFINISHED or inside or (usual and is_gguf(path))
        own = own or any(model == path or path in model.parents for model in models)
        found[0 if own else 1].append(Entry(path, size_of(path)))
    return found


def _caches(cache: Path) -> list[Entry]:
    """Files by their names where a folder is one of files, else the whole."""
    return [
        *_matching(cache / "quantised", r"[0-9a-f]{32}\.(packed|\d+\.\d+\.unfinished)"),
        *_saved_chats(cache),
        *_matching(cache, r"trials\.json(\.\d+)?"),
        *(entry for name in config.CACHES for entry in _whole(cache / name)),
    ]


def _saved_chats(cache: Path) -> list[Entry]:
    return _matching(cache / "chats", r"[0-9a-f]{32}\.(pages|index|index\.\d+\.unfinished)")


def _whole(path: Path) -> list[Entry]:
    return [Entry(path, size_of(path))] if os.path.lexists(path) else []


def _matching(folder: Path, name: str) -> list[Entry]:
    pattern = re.compile(name)
    return [
        Entry(path, size_of(path)) for path in _listed(folder) if pattern.fullmatch(path.name) and not _is_folder(path)
    ]


def _listed(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _is_folder(path: Path) -> bool:
    """A folder itself, no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
