"""`kvasir models drafts`: what can draft for a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.sizes import human
from engine.base.terminal import say
from engine.doors.cli.arguments import DeviceOption, device_of, path_or_name_of
from engine.doors.cli.errors import importing, report_errors
from engine.doors.cli.library import Json, told

if TYPE_CHECKING:
    from engine.protocol.recommended import DraftOffer

KINDS = {"model": "draft model", "medusa": "Medusa", "eagle": "EAGLE", "assistant": "assistant", "mtp": "built in"}


def drafts(
    model: Annotated[str, typer.Argument(help="A model's name, or the path of its folder or GGUF file.")],
    device: DeviceOption = "auto",
    json: Json = False,
) -> None:
    """List what can draft for a model: on this machine, in its own file, and among the recommended ones."""
    with report_errors():
        with importing():
            from engine.library import curated, paths
            from engine.library.local import stored_models
            from engine.loading.advice.draft_offers import offers
            from engine.loading.memory.probe import choose_device, choose_dtype

        path = Path(paths.find_model(path_or_name_of(model)).path)
        stored = stored_models(paths.known_models(), paths.bundled_folder())
        chosen = choose_device(device_of(device))
        found = offers(path, stored, curated.models(paths.models_file()), chosen, choose_dtype(chosen).dtype)
        if not found and not json:
            say("Nothing drafts for it but itself and n-grams.")
            return
        told(json, found, ("draft", "what", "size", "reads", "where"), [_row(each) for each in found])


def _row(offer: DraftOffer) -> tuple[str, ...]:
    where = offer.path or (f"kvasir models get {offer.repository} {offer.variant}" if offer.repository else "")
    reads = f"{100 * offer.cost:.0f} % of the model" if offer.cost else ""
    return offer.name, KINDS[offer.kind], human(offer.bytes) if offer.bytes else "", reads, where
