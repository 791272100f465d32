"""`kvasir models recommended`: models to begin with, judged for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.sizes import human
from engine.doors.cli.arguments import DeviceOption, device_of
from engine.doors.cli.errors import importing, report_errors
from engine.doors.cli.fit import in_pack
from engine.doors.cli.library import Json, told

if TYPE_CHECKING:
    from engine.protocol.recommended import Recommendation

WORDS = {"fits": "runs well here", "tight": "runs", "too large": "too large", "": "size not known"}


def recommended(
    purpose: Annotated[
        str, typer.Option("--for", help="chat, code, reasoning, vision or small.", show_default=False)
    ] = "",
    device: DeviceOption = "auto",
    json: Json = False,
) -> None:
    """Models to begin with, those that run best here first. Asks no hub."""
    from engine.protocol.recommended import PURPOSES

    if purpose and purpose not in PURPOSES:
        raise typer.BadParameter(f"{purpose!r} is none of {', '.join(PURPOSES)}.", param_hint="--for")
    with report_errors():
        words = ["--device", device, *(["--for", purpose] if purpose else []), *(["--json"] if json else [])]
        if in_pack([["models", "recommended", *words]]):
            return
        with importing():
            from engine.library import curated, paths
            from engine.library.local import stored_models
            from engine.loading.advice import recommend
            from engine.loading.memory import probe
            from engine.loading.memory.bandwidth import measure_bandwidth

        found = [model for model in curated.models(paths.models_file()) if not purpose or purpose in model.purposes]
        chosen = probe.choose_device(device_of(device))
        memory = probe.probe(chosen)
        stored = stored_models(paths.known_models(), paths.bundled_folder())
        judged = recommend.recommended(found, memory.free_bytes, memory.total_bytes, measure_bandwidth(chosen), stored)
        told(json, judged, ("model", "kind", "size", "for", "here", "draft"), [_row(each) for each in judged])


def _row(each: Recommendation) -> tuple[str, ...]:
    model, draft = each.model, each.model.draft
    verdict = "on this machine" if each.here else WORDS[each.verdict]
    drafts = "" if draft is None else "built-in" if draft.kind == "mtp" else draft.repository
    size = human(model.bytes) if model.bytes else ""
    return model.repository, model.variant, size, ", ".join(model.purposes), verdict, drafts
