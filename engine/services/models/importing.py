"""Models that lie elsewhere on this machine, taken into the library."""

from __future__ import annotations

from pathlib import Path

from engine.library.importing import How, import_model
from engine.protocol.operations import Imported, ImportModel
from engine.services.models.stored import copying, stored_models
from engine.services.operations import Context, Emit, OperationFailed


def bring(context: Context, request: ImportModel, emit: Emit) -> Imported:
    if request.copy and request.move:
        raise OperationFailed("A model is copied or moved, not both. Choose one.")
    how: How = "copy" if request.copy else "move" if request.move else "reference"
    taken = [(each.name, each.path) for each in stored_models()]
    name, found = import_model(Path(request.path), how, request.name, taken, copying(emit))
    listed = (each for each in stored_models() if each.path == str(found))
    return Imported(name=name, path=str(found), model=next(listed, None))
