"""Installing, repairing and removing GPU packs. No torch here: packs are looked after by the CPU program."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from engine.base.fetching import room
from engine.base.fetching.download import fetch, stored
from engine.base.sizes import human
from engine.library import paths as config
from engine.protocol.gpu import PackProgress, PackStage
from engine.services.packs import bundle, make, start, store, verify
from engine.services.packs.lists import PackFailed, PackList, Wheel

Report = Callable[[PackProgress], None]


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
    with store.lock() as lock, room.disk_errors(config.packs_folder()):
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
        wrong = verify.damaged(folder, pack, receipt, report)
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
    with store.lock(), room.disk_errors(config.packs_folder()):
        part = store.part_of(pack)
        had = part.exists()
        room.room_for(out.parent, pack.download_bytes, "the bundle")
        bundled = pack.download_bytes if room.same_disk(out.parent, part) else 0
        wheels = _wheels(pack, pack.wheels, part, report, bundled, None)
        progress = _Bytes(report, "installing", 0, pack.download_bytes, f"Writing {out.name}.")
        with room.disk_errors(out.parent):
            bundle.write(out, pack, wheels, progress)
        if not had:
            shutil.rmtree(part, ignore_errors=True)
    return (
        f"{out} holds the pack {pack.kind} ({human(out.stat().st_size)}). On the other machine, with the same "
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
    _clear(part)
    room.room_for(part, total - there + unpacked + room.MARGIN, f"the GPU pack {pack.kind}")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    progress = _Bytes(report, "downloading", there, total, f"Reading {source.name}." if source else "Downloading.")
    if source:
        bundle.unpack(source, wanted, folder, progress)
    else:
        for wheel in sorted(wanted, key=lambda wheel: wheel.bytes):
            fetch(wheel, folder, progress)
    return folder


def _make(pack: PackList, wheels: Path, part: Path, lock: int, report: Report) -> None:
    """The environment, under its name only once it is whole."""
    report(PackProgress("installing", sentence="Unpacking. This takes a minute or two."))
    made, home = part / "env", part / "uv"
    try:
        make.new_environment(made, home, lock)
        make.install(made, pack.wheels, wheels, home, lock)
        store.write_receipt(made, _receipt(made, pack))
        made.rename(store.folder_of(pack))
    except BaseException:  # a full disk is not left full of what begins anew next time
        _clear(part)
        raise


def _clear(part: Path) -> None:
    """Delete what an earlier try unpacked; what it downloaded stays."""
    shutil.rmtree(part / "env", ignore_errors=True)
    shutil.rmtree(part / "uv", ignore_errors=True)


def _receipt(folder: Path, pack: PackList) -> store.PackReceipt:
    records, device = verify.records(folder, pack), pack.header.get("device", "")
    return store.PackReceipt(pack.kind, pack.python, records, device=device, libraries=verify.libraries(folder))


def _replace_damaged(
    pack: PackList, receipt: store.PackReceipt, lock: int, report: Report, source: Path | None
) -> list[Wheel]:
    """Fetch and unpack again the parts of an installed pack of which a file is missing or differs."""
    folder, part = store.folder_of(pack), store.part_of(pack)
    wrong = verify.damaged(folder, pack, receipt, report)
    if wrong:
        store.write_receipt(folder, msgspec.structs.replace(receipt, broken="Its repair was not finished."))
        wheels = _wheels(pack, wrong, part, report, sum(3 * wheel.bytes for wheel in wrong), source)
        report(PackProgress("installing", sentence=f"Replacing {len(wrong)} of {len(pack.wheels)} parts."))
        installed = verify.record_files(folder, pack)
        for wheel in wrong:
            # Half a part cannot be uninstalled; without its list of files it is written over.
            if record := installed.get(wheel.filename):
                shutil.rmtree(record.parent)
        make.new_environment(folder, part / "uv", lock)
        make.install(folder, wrong, wheels, part / "uv", lock)
    if wrong or receipt.broken:
        store.write_receipt(folder, _receipt(folder, pack))
    return wrong


def _test(pack: PackList, report: Report) -> str:
    """Have an installed pack test itself: in use if it passes, kept with the reason if it does not."""
    report(PackProgress("testing", sentence="Testing the pack."))
    packs, folder = config.packs_folder(), store.folder_of(pack)
    told = start.self_test(folder)
    if told.ok:
        start.activate(packs, pack.hash, pack.kind)
        return f"The GPU pack {pack.kind} is in use from the next start on. {told.sentence}"
    if store.active().get("folder", pack.hash) != pack.hash:
        raise PackFailed(f"The GPU pack is installed but not used; the one in use before stays. {told.sentence}")
    refusal = {"refused": start.fingerprint(), "reason": told.sentence}
    start.write_active(packs, {"folder": pack.hash, "kind": pack.kind, **({} if told.timed_out else refusal)})
    raise PackFailed(f"The GPU pack is installed but not used, and the processor goes on. {told.sentence}")
