"""Models that lie elsewhere on this machine, taken into the library: named where they are, or copied into the store.

A copy is made in ``models/.downloads/import-ID/`` under a lock, hashed as it is made, and moves in at the end as what
is fetched does: until then there is no model. It has a receipt as well, with no revision, so that it can be verified
and deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from engine.base.errors import CheckpointError
from engine.base.fetching import room
from engine.base.fetching.download import CHUNK
from engine.base.fetching.lock import lock
from engine.formats.gguf.container import part_files
from engine.formats.gguf.find import gguf_model, gguf_models, is_projector
from engine.formats.open import open_checkpoint
from engine.library import roots, store
from engine.library.local import REPORT, report_of
from engine.library.roots import LibraryFailed, Reference
from engine.library.variants import is_safe, variants_of
from engine.protocol.library import HubFile, HubVariant

How = Literal["reference", "copy", "move"]
ORGANISATION = "imported"
"""First part of the name of a model that is copied without a given name."""
PREFIX = "import-"
Progress = Callable[[int, int], None]
"""Callback with the bytes that are copied, and those of all."""


def import_model(
    path: Path, how: How, name: str, taken: Sequence[tuple[str, str]], progress: Progress = lambda done, total: None
) -> tuple[str, Path]:
    """Take the model at ``path`` into the library; returns its name and where it is.

    ``name``: "" that of the folder or file; a copy's has two parts. ``taken``: names and paths of the models that are
    known. Raises :class:`LibraryFailed`, :class:`FetchFailed`, OSError; then nothing has changed.
    """
    path = Path(os.path.abspath(os.path.expanduser(path)))
    found, variant = _examined(path)
    known = any(Path(each) in (found, path) for _, each in taken)
    if known if how == "reference" else roots.store_folder() in found.parents:
        raise LibraryFailed(f"{found} is among the models already.")
    if how == "reference":
        return _refer(name or found.name, found, taken)
    name = name or f"{ORGANISATION}/{found.name.removesuffix('.gguf')}"
    if name.count("/") != 1 or not is_safe(name):
        raise LibraryFailed(
            f"{name!r} is not a valid name for a model here. Give one as ORGANISATION/NAME: --name me/my-model."
        )
    return name, _copy(found, variant, name, how == "move", progress)


def leftovers() -> list[Path]:
    """Folders of copies that were broken off, on which nobody works."""
    found = []
    with contextlib.suppress(OSError):
        for folder in sorted((store.store_folder() / store.UNFINISHED).glob(f"{PREFIX}*")):
            with contextlib.suppress(LibraryFailed, OSError), lock(folder / "lock", LibraryFailed("busy")):
                found.append(folder)
    return found


def _examined(path: Path) -> tuple[Path, HubVariant]:
    """Path to load (a folder, or the first file of a GGUF model), and the files that belong to it as a variant.

    Raises :class:`LibraryFailed`.
    """
    if os.path.isfile(path) and path.name.endswith((".safetensors", ".safetensors.index.json", "config.json")):
        path = path.parent  # any file of such a model means all of it
    try:
        gguf = gguf_model(path) if os.path.exists(path) else None
        checkpoint = open_checkpoint(path, need_tokenizer=False)
    except CheckpointError as error:
        raise LibraryFailed(str(error)) from None
    found = path if gguf is None else part_files(gguf)[0]
    folder = found if gguf is None else found.parent
    files = [HubFile(name=file.name, bytes=file.stat().st_size) for file in _inside(folder, gguf is None)]
    variants, _ = variants_of(files, checkpoint.quantisation_title if gguf is None else "")
    reports = [HubFile(name=REPORT, bytes=(folder / REPORT).stat().st_size)] if report_of(found) is not None else []
    for variant in variants:
        names = {file.name for file in (*variant.files, *reports)}
        if (found.name in names) if gguf is not None else variant.format == "safetensors":
            for name in names - ({path.name} if path.is_file() else set()):  # a link that was named itself is meant
                if folder.resolve() not in (folder / name).resolve().parents:
                    raise LibraryFailed(
                        f"{folder / name} is a link that leads out of the model's folder. Put the file itself there."
                    )
            return found, msgspec.structs.replace(
                variant,
                bytes=variant.bytes + sum(file.bytes for file in reports),
                files=[*variant.files, *reports],  # behind what is loaded
            )
    raise LibraryFailed(
        f"{found} has a name that Kvasir cannot keep. Rename it, with letters, digits, - _ and . alone."
    )


def _inside(folder: Path, safetensors: bool) -> list[Path]:
    with contextlib.suppress(OSError):
        return [file for file in folder.iterdir() if file.is_file() and (safetensors or file.suffix.lower() == ".gguf")]
    return []


def _refer(name: str, found: Path, taken: Sequence[tuple[str, str]]) -> tuple[str, Path]:
    if not is_safe(name) or name.count("/") > 1:
        raise LibraryFailed(f"{name!r} is not a valid name for a model. Give another: --name my-model.")

    def edit(now: roots.ModelRoots) -> roots.ModelRoots:
        if any(Path(each.path) == found for each in now.references):
            raise LibraryFailed(f"{found} is among the models already.")
        if name in {known for known, _ in taken} | {each.name for each in now.references}:
            raise LibraryFailed(f"There is another model named {name}. Give this one another name: --name my-model.")
        return msgspec.structs.replace(now, references=[*now.references, Reference(name, str(found))])

    roots.change(edit)
    return name, found


def _copy(found: Path, variant: HubVariant, name: str, move: bool, progress: Progress) -> Path:
    """Copy the files of a variant into the store as ``name``; ``move`` deletes the originals once all is in there."""
    source = found if variant.format == "safetensors" else found.parent
    busy = LibraryFailed(f"Another Kvasir is importing {name}. Wait for it.")
    with contextlib.ExitStack() as held:
        with store.changing():  # not while the store is moved, whose move sees from now on that this runs
            target = store.own_folder(name, [file.name for file in variant.files])
            unfinished = store.store_folder() / store.UNFINISHED
            linked = move and room.same_disk(source, unfinished.parent)
            if not linked:
                room.room_for(unfinished, variant.bytes + room.MARGIN, name)
            _refuse_known(target, name, variant)
            working = unfinished / f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:16]}"
            working.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(working / "lock", busy))
        held.enter_context(room.disk_errors(working))
        try:
            files = working / "files"
            store.clear(files)  # of a copy that was broken off
            done, copied = 0, []
            for file in variant.files:

                def tell(count: int, before: int = done) -> None:
                    progress(before + count, variant.bytes)

                sha256 = _copied(source / file.name, files / file.name, linked, tell)
                done += file.bytes
                copied.append(msgspec.structs.replace(file, sha256=sha256))
            with store.changing():
                _refuse_known(target, name, variant)
                path = store.move_in(name, msgspec.structs.replace(variant, files=copied), "", files)
            if move:
                _delete_originals(source, [file.name for file in copied])
                roots.forget(str(found))
        finally:
            store.clear(working)
    return path


def _delete_originals(folder: Path, names: Sequence[str]) -> None:
    """All but a vision tower that another model there may need."""
    for name in sorted(names, key=is_projector):
        if not (is_projector(name) and gguf_models(folder)):
            (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _refuse_known(target: Path, name: str, variant: HubVariant) -> None:
    """Nothing is copied over a model that is there, nor among the files of a fetched one."""
    receipt = store.read_receipt(target)
    if receipt is None and target.exists() and any(target.iterdir()):
        raise LibraryFailed(
            f"{target} is there already, with other files in it. Give another name: --name me/my-model."
        )
    fetched = receipt is not None and any(receipt.revisions.values())
    whole = receipt is not None and variant.name in receipt.variants and store.path_of(name, variant).exists()
    if fetched or (whole and (variant.format == "gguf" or (target / "config.json").exists())):
        raise LibraryFailed(f"There is a model {name} already. Give this one another name: --name me/my-model.")


def _copied(source: Path, target: Path, link: bool, progress: Callable[[int], None]) -> str:
    """Have the file at ``target``; returns its SHA-256, taken of what was written. ``link``: without its bytes being
    written again, where the disk can do that."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = False
    if link:
        with contextlib.suppress(OSError):
            os.link(source.resolve(), target)
            made = True
    digest, done = hashlib.sha256(), 0
    with source.open("rb") as file, contextlib.nullcontext() if made else target.open("wb") as out:
        while block := file.read(CHUNK):
            digest.update(block)
            if out is not None:
                out.write(block)
            progress(done := done + len(block))
        if out is not None:
            out.flush()
            os.fsync(out.fileno())
    if not made:
        shutil.copystat(source, target)
    return digest.hexdigest()
