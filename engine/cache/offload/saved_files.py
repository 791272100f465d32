"""The two files of one saved chat: its pages, and the index that says what they are.

``NAME.pages`` holds pages as `KVStore.export_pages` gives them, in the order of their tokens. ``NAME.index`` holds a
magic number, a digest, and in MessagePack an `Index`: what the pages were computed with, their token ids, a checksum of
each. NAME is a hash of the chat's id.

Whatever stops a writer, what the index names is in the data: pages are on the disk before an index names them, and an
index forgets pages before they are overwritten. The checksums are for the rest (a damaged disk, another program): a
page that is not what was written is never given to anybody. Nothing in an index is believed that its reader has not
checked, and no path comes from one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.transfer import host_buffer

VERSION = 1
"""To be raised with every change of these files or of what a kind of store exports."""
MAGIC = b"KVASIRC1"
DATA, INDEX, UNFINISHED = ".pages", ".index", ".unfinished"
MOST_INDEX = 64 << 20
"""Bytes: some thirteen million tokens."""
_DIGEST = 16
_NAME = re.compile(r"[0-9a-f]{32}")
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Damaged(Exception):  # noqa: N818 - an outcome: the files are deleted and the text is read again
    """The files are not what was written; the message says what is wrong."""


class Kind(NamedTuple):
    """Properties that a chat's saved pages must share with the engine's pages to be usable."""

    model: str
    """The fingerprint of the model (engine/formats/fingerprint.py)."""
    namespace: str
    """Format of the keys and values, and which are kept: kind, bits, page policy."""
    layout: str
    """`KVStore.page_layout`."""
    page_bytes: int
    """`KVStore.page_bytes`."""


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of an index file. ``tokens``: int32, 16 for each page; ``checksums``: CRC-32 of each page;
    little-endian."""

    version: int
    model: str
    namespace: str
    layout: str
    page_tokens: int
    page_bytes: int
    tokens: bytes
    checksums: bytes

    @property
    def kind(self) -> Kind:
        return Kind(self.model, self.namespace, self.layout, self.page_bytes)

    @property
    def pages(self) -> int:
        return len(self.checksums) // 4

    def common_pages(self, kind: Kind, tokens: np.ndarray) -> int:
        """Leading pages whose tokens are these, int32; 0 for another kind."""
        if self.kind != kind:
            return 0
        own = np.frombuffer(self.tokens, dtype="<i4")
        count = min(len(own), len(tokens))
        differs = np.flatnonzero(own[:count] != tokens[:count])
        return int(differs[0] if len(differs) else count) // PAGE_SIZE

    def cut(self, pages: int) -> Index:
        """The index of the leading pages."""
        return msgspec.structs.replace(
            self, tokens=self.tokens[: pages * PAGE_SIZE * 4], checksums=self.checksums[: pages * 4]
        )


class ChatFiles:
    """The files of one chat. Methods raise OSError, and `Damaged`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.data, self.index = folder / (name + DATA), folder / (name + INDEX)
        self._unfinished = folder / f"{name}{INDEX}.{os.getpid()}{UNFINISHED}"

    def size(self) -> int:
        """Bytes of both files."""
        return sum(path.stat().st_size for path in (self.data, self.index))

    def remove(self) -> None:
        """The index first: without it the rest is nothing."""
        for path in (self.index, self._unfinished, self.data):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def read_index(self) -> Index | None:
        """None if there is none."""
        try:
            with _opened(self.index) as file:
                if os.fstat(file.fileno()).st_size > MOST_INDEX:
                    raise Damaged("the index is absurdly long")
                return _parsed(file.readall() or b"")
        except FileNotFoundError:
            return None

    def read_pages(self, index: Index, first: int, stop: int, out: Tensor | None = None) -> Tensor:
        """The pages [first, stop) as `KVStore.export_pages` gave them, each as its checksum says.

        Read rather than mapped: a file that another program cuts while it is mapped would end this process, and what
        was checked would not be what is used.
        """
        size = index.page_bytes
        data = host_buffer(stop - first, size, pinned=False) if out is None else out
        checksums = np.frombuffer(index.checksums, dtype="<u4")
        try:
            with _opened(self.data) as file:
                file.seek(first * size)
                for row, page in zip(data.numpy(), range(first, stop), strict=True):
                    if not _fill(file, row.data) or zlib.crc32(row) != checksums[page]:
                        raise Damaged(f"page {page} is not what was written")
        except FileNotFoundError:
            raise Damaged("the pages are missing") from None
        return data

    def append(self, before: Index | None, kind: Kind, tokens: np.ndarray, first: int, pages: Tensor) -> Index:
        """Replace what follows the first pages of `before` by `pages`; `tokens` are those of all. The new index."""
        if first > (before.pages if before is not None else 0):
            raise Damaged("pages are missing")
        if before is not None and first < before.pages:
            if first:
                self._write_index(before.cut(first))
            else:
                self.index.unlink(missing_ok=True)
        rows = pages.numpy()
        with _opened(self.data, os.O_RDWR | os.O_CREAT) as file:
            if file.seek(0, io.SEEK_END) < first * kind.page_bytes:
                raise Damaged("the file of the pages is short")
            file.truncate(first * kind.page_bytes)
            file.seek(first * kind.page_bytes)
            _write_all(file, rows.data.cast("B"))
            os.fsync(file.fileno())
        kept = before.checksums[: first * 4] if before is not None else b""
        checksums = kept + np.array([zlib.crc32(row) for row in rows], dtype="<u4").tobytes()
        index = Index(VERSION, *kind[:3], PAGE_SIZE, kind.page_bytes, tokens.astype("<i4").tobytes(), checksums)
        self._write_index(index)
        return index

    def _write_index(self, index: Index) -> None:
        body = msgspec.msgpack.encode(index)
        with _opened(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            _write_all(file, memoryview(MAGIC + _digest(body) + body))
            os.fsync(file.fileno())
        os.replace(self._unfinished, self.index)
        _sync_folder(self.index.parent)


def name_of(chat: str) -> str:
    """The name of a chat's files. Ids come from outside: they are not looked at, only hashed."""
    return hashlib.blake2b(chat.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def index_size(kind: Kind, pages: int) -> int:
    """The most bytes that an index of ``pages`` pages takes."""
    return 256 + sum(4 * len(part) for part in kind[:3]) + pages * 4 * (PAGE_SIZE + 1)


def saved_in(folder: Path) -> list[str]:
    """The names of the chats in the folder; what their writers left unfinished is deleted, and nothing else."""
    names, lone = set(), []
    for path in folder.iterdir():
        name = path.name.partition(".")[0]
        if not _NAME.fullmatch(name):
            continue
        if path.name == name + INDEX:
            names.add(name)
        elif path.name == name + DATA or path.name.endswith(UNFINISHED):
            lone.append(path)
    for path in lone:
        if path.suffix != DATA or path.stem not in names:
            with contextlib.suppress(OSError):
                path.unlink()
    return sorted(names)


def _parsed(raw: bytes) -> Index:
    start = len(MAGIC) + _DIGEST
    body = raw[start:]
    if raw[: len(MAGIC)] != MAGIC or raw[len(MAGIC) : start] != _digest(body):
        raise Damaged("the index is not one, or is cut or changed")
    try:
        index = msgspec.msgpack.decode(body, type=Index)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise Damaged(f"the index cannot be read ({error})") from None
    if index.version != VERSION or index.page_tokens != PAGE_SIZE:
        raise Damaged("the index is of another version")
    if index.page_bytes <= 0 or len(index.checksums) % 4 or len(index.tokens) != index.pages * PAGE_SIZE * 4:
        raise Damaged("the index contradicts itself")
    return index


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _opened(path: Path, flags: int = os.O_RDONLY) -> io.FileIO:
    """The file, if it is one: no link, no pipe. What is made is its user's only."""
    mode = "rb" if flags == os.O_RDONLY else "r+b" if flags & os.O_RDWR else "wb"
    file = io.FileIO(path, mode, opener=lambda name, _: os.open(name, flags | _FLAGS, 0o600))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Damaged(f"{path.name} is not a file")
    return file


def _fill(file: io.FileIO, into: memoryview) -> bool:
    """Read until ``into`` is full; return False if the file ends first."""
    done = 0
    while done < len(into):
        count = file.readinto(into[done:])
        if not count:
            return False
        done += count
    return True


def _write_all(file: io.FileIO, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += file.write(data[done:]) or 0


def _sync_folder(folder: Path) -> None:
    """Sync the folder's entries to disk, so that a rename survives a power cut; does nothing where not POSIX."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def as_ids(tokens: Sequence[int]) -> np.ndarray:
    """The tokens of whole pages, int32."""
    return np.array(tokens[: len(tokens) // PAGE_SIZE * PAGE_SIZE], dtype="<i4")
