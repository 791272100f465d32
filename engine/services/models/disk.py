"""Disk space that models take, and what else may be deleted there."""

from __future__ import annotations

from pathlib import Path

from engine.formats.quantised import repacked
from engine.library import importing as imports
from engine.library import local, paths
from engine.library.local import size_below
from engine.library.store import clear
from engine.protocol.library import Leftover
from engine.protocol.operations import DiskUse, LookAtDisk
from engine.services.models.stored import coming, stored_models
from engine.services.operations import Context, Emit
from engine.services.quantise import plan


def look(context: Context, request: LookAtDisk, emit: Emit) -> DiskUse:
    left = leftovers()
    if request.delete:
        left = [each for each in left if not _deleted(each, request.delete)]
    models = stored_models()
    return DiskUse(models=models, folders=local.model_folders(models), downloads=coming(), leftovers=left)


def leftovers() -> list[Leftover]:
    kept = repacked.kept_files(paths.quantised_folder())
    cached = [
        Leftover(name=repacked.title_of(each), path=str(each.path), bytes=each.size, cached=True) for each in kept
    ]
    broken = [Leftover(name="import", path=str(path), bytes=size_below(path)) for path in imports.leftovers()]
    making = [
        Leftover(name=f"{Path(each.model).name} as {each.to}", path=str(folder), bytes=size_below(folder))
        for each in plan.unfinished()
        if not plan.UnfinishedWork(folder := plan.making_folder() / each.id).is_busy()
    ]
    return [*reversed(cached), *broken, *making]


def _deleted(left: Leftover, wanted: str) -> bool:
    if left.path != wanted:
        return False
    if left.cached:
        Path(left.path).unlink(missing_ok=True)
    elif Path(left.path).parent == plan.making_folder():
        plan.discard(Path(left.path).name)
    else:
        clear(Path(left.path))
    return True
