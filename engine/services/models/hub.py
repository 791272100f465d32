"""Models on the hub: found, shown, outlined, and put into the list of downloads."""

from __future__ import annotations

import importlib
from pathlib import Path

from engine.base.sizes import human
from engine.library import downloads, headers, hub
from engine.protocol.library import Download, HubModel, HubRepository, HubVariant
from engine.protocol.operations import AddDownload, Outline, OutlineModel, SearchModels, ShowRepository
from engine.services.operations import Context, Emit, OperationFailed

USUAL = "Q4_K_M"
"""Of several GGUF files the one whose header is read, where there is one."""


def search(context: Context, request: SearchModels, emit: Emit) -> list[HubModel]:
    parameters = hub.parameters(request.size)
    if request.fits:
        # Only here, as torch takes seconds.
        advice = importlib.import_module("engine.services.models.advice")
        within = advice.fitting_now(request.size)
        if within is None:
            raise OperationFailed(
                f"No model of {request.size} parameters fits into what is free now, in 4 bits. Ask for smaller ones, "
                "or leave --fits out."
            )
        parameters = hub.parameters(within)
    return hub.search(
        hub.Search(
            request.text,
            request.author,
            request.format or None,
            request.licence,
            parameters,
            request.sort,
            request.limit,
        )
    )


def show(context: Context, request: ShowRepository, emit: Emit) -> HubRepository:
    return hub.repository(request.repository, request.revision)


def add_download(context: Context, request: AddDownload, emit: Emit) -> Download:
    found = hub.repository(request.repository, request.revision)
    return downloads.standing(downloads.add(found, chosen(found, request.variant)))


def outline(context: Context, request: OutlineModel, emit: Emit) -> list[Outline]:
    """Outlines of a repository's models, or of the wanted one; of GGUF files, which share an architecture, one."""
    found = hub.repository(request.repository)
    wanted = request.variant
    variants = found.variants if found.variants and not wanted else [chosen(found, wanted)]
    outlines = []
    for format in dict.fromkeys(each.format for each in variants):
        mine = [each for each in variants if each.format == format]
        header = next((each for each in mine if each.quantisation == USUAL), mine[0])
        folder = Path(request.folder) / format
        folder.mkdir()
        outlines.append(Outline(path=str(headers.outline(found, header, folder)), header=header, variants=mine))
    return outlines


def chosen(found: HubRepository, wanted: str) -> HubVariant:
    """The variant of that name or kind, the only one for "". Raises :class:`OperationFailed` with those there are."""
    if found.refused:
        raise OperationFailed(found.refused)
    fit = [
        each
        for each in found.variants
        if not wanted or wanted == each.name or wanted.lower() == each.quantisation.lower()
    ]
    if len(fit) == 1:
        return fit[0]
    names = ", ".join(f"{each.quantisation or each.name} ({human(each.bytes)})" for each in found.variants)
    what = f"{wanted!r} is not one of them" if wanted and not fit else "say which"
    raise OperationFailed(f"{found.model.repository} holds several models; {what}: {names}.")
