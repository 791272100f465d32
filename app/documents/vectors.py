"""Embeddings of the passages of documents, kept in a file for each document and model. No widgets."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

log = logging.getLogger(__name__)

MOST_BYTES = 512 << 20
"""Of all files; the longest unused go first."""
_END = ".vectors"
_HEAD = 400
"""Bytes of a file before its vectors: its head as JSON, filled up with spaces."""


class VectorHead(msgspec.Struct, frozen=True):
    """``fingerprint``: of the model; ``dimensions`` of each vector; ``passages``: how many the document has;
    ``splitting``: how it is split into them."""

    fingerprint: str
    dimensions: int
    passages: int
    splitting: str


class VectorFile(NamedTuple):
    """``done``: vectors that it has, those of the first passages."""

    path: Path
    head: VectorHead
    done: int


class VectorFolder:
    """Files of vectors in a folder, which only grow at their ends: one that was not finished is gone on with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, digest: str, head: VectorHead) -> VectorFile:
        """The file of a document by its digest, emptied where it holds what does not fit ``head``. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{_named(digest)}-{_named(head.fingerprint)}{_END}"
        row = 4 * head.dimensions
        if _head_of(path) == head:
            done = min((path.stat().st_size - _HEAD) // row, head.passages)
            os.truncate(path, _HEAD + done * row)  # the end may have been written in part
            os.utime(path)
            return VectorFile(path, head, done)
        path.write_bytes(msgspec.json.encode(head).ljust(_HEAD))
        self._make_room(_HEAD + row * head.passages, path)
        return VectorFile(path, head, 0)

    def add(self, file: VectorFile, vectors: bytes) -> VectorFile:
        """The file with the vectors of the next passages, in their place: another chat may write the same ones.

        Raises OSError, and ValueError for what is no whole number of them.
        """
        row = 4 * file.head.dimensions
        count, rest = divmod(len(vectors), row)
        if rest or file.done + count > file.head.passages:
            raise ValueError(f"{len(vectors)} bytes after {file.done} vectors of {row}")  # not shown
        with file.path.open("r+b") as opened:
            opened.seek(_HEAD + row * file.done)
            opened.write(vectors)
        return file._replace(done=file.done + count)

    def keep(self, digests: Collection[str]) -> None:
        """Delete the vectors of all documents but these."""
        kept = set(map(_named, digests))
        for path in self._files():
            if path.name.partition("-")[0] not in kept:
                _delete(path)

    def drop(self, path: Path) -> None:
        """Delete a file that cannot be used."""
        _delete(path)

    def _make_room(self, wanted: int, but: Path) -> None:
        """Delete the longest unused until there is room for so many bytes."""
        found = [(path, status) for path in self._files() if path != but and (status := _status(path)) is not None]
        held = sum(status.st_size for _, status in found)
        for path, status in sorted(found, key=lambda each: each[1].st_mtime_ns):
            if held + wanted <= MOST_BYTES:
                return
            _delete(path)
            held -= status.st_size

    def _files(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return [path for path in self._folder.iterdir() if path.name.endswith(_END)]
        return []


def read(path: Path, dimensions: int, passages: int) -> Iterator[tuple[float, ...]]:
    """The vectors of all passages of a document. Raises OSError, and ValueError for a file that lacks some."""
    row = struct.Struct(f"<{dimensions}f")
    with path.open("rb") as file:
        data = file.read(_HEAD + passages * row.size)
    if len(data) != _HEAD + passages * row.size:
        raise ValueError(f"{path.name} has not all vectors")  # not shown
    return row.iter_unpack(memoryview(data)[_HEAD:])


def _head_of(path: Path) -> VectorHead | None:
    """The head of a file; None where there is none, or it cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_HEAD), type=VectorHead)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _named(word: str) -> str:
    """A name for a file that holds whatever a digest or a fingerprint is."""
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()[:32]


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("vectors of passages stay: %s", error)
