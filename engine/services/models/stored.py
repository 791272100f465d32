"""Models on this machine and on their way: listed, deleted, their folders changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from engine.base import stopping
from engine.base.errors import plain
from engine.library import curated, downloads, local, moving, paths, roots, store
from engine.protocol.library import Download, ModelFolder, StoredModel, StoreMove
from engine.protocol.operations import (
    ChangeFolders,
    Folders,
    ListDownloads,
    ListModels,
    ModelList,
    Removed,
    RemoveModel,
)
from engine.services.operations import Context, Emit, OperationFailed

_REPORTS = 0.25
"""Seconds between two events of one copy."""


def stored_models() -> list[StoredModel]:
    """All models of this machine, whoever brought them here."""
    return local.stored_models(paths.known_models(), paths.bundled_folder())


def list_models(context: Context, request: ListModels, emit: Emit) -> ModelList:
    found = local.with_purposes(stored_models(), curated.models(paths.models_file()))
    unnamed = [
        f"{plain(str(path))} is left out, because its name is not UTF-8. Rename it." for path in paths.unnamed_models()
    ]
    return ModelList(
        models=found,
        folders=local.model_folders(found),
        watched=local.watched(found),
        left_out=[*unnamed, *store.unreadable()],
    )


def downloads_of(context: Context, request: ListDownloads, emit: Emit) -> list[Download]:
    if request.cancel:
        downloads.cancel(job_of(request.cancel))
    return coming()


def coming() -> list[Download]:
    return [downloads.standing(job) for job in downloads.queue()]


def job_of(id: str) -> downloads.Job:
    """Raises :class:`OperationFailed`."""
    if (job := downloads.read(id)) is None:
        raise OperationFailed(f"There is no download {id}.")
    return job


def remove(context: Context, request: RemoveModel, emit: Emit) -> Removed:
    if roots.forget(request.model):
        return Removed(forgotten=True)
    path = Path(paths.find_model(request.model).path)
    try:
        with store.changing():
            return Removed(freed=store.remove(path))
    except ValueError:
        raise OperationFailed(f"{path} was not downloaded by Kvasir, so it is not Kvasir's to delete.") from None


def change_folders(context: Context, request: ChangeFolders, emit: Emit) -> Folders:
    freed = 0
    if request.add is not None:
        moving.add_root(Path(request.add))
    if request.remove is not None:
        moving.remove_root(Path(request.remove))
    if request.downloads is not None:
        moving.fetch_to(Path(request.downloads))
    if request.move_to is not None:
        freed = moving.move_store(Path(request.move_to), copying(emit, request.move_to))
    found: list[ModelFolder] = local.model_folders(stored_models())
    moved = request.move_to is not None
    return Folders(folders=found, store=str(roots.store_folder()), moved=moved, freed=freed)


def copying(emit: Emit, target: str = "") -> Callable[[int, int], None]:
    """Callback of a copy for the bytes that are there, and those of all: an event four times a second."""
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        stopping.current().check()
        if time.monotonic() - last >= _REPORTS or done == total:
            last = time.monotonic()
            emit(StoreMove(path=target, done=done, total=total))

    return tell
