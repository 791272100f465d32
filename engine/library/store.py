"""Kvasir's own models: a folder for each repository of the hub, with a note of what belongs there.

::

    models/ORGANISATION/NAME/            a repository's files, as they are named there
    models/ORGANISATION/NAME/kvasir.json what was fetched, and what it must hold (:class:`Receipt`)
    models/.downloads/ID/                what is on its way (`engine.library.downloads`)

A model is offered only when all of it is there: its files move in at the end, the one that makes it a model last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine import folders
from engine.fetching.download import INCOMPLETE, RemoteFile, is_whole
from engine.fetching.errors import FetchFailed
from engine.library.variants import is_safe
from engine.protocol.library import HubFile, HubVariant

RECEIPT = "kvasir.json"


class Receipt(msgspec.Struct, frozen=True):
    """``kvasir.json``. ``variants``: each as it was fetched, by its name, with its ``revisions``."""

    repository: str
    variants: dict[str, HubVariant] = {}
    revisions: dict[str, str] = {}


def store_folder() -> Path:
    """Where fetched models go."""
    return folders.data_place() / "models"


def folder_of(repository: str) -> Path:
    """Where a repository's models lie. Raises ValueError for a name that would lead elsewhere."""
    if repository.count("/") != 1 or not is_safe(repository):
        raise ValueError(f"{repository!r} names no repository")
    return store_folder() / repository


def own_folder(repository: str, names: Sequence[str]) -> Path:
    """:func:`folder_of`, after a look at where files of these names would come to lie.

    Raises :class:`FetchFailed` where a link leads out of the store.
    """
    folder, root = folder_of(repository), store_folder().resolve()
    for place in {(folder / name).parent for name in names} | {folder}:
        if root not in place.resolve().parents:
            raise FetchFailed(f"{place} leads out of Kvasir's models: a link is in the way. Remove it and try again.")
    return folder


def models() -> list[tuple[str, Path]]:
    """Every fetched model that is whole, with its name: that of the repository, or of the GGUF file."""
    found: dict[str, Path] = {}
    for note in sorted(store_folder().glob(f"*/*/{RECEIPT}")):
        receipt = read_receipt(note.parent)
        if receipt is None or folder_of(receipt.repository) != note.parent:
            continue
        for variant in receipt.variants.values():
            path = path_of(receipt.repository, variant)
            last = path / "config.json" if path == note.parent else path
            if last.is_file():
                name = receipt.repository if path == note.parent else path.name
                found[f"{receipt.repository}/{name}" if name in found else name] = path
    return list(found.items())


def path_of(repository: str, variant: HubVariant) -> Path:
    """What is loaded: the folder, or the (first) GGUF file."""
    folder = folder_of(repository)
    return folder if variant.format == "safetensors" else folder / variant.files[0].name


def read_receipt(folder: Path) -> Receipt | None:
    """What was fetched into a folder; None where nothing says so."""
    try:
        return msgspec.json.decode((folder / RECEIPT).read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError):
        return None


def receipt_of(path: Path) -> Receipt | None:
    """The receipt of the repository that a fetched model belongs to; None for any other model."""
    root = store_folder()
    for folder in (path, *path.parents):
        if folder == root or root not in folder.parents:
            return None
        if (receipt := read_receipt(folder)) is not None:
            return receipt
    return None


def move_in(repository: str, variant: HubVariant, revision: str, files: Path) -> Path:
    """Make a variant of what was fetched into ``files``, and return its path. May be called again after it was broken
    off: what has moved already is left. Raises OSError."""
    folder = folder_of(repository)
    folder.mkdir(parents=True, exist_ok=True)
    names = [file.name for file in variant.files]
    last = names[0] if variant.format == "gguf" else "config.json"
    if (folder / last).is_file() and not (files / last).exists():
        (folder / last).replace(files / last)
    # Until all has moved there is no model here, rather than one of two revisions.
    (folder / last).unlink(missing_ok=True)
    receipt = read_receipt(folder) or Receipt(repository)
    write_receipt(
        folder,
        Receipt(repository, {**receipt.variants, variant.name: variant}, {**receipt.revisions, variant.name: revision}),
    )
    for name in [*(name for name in names if name != last), last]:
        if (files / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (files / name).replace(folder / name)
    return path_of(repository, variant)


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """All of it or nothing. Raises OSError."""
    new = folder / (RECEIPT + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(receipt), indent=1))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / RECEIPT)


def has(folder: Path, file: HubFile) -> bool:
    """Whether ``folder`` has the file with the size and the hash that it should have."""
    path = folder / file.name
    with contextlib.suppress(OSError):
        return path.stat().st_size == file.bytes and is_whole(remote(file), path)
    return False


def remote(file: HubFile, url: str = "", token: str = "") -> RemoteFile:
    """The file as it is fetched."""
    return RemoteFile(file.name, url, file.sha256, file.bytes, file.blob, token)


def damaged(folder: Path, variant: HubVariant) -> list[str]:
    """Names of a variant's files that are missing or not as they were fetched. Reads all of them."""
    return [file.name for file in variant.files if not has(folder, file)]


def remove(path: Path) -> int:
    """Delete a fetched model: its files and, with its last model, the repository's folder. Returns bytes that are free
    now. Raises OSError, and ValueError for what Kvasir did not fetch."""
    receipt = receipt_of(path)
    names = [] if receipt is None else list(receipt.variants)
    own = [name for name in names if receipt and path_of(receipt.repository, receipt.variants[name]) == path]
    if receipt is None or not own:
        raise ValueError(f"{path} was not fetched by Kvasir")
    folder = folder_of(receipt.repository)
    rest = {name: variant for name, variant in receipt.variants.items() if name not in own}
    kept = {file.name for variant in rest.values() for file in variant.files}
    gone: Sequence[str] = [file.name for name in own for file in receipt.variants[name].files if file.name not in kept]
    freed = 0
    for name in gone:
        with contextlib.suppress(FileNotFoundError):
            freed += (folder / name).stat().st_size
            (folder / name).unlink()
    if rest:
        revisions = {name: receipt.revisions[name] for name in rest if name in receipt.revisions}
        write_receipt(folder, Receipt(receipt.repository, rest, revisions))
    else:
        (folder / RECEIPT).unlink()
        _remove_empty(folder)
    return freed


def _remove_empty(folder: Path) -> None:
    """A folder without files, and the organisation's above it; what a user put there stays."""
    for inner in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            inner.rmdir()
    for each in (folder, folder.parent):
        with contextlib.suppress(OSError):
            each.rmdir()


def clear(folder: Path) -> None:
    """Delete a folder of downloads."""
    shutil.rmtree(folder, ignore_errors=True)


def fetched(files: Path, wanted: Sequence[HubFile]) -> int:
    """How many bytes of ``wanted`` are in ``files``, whole or in part."""
    count = 0
    for file in wanted:
        for path in (files / file.name, files / (file.name + INCOMPLETE)):
            with contextlib.suppress(OSError):
                count += min(path.stat().st_size, file.bytes)
                break
    return count
