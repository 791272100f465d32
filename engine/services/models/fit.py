"""Fit of a model on this machine, also of one that is on the hub alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.base.fetching.errors import FetchFailed
from engine.library import paths, store
from engine.loading.advice.fit import Asked, fit_of, fits_of
from engine.protocol import LoadOptions
from engine.protocol.library import FitReport
from engine.protocol.operations import OUTLINE_MODEL, FitModel, Outline, OutlineModel
from engine.services.operations import Context, Emit, perform


def fit(context: Context, request: FitModel, emit: Emit) -> list[FitReport]:
    """One report for each variant. A repository that is here is looked at instead where the hub cannot be asked."""
    model = request.model
    if not _on_hub(model) or (not request.variant and _never_fetched(model)):
        return _of_local(request)
    with tempfile.TemporaryDirectory(prefix="kvasir-fit-") as folder:
        try:
            wanted = OutlineModel(repository=model, folder=folder, variant=request.variant)
            outlines = perform(OUTLINE_MODEL, wanted)
            return _of_outlines(outlines, request)
        except FetchFailed:
            if not request.variant:
                with contextlib.suppress(paths.ModelNotFound):
                    return _of_local(request)
            raise


def _of_local(request: FitModel) -> list[FitReport]:
    path = paths.find_model(request.model).path
    draft = paths.resolve(path, None)[1]
    return [fit_of(Path(path), _asked(request)._replace(draft=draft))]


def _of_outlines(outlines: Sequence[Outline], request: FitModel) -> list[FitReport]:
    asked = _asked(request)
    return [report for each in outlines for report in fits_of(Path(each.path), each.header, each.variants, asked)]


def _asked(request: FitModel) -> Asked:
    options = LoadOptions(context=request.context, device=request.device, quantise=request.quantise)
    return Asked(request.model, options=options, credit=request.credit)


def _on_hub(model: str) -> bool:
    """True if it may be a repository's name, which no file has."""
    return model.count("/") == 1 and not Path(model).is_absolute() and not os.path.exists(model)


def _never_fetched(name: str) -> bool:
    """Return True if a local model's name is on no hub: the model was made here, or imported."""
    path = next((Path(known.path) for known in paths.known_models() if known.name == name), None)
    receipt = store.receipt_of(path) if path is not None else None
    return path is not None and not (receipt is not None and any(receipt.revisions.values()))
