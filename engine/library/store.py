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
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from engine.base.fetching.download import INCOMPLETE, Progress, RemoteFile, is_whole
from engine.base.fetching.errors import FetchFailed
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.formats.gguf.find import RECEIPT
from engine.library import roots
from engine.library.roots import UNFINISHED, need_store, store_folder
from engine.library.variants import is_repository, is_safe
from engine.protocol.library import HubFile, HubVariant

SMALL = 1 << 20
"""Bytes of a file that is copied rather than moved."""


class Receipt(msgspec.Struct, frozen=True):
    """``kvasir.json``. ``variants``: each as it was downloaded, by its name, with its ``revisions``."""

    repository: str
    variants: dict[str, HubVariant] = {}
    revisions: dict[str, str] = {}


def folder_of(repository: str, root: Path | None = None) -> Path:
    """Folder of a repository's models in a store, by default the store that models are downloaded to. Raises ValueError
    for a name that would lead elsewhere."""
    if not is_repository(repository):
        raise ValueError(f"{repository!r} names no repository")
    return (root or store_folder()) / repository


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
    for root in roots.stores():
        for folder, receipt in repositories(root):
            for variant in receipt.variants.values():
                path = path_of(receipt.repository, variant, root)
                last = path / "config.json" if path == folder else path
                if os.path.isfile(last):
                    name = receipt.repository if path == folder else path.name
                    names = (name, f"{receipt.repository}/{name}", str(path))
                    found[next((each for each in names if each not in found), name)] = path
    return list(found.items())


def repositories(root: Path) -> Iterator[tuple[Path, Receipt]]:
    """The folders in a store into which something was fetched, copied or made, with what is said there."""
    for note in sorted(root.glob(f"*/*/{RECEIPT}")):
        receipt, folder = read_receipt(note.parent), note.parent
        if receipt is not None and folder.relative_to(root).as_posix() == receipt.repository:
            yield folder, receipt


def path_of(repository: str, variant: HubVariant, root: Path | None = None) -> Path:
    """Path to load: the folder, or the (first) GGUF file."""
    folder = folder_of(repository, root)
    return folder if variant.format == "safetensors" else folder / variant.files[0].name


def read_receipt(folder: Path) -> Receipt | None:
    """Receipt of what was downloaded into a folder; None where there is none, or none that makes sense."""
    with contextlib.suppress(UnreadableFileError):
        return _sound(folder / RECEIPT)
    return None


def unreadable() -> list[str]:
    """Reasons, as sentences, that folders of the stores are not offered: each has a receipt that makes no sense."""
    found = []
    for root in roots.stores():
        for note in sorted(root.glob(f"*/*/{RECEIPT}")):
            try:
                _sound(note)
            except UnreadableFileError as error:
                found.append(
                    f"{error.reason} So the models in its folder are left out. Download them again, or delete the file."
                )
    return found


def _sound(note: Path) -> Receipt | None:
    """The receipt that makes sense; None where there is none. Raises :class:`UnreadableFileError`."""
    receipt = decode_file(note, Receipt)
    if receipt is None:
        return None
    files = [file.name for variant in receipt.variants.values() for file in variant.files]
    whole = all(variant.files for variant in receipt.variants.values())
    if not whole or not is_repository(receipt.repository) or not all(map(is_safe, files)):
        raise UnreadableFileError(f"{note} does not say which files are whose.")
    return receipt


def receipt_of(path: Path) -> Receipt | None:
    """The receipt of the repository that a fetched model belongs to; None for any other model."""
    found = _receipt_above(path)
    return found[1] if found else None


def _receipt_above(path: Path) -> tuple[Path, Receipt] | None:
    """The repository's folder in a store, and what is said there."""
    path, inside = path.resolve(), {root.resolve() for root in roots.stores()}
    for folder in (path, *path.parents):
        if folder in inside:
            return None
        if not inside.isdisjoint(folder.parents) and (receipt := read_receipt(folder)) is not None:
            return (folder, receipt) if folder.parent.parent / receipt.repository == folder else None
    return None


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Alone with what the store holds, for the moment that a change takes. Raises :class:`FetchFailed`."""
    while True:
        need_store()
        place = (root := store_folder()) / UNFINISHED
        place.mkdir(parents=True, exist_ok=True)
        busy = FetchFailed("Another Kvasir is changing the models. Wait a moment and try again.")
        with lock(place / "lock", busy, 30.0):
            if store_folder() == root:  # else it was moved while this waited
                yield
                return


def move_in(repository: str, variant: HubVariant, revision: str, files: Path) -> Path:
    """Make a variant of what was fetched into ``files``, and return its path. May be called again after it was broken
    off: what has moved already is left. Raises OSError."""
    folder = folder_of(repository)
    folder.mkdir(parents=True, exist_ok=True)
    names = [file.name for file in variant.files]
    moving, last = [name for name in names if (files / name).is_file()], _last(variant)
    if moving and last not in moving and (folder / last).is_file():
        # It moves with them. A copy, where it is small: a download that is given up is deleted with its files.
        small = (folder / last).stat().st_size < SMALL
        (shutil.copy2 if small else os.replace)(folder / last, files / last)
        moving.append(last)
    if moving:
        # Until all has moved there is no model here, rather than one of two revisions.
        (folder / last).unlink(missing_ok=True)
    receipt = read_receipt(folder) or Receipt(repository)
    former = receipt.variants.get(variant.name)
    now = Receipt(
        repository, {**receipt.variants, variant.name: variant}, {**receipt.revisions, variant.name: revision}
    )
    write_receipt(folder, now)
    if former is not None:
        _unlink(folder, [file.name for file in former.files if file.name not in _named(now)])
    for name in sorted(moving, key=lambda name: name == last):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).replace(folder / name)
    return path_of(repository, variant)


def _last(variant: HubVariant) -> str:
    """The file that makes a model of the others."""
    return variant.files[0].name if variant.format == "gguf" else "config.json"


def _named(receipt: Receipt) -> set[str]:
    return {file.name for variant in receipt.variants.values() for file in variant.files}


def _unlink(folder: Path, names: Sequence[str]) -> int:
    """Delete files; returns their bytes. Raises OSError."""
    freed = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            freed += (folder / name).stat().st_size
            (folder / name).unlink()
    return freed


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """All of it or nothing. Raises OSError."""
    new = folder / (RECEIPT + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(receipt), indent=1))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / RECEIPT)


def has(folder: Path, file: HubFile, progress: Progress = lambda count: None) -> bool:
    """Return True if ``folder`` has the file with the size and the hash that it should have."""
    path = folder / file.name
    with contextlib.suppress(OSError):
        return path.stat().st_size == file.bytes and is_whole(remote(file), path, progress)
    return False


def remote(file: HubFile, url: str = "", token: str = "") -> RemoteFile:
    """The file as it is fetched."""
    return RemoteFile(file.name, url, file.sha256, file.bytes, file.blob, token)


def variants_at(path: Path) -> list[tuple[str, HubVariant]]:
    """Variants that were downloaded to be loaded from ``path``, each with its repository."""
    if (above := _receipt_above(path)) is None:
        return []
    folder, receipt = above
    root = folder.parent.parent
    return [
        (receipt.repository, each)
        for each in receipt.variants.values()
        if path_of(receipt.repository, each, root).resolve() == path.resolve()
    ]


def damaged(path: Path, variant: HubVariant) -> list[str]:
    """Names of the files of a variant at ``path`` that are missing or not as they were fetched. Reads all of them."""
    above = _receipt_above(path)
    return [file.name for file in variant.files if above is None or not has(above[0], file)]


def remove(path: Path) -> int:
    """Delete a fetched model: its files and, with its last model, the repository's folder. Returns bytes that are free
    now. Raises OSError, and ValueError for what Kvasir did not fetch."""
    own, above = {variant.name for _, variant in variants_at(path)}, _receipt_above(path)
    if above is None or not own:
        raise ValueError(f"{path} was not downloaded by Kvasir")
    folder, receipt = above
    rest = {name: variant for name, variant in receipt.variants.items() if name not in own}
    kept = _named(Receipt(receipt.repository, rest))
    freed = 0
    for variant in (receipt.variants[name] for name in own):
        # What makes it a model first: what is left after a fault is none.
        names = sorted((file.name for file in variant.files), key=lambda name: name != _last(variant))
        freed += _unlink(folder, [name for name in names if name not in kept])
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
    """Number of bytes of ``wanted`` that are in ``files``, whole or in part."""
    count = 0
    for file in wanted:
        for path in (files / file.name, files / (file.name + INCOMPLETE)):
            with contextlib.suppress(OSError):
                count += min(path.stat().st_size, file.bytes)
                break
    return count
