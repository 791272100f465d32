"""A pack's wheels in one file, to bring to a machine without a network.

An uncompressed tar whose first member says what pack it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from engine.base.fetching.download import CHUNK, INCOMPLETE, Progress, is_whole, stored
from engine.services.packs.lists import PackFailed, PackList, Wheel, parse

MANIFEST = "kvasir-pack.json"
MOST_MANIFEST_BYTES = 1 << 20


class Manifest(msgspec.Struct, frozen=True):
    """The first member. ``list``: the text of the list that the wheels belong to."""

    list: str
    format: int = 1


def write(out: Path, pack: PackList, files: Path, progress: Progress) -> None:
    """``out`` with the wheels that lie in ``files``; it appears when it is whole."""
    part = out.with_name(out.name + INCOMPLETE)
    try:
        with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
            manifest = msgspec.json.encode(Manifest(list=pack.text))
            archive.addfile(_member(MANIFEST, len(manifest)), io.BytesIO(manifest))
            for wheel in pack.wheels:
                with (files / wheel.filename).open("rb") as file:
                    archive.addfile(_member(wheel.filename, wheel.bytes), _Watched(file.read, progress))
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def read_list(file: Path) -> PackList:
    """The list that a bundle was made of. Raises :class:`PackFailed`."""
    with _opened(file) as archive:
        first = archive.next()
        if first is None or first.name != MANIFEST or not first.isfile() or first.size > MOST_MANIFEST_BYTES:
            raise PackFailed(_no_bundle(file))
        content = archive.extractfile(first)
        try:
            manifest = msgspec.json.decode(content.read() if content else b"", type=Manifest)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise PackFailed(_no_bundle(file)) from None
    if manifest.format != 1:
        raise PackFailed(f"{file} was made by a newer Kvasir. Make it again with this version, or update this one.")
    return parse(manifest.list, str(file))


def unpack(file: Path, wheels: Iterable[Wheel], folder: Path, progress: Progress) -> None:
    """Have ``wheels`` in ``folder``; hashes are those of our own list, never the file's own.

    Raises :class:`PackFailed`; OSError of the disk.
    """
    wanted = {wheel.filename: wheel for wheel in wheels}
    with _opened(file) as archive:
        for member in archive:
            wheel = wanted.get(member.name)
            if wheel is None or not member.isfile():
                continue
            del wanted[member.name]
            if (folder / wheel.filename).is_file() and is_whole(wheel, folder / wheel.filename):
                continue
            progress(-stored(wheel, folder))
            _copy(archive, member, wheel, folder, progress)
    if wanted:
        raise PackFailed(f"{file} is not whole: {min(wanted)} is missing. Copy it again, or make it again.")


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, wheel: Wheel, folder: Path, progress: Progress) -> None:
    content = archive.extractfile(member)
    part = folder / (wheel.filename + INCOMPLETE)
    digest, copied = hashlib.sha256(), 0
    with part.open("wb") as out:
        while content and copied <= wheel.bytes and (block := content.read(CHUNK)):
            out.write(block)
            digest.update(block)
            copied += len(block)
            progress(len(block))
    if digest.hexdigest() != wheel.sha256:
        part.unlink()
        raise PackFailed(
            f"{wheel.filename} in the bundle is not the file that this Kvasir knows: its sha256 differs. Nothing was "
            "installed. Copy the bundle again, or make it again."
        )
    part.replace(folder / wheel.filename)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(file, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, ValueError, OverflowError):  # tarfile raises all of them for nonsense
        raise PackFailed(_no_bundle(file)) from None
    except FileNotFoundError as error:
        raise PackFailed(f"{error.filename} is not there.") from None


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    return member


def _no_bundle(file: Path) -> str:
    return f"{file} is not a bundle of a GPU pack, or not a whole one. Make one with `kvasir gpu bundle --out FILE`."


class _Watched(io.RawIOBase):
    """A stream that reports how many bytes were read from it."""

    def __init__(self, read: Callable[[int], bytes], progress: Progress) -> None:
        self._read, self._progress = read, progress

    def read(self, size: int = -1) -> bytes:
        block = self._read(size)
        self._progress(len(block))
        return block
