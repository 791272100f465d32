"""Weights that were quantised while a model was loaded, kept on disk so that the next load only copies them.

One file a model and method: the modules' tensors one after another, each at a multiple of 64 bytes; an index (JSON:
``title`` for people; ``modules``: module -> tensor -> dtype, shape, start, crc32); a footer (length u64 and crc32 u32
of the index, :data:`MAGIC`), so that a file cut anywhere has none. What is kept is what a module is packed to, before
it becomes a layer: it depends on no processor, kernel, dtype of the model or fusing. Layers are made of it as of a
packed checkpoint.

The file's name is a hash (:func:`content_key`) of the method, the versions of the code, and the checkpoint: names,
sizes and times of its files, all of their headers' entries, and bytes from the start, middle and end of each tensor. So
a file that was changed, replaced or touched is another one, wherever it lies. What else is off (shapes, dtypes, a
checksum) counts as not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import mmap
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import psutil
import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.formats.mapped import mapped_file
from engine.formats.quantised.quantise import Module, Shapes, Tensors

_log = logging.getLogger(__name__)

VERSION = 2
"""Raise it with every change of this layout or of the numbers that quantise.py gives."""
MAGIC = b"KVASIRQ1"
SUFFIX, UNFINISHED = ".packed", ".unfinished"
MOST_BYTES, MOST_SHARE = 20_000_000_000, 0.1
"""Most bytes of all kept files together, and the most that they may take as a share of the disk."""
SPARE = 1_000_000_000
"""Bytes of the disk that are left to others."""
_FOOTER = struct.Struct("<QI8s")
_ALIGN, _SAMPLE = 64, 512
_numbers = itertools.count()


class StoredTensor(Protocol):
    """An entry of a checkpoint's header."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> Path: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...


class KeptFile(NamedTuple):
    path: Path
    size: int
    used: float
    """Time of the last read or write, in seconds since the epoch."""


def content_key(entries: Iterable[StoredTensor], *what: str) -> str:
    """A name for ``what`` was made of these tensors, in 32 hexadecimal digits. Raises :class:`CheckpointError`."""
    digest = hashlib.sha256(repr((VERSION, what)).encode())
    ordered = sorted(entries, key=lambda entry: (str(entry.file), entry.start, entry.name))
    try:
        for file, within in itertools.groupby(ordered, key=lambda entry: entry.file):
            status = file.stat()
            digest.update(repr((file.name, status.st_size, status.st_mtime_ns)).encode())
            with file.open("rb") as stream:
                for entry in within:
                    digest.update(repr((*entry[:3], entry.start, entry.size)).encode())  # type: ignore[index]
                    for share in (0.0, 0.5, 1.0):
                        stream.seek(entry.start + int(share * max(0, entry.size - _SAMPLE)))
                        digest.update(stream.read(min(_SAMPLE, entry.size)))
    except OSError as error:
        raise CheckpointError(f"The weights cannot be read ({error.strerror}). Check the files.") from error
    return digest.hexdigest()[:32]


def kept_files(folder: Path) -> list[KeptFile]:
    """Files of kept weights in the folder, the longest unused first."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append(KeptFile(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda file: file.used)


def title_of(file: KeptFile) -> str:
    """Title of the kept weights for people; "damaged" where the file has no valid index."""
    try:
        with file.path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            index = _read_index(mapped)
    except (OSError, ValueError):
        index = None
    return "damaged" if index is None else str(index.get("title", "of another version"))


def clear(folder: Path) -> int:
    """Delete all that is kept; the bytes that came free."""
    freed = 0
    for file in kept_files(folder):
        with contextlib.suppress(OSError):
            file.path.unlink()
            freed += file.size
    _sweep(folder)
    return freed


class Kept:
    """The kept tensors of one load: read where there are some, else written as they are made.

    Nothing here fails a load: what goes wrong is in ``notice``, a sentence, and the weights are quantised again.
    Use it as a context; only leaving it without an exception keeps what was written.
    """

    def __init__(self, folder: Path, key: str, expected: int, title: str = "") -> None:
        """``expected``: bytes that there will be at most. ``title`` says to people what it is."""
        self.notice, self._title = "", title
        self.read = False
        """True if an earlier load's tensors are used."""
        self._folder, self._path, self._expected = folder, folder / f"{key}{SUFFIX}", expected
        # Loads may write the same at once, in one process or in several: who is done last replaces the others' file.
        self._temporary = folder / f"{key}.{next(_numbers)}.{os.getpid()}{UNFINISHED}"
        self._index: dict[str, Any] = {}
        self._map: mmap.mmap | None = None
        self._out: BinaryIO | None = None

    def __enter__(self) -> Kept:
        try:
            self._open()
        except OSError as error:
            self._give_up(error)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._map = None
        out, self._out = self._out, None
        if out is None:
            return
        try:
            with out:
                if kind is None:
                    self._finish(out)
            if kind is None:
                os.replace(self._temporary, self._path)
        except OSError as error:
            self._give_up(error)
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def fetch(self, module: Module, shapes: Shapes, make: Callable[[], Tensors]) -> Tensors:
        """The module's tensors, kept (views of the file, not to be written to) or made."""
        if self._map is not None:
            found = self._stored(module.name, shapes)
            if found is not None:
                return found
            _log.warning("%s is damaged and is deleted; weights are quantised again", self._path)
            self.read, self._map = False, None
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        made = make()
        if self._out is not None:
            try:
                self._index[module.name] = {name: self._write(self._out, tensor) for name, tensor in made.items()}
            except OSError as error:
                self._give_up(error)
        return made

    # --- reading -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(self._folder)
        try:
            mapped = mapped_file(self._path)
        except (FileNotFoundError, ValueError):
            mapped = None
        index = None if mapped is None else _read_index(mapped)
        if mapped is not None and index is not None:
            self._map, self._index, self.read = mapped, index["modules"], True
            with contextlib.suppress(OSError):  # it can be read where nothing can be written
                os.utime(self._path)
            return
        if mapped is not None:
            mapped.close()  # Windows deletes no file that is mapped
        self._path.unlink(missing_ok=True)
        self._make_room()

    def _stored(self, module: str, shapes: Shapes) -> Tensors | None:
        """The module's kept tensors; None where they are missing, damaged or unlike ``shapes``."""
        assert self._map is not None
        stored = self._index.get(module)
        if not isinstance(stored, dict) or stored.keys() != shapes.keys():
            return None
        found = {}
        for name, (dtype, shape) in shapes.items():
            entry = stored[name]
            count = torch.Size(shape).numel()
            if entry["dtype"] != str(dtype) or entry["shape"] != list(shape):
                return None
            start, stop = entry["start"], entry["start"] + count * dtype.itemsize
            if not 0 <= start <= stop <= len(self._map):
                return None
            with memoryview(self._map) as view, view[start:stop] as raw:
                if zlib.crc32(raw) != entry["crc"]:
                    return None
            found[name] = torch.frombuffer(self._map, dtype=dtype, count=count, offset=start).view(shape)
        return found

    # --- writing -------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Open the new file if it may be written; the longest unused ones make way for it."""
        disk = shutil.disk_usage(self._folder)
        quota = min(MOST_BYTES, int(MOST_SHARE * disk.total))
        if self._expected > quota:
            self.notice = (
                f"The quantised weights are not kept for the next load: {self._expected / 1e9:.1f} GB is more than the "
                f"{quota / 1e9:.1f} GB that may be kept on this disk."
            )
            return
        kept = kept_files(self._folder)
        total, free = sum(file.size for file in kept), disk.free
        enough = self._expected + SPARE
        for file in kept if free + total >= enough else []:
            if total + self._expected <= quota and free >= enough:
                break
            with contextlib.suppress(OSError):
                file.path.unlink()
                total, free = total - file.size, free + file.size
        if free < enough:
            self.notice = (
                f"The quantised weights are not kept for the next load: the disk of {self._folder} is nearly full. "
                "Free some space there."
            )
            return
        self._out = self._temporary.open("wb")

    def _write(self, out: BinaryIO, tensor: Tensor) -> dict[str, Any]:
        out.write(bytes(-out.tell() % _ALIGN))
        raw = tensor.contiguous().view(-1).view(torch.uint8).numpy().data
        entry = {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "start": out.tell(), "crc": zlib.crc32(raw)}
        out.write(raw)
        return entry

    def _finish(self, out: BinaryIO) -> None:
        """Nobody waits for the disk: should it lose some of this, the checksums tell."""
        index = json.dumps({"title": self._title, "modules": self._index}).encode()
        out.write(index)
        out.write(_FOOTER.pack(len(index), zlib.crc32(index), MAGIC))

    def _give_up(self, error: OSError) -> None:
        _log.warning("quantised weights are not kept: %s", error)
        self.notice = (
            f"The quantised weights could not be kept for the next load ({error.strerror or error}). "
            f"Check the disk of {self._folder}."
        )
        out, self._out = self._out, None
        with contextlib.suppress(OSError):
            if out is not None:
                out.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def _read_index(mapped: mmap.mmap) -> dict[str, Any] | None:
    """The index of a kept file; None for one that is cut or of another kind."""
    if len(mapped) < _FOOTER.size:
        return None
    length, crc, magic = _FOOTER.unpack(mapped[-_FOOTER.size :])
    end = len(mapped) - _FOOTER.size
    if magic != MAGIC or length > end:
        return None
    raw = mapped[end - length : end]
    if zlib.crc32(raw) != crc:
        return None
    index: dict[str, Any] = json.loads(raw)
    return index


def _sweep(folder: Path) -> None:
    """Delete what loads that died left unfinished."""
    for path in folder.glob(f"*{UNFINISHED}"):
        writer = path.name.removesuffix(UNFINISHED).rpartition(".")[2]
        if not writer.isdigit() or not psutil.pid_exists(int(writer)):
            with contextlib.suppress(OSError):
                path.unlink()
