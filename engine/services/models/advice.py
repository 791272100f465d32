"""Models that suit this machine, and what can draft for a model."""

from __future__ import annotations

from pathlib import Path

from engine.library import curated, paths
from engine.loading.advice.draft_offers import offers
from engine.loading.advice.recommend import fitting
from engine.loading.memory.probe import choose_device, choose_dtype, free_bytes
from engine.protocol.operations import OfferDrafts, Recommend
from engine.protocol.recommended import DraftOffer, Recommended
from engine.services.models.stored import stored_models
from engine.services.operations import Context, Emit
from engine.services.probes import MachineProbes


def recommended(context: Context, request: Recommend, emit: Emit) -> Recommended:
    hub = context.hub if request.device == "auto" else None
    probes = MachineProbes(request.device) if hub is None else hub.probes
    return probes.recommended(hub.loaded if hub is not None else None, request.purpose)


def drafts(context: Context, request: OfferDrafts, emit: Emit) -> list[DraftOffer]:
    path = Path(paths.find_model(request.model).path)
    chosen = choose_device(request.device)
    listed = curated.models(paths.models_file())
    return offers(path, stored_models(), listed, chosen, choose_dtype(chosen).dtype)


def fitting_now(size: str) -> str | None:
    """The part of a range of parameters that fits into what is free now, in 4 bits; None: nothing of it."""
    return fitting(size, free_bytes(choose_device()))
