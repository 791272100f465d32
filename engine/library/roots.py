"""Folders in which models are kept and looked for: ``models.json``, next to the settings.

The window's settings file is held by the window, which writes all of it from memory; this one is changed by any
process, under a lock, and read again each time. The window asks `kvasir models folders` as the terminal does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.base import folders
from engine.base.errors import MOST, plain
from engine.base.fetching.errors import FetchFailed
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, can_be_path, decode_file, read_json
from engine.formats.gguf.find import gguf_models

UNFINISHED = ".downloads"
"""The folder in a store of what is on its way. That it is there tells a store from the empty place of a disk."""
DEPTH = 4
"""Levels below a root at which models are looked for."""
MOST_FOLDERS = 4000
"""Folders that are looked into below one root."""


class LibraryFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """A request about the models' folders failed; the message is a sentence for a person."""

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence, most=MOST))


class Reference(msgspec.Struct, frozen=True):
    """A model that was imported and stays where it is."""

    name: str
    path: str


class ModelRoots(msgspec.Struct, frozen=True, omit_defaults=True):
    """``models.json``. ``store``: where downloads go, "" the usual place. ``leaving``: the store that all was
    moved from, as long as not everything in it is deleted."""

    store: str = ""
    roots: list[str] = []
    references: list[Reference] = []
    leaving: str = ""


def file() -> Path:
    """Path of ``models.json``."""
    return folders.place("config", folders.SYSTEM.user_config_path) / "models.json"


def read() -> ModelRoots:
    """The settings in force; the defaults where nothing is kept, or nothing that makes sense."""
    try:
        kept = decode_file(file(), ModelRoots) or ModelRoots()
    except UnreadableFileError:
        return ModelRoots()
    return ModelRoots(
        store=kept.store if can_be_path(kept.store) else "",
        roots=[each for each in kept.roots if can_be_path(each)],
        references=[each for each in kept.references if can_be_path(each.path)],
        leaving=kept.leaving if can_be_path(kept.leaving) else "",
    )


def change(edit: Callable[[ModelRoots], ModelRoots]) -> ModelRoots:
    """Replace what is kept; a file that cannot be read is set aside. ``edit`` may raise. Raises :class:`LibraryFailed`
    and OSError."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = LibraryFailed("Another Kvasir is changing the models' folders. Wait a moment and try again.")
    with lock(path.with_name(path.name + ".lock"), busy, 10.0):
        new = edit(read())
        try:
            written = msgspec.json.format(msgspec.json.encode(new), indent=1)
        except UnicodeEncodeError:
            raise LibraryFailed("A folder or model whose name is not UTF-8 cannot be kept. Rename it first.") from None
        try:
            decode_file(path, ModelRoots)
        except UnreadableFileError:
            path.replace(path.with_name(path.name + ".broken"))
        made = path.with_name(path.name + ".new")
        with made.open("wb") as out:
            out.write(written)
            out.flush()
            os.fsync(out.fileno())
        made.replace(path)
    return new


def usual_store() -> Path:
    """Folder that models are downloaded to unless the user chose another."""
    return folders.data_place() / "models"


def store_folder() -> Path:
    """Folder that models are downloaded to: the chosen one, else the usual one."""
    chosen = read().store
    return Path(chosen) if chosen else usual_store()


def store_is_there() -> bool:
    """Return True if models can be downloaded to the store: its disk is there, or the usual store, made when needed."""
    store = store_folder()
    return store == usual_store() or os.path.isdir(store / UNFINISHED)


def need_store() -> None:
    """Raises :class:`FetchFailed` where the store's disk is not there, in whose place nothing must be written."""
    if not store_is_there():
        raise FetchFailed(
            f"{store_folder()}, where models are kept, is not there. Plug in its disk, or choose another folder: "
            "kvasir models folders --downloads PATH."
        )


def stores() -> list[Path]:
    """Folders that may hold fetched models: the store, and those roots that were one."""
    return [store_folder(), *map(Path, read().roots)]


def is_there(reference: Reference) -> bool:
    """Return True if an imported model is still where it was."""
    return os.path.isfile(reference.path) or os.path.isfile(Path(reference.path) / "config.json")


def forget(model: str) -> bool:
    """Forget the imported model of that name or path, which stays where it is; False where there is none."""
    held = read().references
    left = [each for each in held if model not in (each.name, each.path)]
    if left != held:
        change(
            lambda now: msgspec.structs.replace(
                now, references=[each for each in now.references if model not in (each.name, each.path)]
            )
        )
    return left != held


def models_below(root: Path) -> list[Path]:
    """The models in a folder and below it, as deep as :data:`DEPTH`. Hidden folders and links to folders are passed
    over, and so is what cannot be read, and what lies within a model: its heads, say."""
    found: dict[Path, None] = {}
    for folder in folders_below(root):
        if any(above in found for above in folder.parents):
            continue
        with contextlib.suppress(OSError):
            found.update(
                (model, None) for model in whole_models(folder) if model != folder or _is_language_model(folder)
            )
    return list(found)


def _is_language_model(folder: Path) -> bool:
    """Parts of other models (of one that makes pictures, say) have a config.json that names no architecture."""
    return not {"architectures", "model_type"}.isdisjoint(json_object(folder / "config.json") or {})


def folders_below(root: Path, depth: int = DEPTH, most: int = MOST_FOLDERS) -> Iterator[Path]:
    """``root`` and the folders below it, the nearest first."""
    level, seen = [root], 0
    for _ in range(depth + 1):
        inner: list[Path] = []
        for folder in level:
            if (seen := seen + 1) > most:
                return
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                inner += sorted(
                    Path(entry.path)
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                )
            yield folder
        level = inner


def whole_models(folder: Path) -> list[Path]:
    """The GGUF files of a folder, or the folder itself where all the weights that its index names are there.

    Raises OSError when it cannot be listed.
    """
    found = gguf_models(folder)
    weights = {path.name for path in folder.glob("*.safetensors") if path.exists()}
    if weights and (folder / "config.json").is_file():
        listed = (json_object(folder / "model.safetensors.index.json") or {}).get("weight_map")
        wanted = {str(file) for file in listed.values()} if isinstance(listed, dict) else set()
        if wanted <= weights:
            found.append(folder)
    return found


def json_object(file: Path) -> dict[str, Any] | None:
    """An object of a file; None for anything else."""
    with contextlib.suppress(UnreadableFileError):
        return read_json(file)
    return None
