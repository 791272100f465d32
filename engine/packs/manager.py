"""Installing, repairing and removing GPU packs. No torch here: packs are looked after by the CPU program."""

from __future__ import annotations

import contextlib
import errno
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine import config
from engine.packs import bundle, make, start, store, verify
from engine.packs.download import fetch, gigabytes, room_for, stored
from engine.packs.gpus import Choice, Gpu, choose
from engine.packs.lists import PackFailed, PackList, Wheel, available, running_python
from engine.protocol.gpu import PackProgress, PackStage, PackStatus

Report = Callable[[PackProgress], None]
MARGIN = 256 * 10**6
"""Bytes left free on the disk."""


def status(gpus: Sequence[Gpu]) -> PackStatus:
    """What there is for this machine."""
    try:
        lists = available()
    except PackFailed as failure:
        return PackStatus(refused=str(failure), free_bytes=store.free_bytes(config.packs_folder()))
    choice = choose(gpus, lists)
    used = store.active().get("folder", "")
    # One that was asked for by its kind stays the pack of this machine.
    pack = next((named for named in lists.values() if named.hash == used), lists.get(choice.kind))
    others = [str(path) for path in store.packs() if pack is None or path.name.split(".")[0] != pack.hash]
    seen = PackStatus(
        gpu=choice.gpu.name if choice.gpu else "",
        driver=choice.gpu.driver if choice.gpu else "",
        kind=pack.kind if pack else "",
        refused=choice.refused or (_unfit(pack) if pack else ""),
        free_bytes=store.free_bytes(config.packs_folder()),
        others=others,
    )
    return msgspec.structs.replace(seen, **_state(pack)) if pack else seen


def select(gpus: Sequence[Gpu], kind: str = "", any_machine: bool = False) -> PackList:
    """The list of the pack for this machine. ``any_machine``: ``kind`` may be for another one.

    Raises :class:`PackFailed` with the reason where there is none.
    """
    lists = available()
    if any_machine and kind:
        if kind not in lists:
            raise PackFailed(f"This Kvasir comes without a list for {kind}; it has {', '.join(lists) or 'none'}.")
        return lists[kind]
    choice: Choice = choose(gpus, lists, kind)
    if not choice.kind:
        raise PackFailed(choice.refused)
    pack = lists[choice.kind]
    if unfit := _unfit(pack):
        raise PackFailed(unfit)
    return pack


def install(pack: PackList, report: Report, source: Path | None = None) -> str:
    """Fetch, make, test and activate a pack; what an earlier try left is used. ``source``: a bundle to take it from.

    Of a pack that is installed every file is looked at, and what is damaged is fetched again. Returns a sentence.
    Raises :class:`PackFailed`, after which the same call goes on where this one ended.
    """
    if source and (theirs := bundle.read_list(source)).hash != pack.hash:
        raise PackFailed(
            f"{source} holds another pack ({theirs.kind} for Python {theirs.python}, {theirs.hash}) than this Kvasir "
            f"needs ({pack.kind} for Python {pack.python}, {pack.hash}). Make it again with the same version of Kvasir."
        )
    make.find_uv(), make.find_python()
    with store.lock() as lock, _disk_errors():
        store.clear_removed()
        folder, part = store.folder_of(pack), store.part_of(pack)
        receipt = store.read_receipt(folder)
        said = ""
        if receipt is None:
            report(PackProgress("checking", sentence="Looking at what is here already."))
            if folder.exists():
                store.remove(folder)
            wheels = _wheels(pack, pack.wheels, part, report, pack.disk_bytes, source)
            _make(pack, wheels, part, lock, report)
        else:
            replaced = _replace_damaged(pack, receipt, lock, report, source)
            names = ", ".join(wheel.name for wheel in replaced)
            said = f"Replaced: {names}. " if names else "Every file is as it was installed. "
        shutil.rmtree(part, ignore_errors=True)
        return said + _test(pack, report)


def check(pack: PackList, report: Report) -> str:
    """Look at every file of the installed pack and have it test itself; from then on it is used if it passes.

    Returns a sentence. Raises :class:`PackFailed`.
    """
    with store.lock():
        folder = store.folder_of(pack)
        receipt = store.read_receipt(folder)
        if receipt is None:
            raise PackFailed("The pack is not installed. `kvasir gpu install` installs it.")
        wrong = verify.damaged(folder, pack, receipt, _steps(report, "checking", len(pack.wheels)))
        if wrong:
            names = ", ".join(wheel.name for wheel in wrong)
            store.write_receipt(folder, msgspec.structs.replace(receipt, broken=f"Files of {names} are damaged."))
            raise PackFailed(f"Files of {names} are missing or damaged. `kvasir gpu repair` replaces them.")
        if receipt.broken:
            store.write_receipt(folder, msgspec.structs.replace(receipt, broken=""))
        return "Every file is as it was installed. " + _test(pack, report)


def remove(hashes: Sequence[str] = ()) -> str:
    """Delete the packs with these hashes, finished or not; all of them if none is named. Returns a sentence."""
    with store.lock():
        found = [path for path in store.packs() if not hashes or path.name.split(".")[0] in hashes]
        unknown = set(hashes) - {path.name.split(".")[0] for path in found}
        if unknown:
            raise PackFailed(f"There is no pack {min(unknown)} in {config.packs_folder()}.")
        for path in found:
            store.remove(path)
        if not hashes:
            store.deactivate()
    return f"{len(found)} removed from {config.packs_folder()}." if found else "There was no GPU pack."


def make_bundle(pack: PackList, out: Path, report: Report) -> str:
    """All wheels of a pack in the file ``out``. Returns a sentence; raises :class:`PackFailed`."""
    if not out.parent.is_dir():
        raise PackFailed(f"The folder {out.parent} is not there.")
    with store.lock(), _disk_errors():
        part = store.part_of(pack)
        had = part.exists()
        room_for(out.parent, pack.download_bytes, "the bundle")
        wheels = _wheels(pack, pack.wheels, part, report, 0, None)
        progress = _Bytes(report, "installing", 0, pack.download_bytes, f"Writing {out.name}.")
        bundle.write(out, pack, wheels, progress)
        if not had:
            shutil.rmtree(part, ignore_errors=True)
    return (
        f"{out} holds the pack {pack.kind} ({gigabytes(out.stat().st_size)}). On the other machine, with the same "
        f"version of Kvasir: kvasir gpu install --from {out.name}"
    )


class _Bytes:
    """Counts bytes and reports them, ten times a second at most."""

    def __init__(self, report: Report, stage: PackStage, done: int, total: int, sentence: str) -> None:
        self._report, self._stage, self._total, self._sentence = report, stage, total, sentence
        self._done, self._told = done, 0.0
        self(0)

    def __call__(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._told > 0.1 or self._done == self._total:
            self._told = time.monotonic()
            self._report(PackProgress(self._stage, self._done, self._total, self._sentence))


def _wheels(
    pack: PackList, wanted: Sequence[Wheel], part: Path, report: Report, unpacked: int, source: Path | None
) -> Path:
    """The folder with all ``wanted`` in it. ``unpacked``: what they will take besides."""
    folder = part / "wheels"
    there = sum(stored(wheel, folder) for wheel in wanted)
    total = sum(wheel.bytes for wheel in wanted)
    shutil.rmtree(part / "env", ignore_errors=True)
    shutil.rmtree(part / "uv", ignore_errors=True)
    room_for(part, total - there + unpacked + MARGIN, f"the GPU pack {pack.kind}")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    progress = _Bytes(report, "downloading", there, total, f"Reading {source.name}." if source else "Downloading.")
    if source:
        bundle.unpack(source, pack, folder, progress)
    else:
        for wheel in sorted(wanted, key=lambda wheel: wheel.bytes):
            fetch(wheel, folder, progress)
    return folder


def _make(pack: PackList, wheels: Path, part: Path, lock: int, report: Report) -> None:
    """The environment, under its name only once it is whole."""
    report(PackProgress("installing", sentence="Unpacking. This takes a minute or two."))
    made, home = part / "env", part / "uv"
    make.new_environment(made, home, lock)
    make.install(made, pack.wheels, wheels, home, lock)
    store.write_receipt(made, _receipt(pack, made))
    made.rename(store.folder_of(pack))


def _receipt(pack: PackList, folder: Path) -> store.Receipt:
    return store.Receipt(pack.kind, pack.python, verify.records(folder, pack), device=pack.device)


def _replace_damaged(
    pack: PackList, receipt: store.Receipt, lock: int, report: Report, source: Path | None
) -> list[Wheel]:
    """Fetch and unpack again the parts of an installed pack of which a file is missing or differs."""
    folder, part = store.folder_of(pack), store.part_of(pack)
    wrong = verify.damaged(folder, pack, receipt, _steps(report, "checking", len(pack.wheels)))
    if wrong:
        store.write_receipt(folder, msgspec.structs.replace(receipt, broken="Its repair was not finished."))
        wheels = _wheels(pack, wrong, part, report, sum(3 * wheel.bytes for wheel in wrong), source)
        report(PackProgress("installing", sentence=f"Replacing {len(wrong)} of {len(pack.wheels)} parts."))
        for wheel in wrong:
            # Half a part cannot be uninstalled; without its list of files it is written over.
            if record := verify.record_of(folder, pack, wheel):
                shutil.rmtree(record.parent)
        make.install(folder, wrong, wheels, part / "uv", lock)
    if wrong or receipt.broken:
        store.write_receipt(folder, _receipt(pack, folder))
    return wrong


def _test(pack: PackList, report: Report) -> str:
    """Have an installed pack test itself: in use if it passes, kept with the reason if it does not."""
    report(PackProgress("testing", sentence="Testing the pack."))
    packs, folder = config.packs_folder(), store.folder_of(pack)
    told = start.self_test(folder)
    if told.ok:
        start.activate(packs, pack.hash, pack.kind)
        return f"The GPU pack {pack.kind} is in use from the next start on. {told.sentence}"
    if store.active().get("folder", pack.hash) == pack.hash:  # another one stays in use
        refusal = {"refused": start.fingerprint(), "reason": told.sentence}
        start.write_active(packs, {"folder": pack.hash, "kind": pack.kind, **({} if told.timed_out else refusal)})
    raise PackFailed(f"The GPU pack is installed but not used, and the processor goes on. {told.sentence}")


def _state(pack: PackList) -> dict[str, Any]:
    folder, part = store.folder_of(pack), store.part_of(pack)
    receipt = store.read_receipt(folder)
    facts = {"disk_bytes": pack.disk_bytes, "folder": str(folder)}
    if receipt is not None:
        reason = receipt.broken or _not_used(pack)
        state = "broken" if receipt.broken or store.active().get("refused") else "installed"
        return {**facts, "state": state, "active": not reason, "reason": reason}
    there = sum(stored(wheel, part / "wheels") for wheel in pack.wheels)
    return {**facts, "state": "partial" if part.exists() else "none", "download_bytes": pack.download_bytes - there}


def _not_used(pack: PackList) -> str:
    """Why the engine is not started from an installed pack; "" if it is."""
    note, now = store.active(), start.fingerprint()
    if note.get("folder") != pack.hash:
        return "It was not tested yet. `kvasir gpu check` does it."
    if note.get("refused") == now:
        return str(note.get("reason", "Its self-test failed."))
    if note.get("tested") == now:
        try:
            start.usable(config.packs_folder())  # tests nothing: neither the machine nor Kvasir has changed
        except start.NotUsed as refusal:
            return str(refusal)
    return ""


def _unfit(pack: PackList) -> str:
    """Why a pack cannot be used by this program, whatever its GPU; "" if it can."""
    here = f"{sys.platform} {platform.machine().lower()}"
    if pack.header.get("platform", here) != here:
        return f"GPU packs are made for {pack.header['platform']}, and this is {here}."
    if pack.python != running_python():
        return f"GPU packs are made for Python {pack.python}, and this Kvasir runs on {running_python()}."
    return ""


def _steps(report: Report, stage: PackStage, total: int) -> Callable[[int], None]:
    return lambda done: report(PackProgress(stage, done, total, "Looking at every file."))


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PackFailed(
                f"The disk of {config.packs_folder()} is full. Free some room and start again; "
                "what was fetched is kept."
            ) from None
        raise
