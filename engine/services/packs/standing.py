"""Finds the GPU pack for this machine and the state of its installation. Changes nothing."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine.base.fetching import room
from engine.base.fetching.download import stored
from engine.library import paths as config
from engine.protocol.gpu import PackStatus
from engine.services.packs import bundle, gpus, start, store
from engine.services.packs.gpus import Gpu, PackChoice
from engine.services.packs.lists import PackFailed, PackList, available, running_python

UNTESTED = "It was not tested yet. `kvasir gpu check` does it."
ANOTHER = "Another pack is in use. `kvasir gpu check` tests this one, and uses it if it passes."


def status(found: Sequence[Gpu]) -> PackStatus:
    """The pack for this machine and the state of its installation."""
    free = room.free_bytes(config.packs_folder())
    try:
        lists = available()
    except PackFailed as failure:
        return PackStatus(refused=str(failure), free_bytes=free)
    choice = _choose(found, lists)
    used = store.active().get("folder", "")
    # One that is in use is shown, if only to be removed, where the GPU has gone.
    pack = lists.get(choice.kind) or next((named for named in lists.values() if named.hash == used), None)
    former = str(config.packs_folder() / used) if used and (not pack or pack.hash != used) and not _refusal() else ""
    others = [str(path) for path in store.packs() if pack is None or path.name.split(".")[0] != pack.hash]
    seen = PackStatus(
        gpu=choice.gpu.name if choice.gpu else "",
        driver=choice.gpu.driver if choice.gpu else "",
        kind=pack.kind if pack else "",
        refused=choice.refused or (_unfit(pack) if pack else ""),
        free_bytes=free,
        former=former,
        others=[path for path in others if path != former],
    )
    return msgspec.structs.replace(seen, **_state(pack, former)) if pack else seen


def select(found: Sequence[Gpu], kind: str = "", any_machine: bool = False, source: Path | None = None) -> PackList:
    """The list of the pack for this machine: of the ``kind`` that is named or that the bundle ``source`` holds, else
    the one in use if it still fits, else what fits. ``any_machine``: ``kind`` may be for another one.

    Raises :class:`PackFailed` with the reason where there is none.
    """
    lists = available()
    if not kind and source is not None and (theirs := bundle.read_list(source).kind) in lists:
        kind = theirs
    if any_machine and kind:
        if kind not in lists:
            raise PackFailed(f"This Kvasir comes without a list for {kind}; it has {', '.join(lists) or 'none'}.")
        return lists[kind]
    choice = _choose(found, lists, kind)
    if not choice.kind:
        raise PackFailed(choice.refused)
    pack = lists[choice.kind]
    if unfit := _unfit(pack):
        raise PackFailed(unfit)
    return pack


def _choose(found: Sequence[Gpu], lists: Mapping[str, PackList], wanted: str = "") -> PackChoice:
    """Same as :func:`gpus.choose`, but a pack in use that still fits stays this machine's: it may have been asked
    for by its kind."""
    used = store.active().get("folder", "")
    kept = next((kind for kind, pack in lists.items() if pack.hash == used), "")
    if kept and not wanted and (choice := gpus.choose(found, lists, kept)).kind:
        return choice
    return gpus.choose(found, lists, wanted)


def _state(pack: PackList, former: str) -> dict[str, Any]:
    folder, part = store.folder_of(pack), store.part_of(pack)
    receipt = store.read_receipt(folder)
    facts = {"disk_bytes": pack.disk_bytes, "folder": str(folder)}
    if receipt is not None:
        ours = store.active().get("folder") == pack.hash
        refusal = _refusal() if ours else ANOTHER if former else UNTESTED
        reason = receipt.broken or refusal
        unusable = receipt.broken or (ours and _failed()) or start.damaged_library(folder, receipt.libraries)
        state = "broken" if unusable else "installed"
        return {**facts, "state": state, "active": not reason, "reason": reason}
    missing = pack.download_bytes - sum(stored(wheel, part / "wheels") for wheel in pack.wheels)
    return {
        **facts,
        "state": "partial" if part.exists() else "none",
        "download_bytes": missing,
        "needed_bytes": missing + pack.disk_bytes + room.MARGIN,
    }


def _refusal() -> str:
    """Reason the engine is not started from the pack that is to be used; "" if it is, or is to be tested first."""
    try:
        start.chosen(config.packs_folder())
    except start.NotUsed as refusal:
        return str(refusal)
    return str(store.active().get("reason", "Its self-test failed.")) if _failed() else ""


def _failed() -> bool:
    """Return True if the self-test of the pack that is to be used failed on this machine as it is."""
    note, now = store.active(), start.fingerprint()
    return note.get("refused") == now != note.get("tested")


def _unfit(pack: PackList) -> str:
    """Reason a pack cannot be used by this program, whatever its GPU; "" if it can."""
    here = f"{sys.platform} {platform.machine().lower()}"
    if pack.header.get("platform", here) != here:
        return f"GPU packs are made for {pack.header['platform']}, and this is {here}."
    if pack.python != running_python():
        return f"GPU packs are made for Python {pack.python}, and this Kvasir runs on {running_python()}."
    return ""
