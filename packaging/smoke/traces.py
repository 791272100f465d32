"""Paths of the build machine in a package, looked for in every file and in what is packed inside of files."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_ELF = b"\x7fELF"
_ZIP = b"PK\x03\x04"
_APPENDED = b"MEI\014\013\012\013\016"
"""PyInstaller's mark at the end of the archive that it appends to a program."""


@contextlib.contextmanager
def members(package: Path) -> Iterator[Iterator[tuple[str, IO[bytes] | None]]]:
    """The files of a .deb or a .tar.zst with their names, one after the other, as a stream."""
    command = (
        ["dpkg-deb", "--fsys-tarfile", str(package)] if package.suffix == ".deb" else ["zstd", "-dcq", str(package)]
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            yield ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
        process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with exit code {process.returncode}")


def packed_inside(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """What is packed in a zip archive, or in the archive of modules that a PyInstaller program carries."""
    if data.startswith(_ZIP):  # a file may have the mark of an archive's end somewhere and be none
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for inner in archive.namelist():
                yield f"{name}!{inner}", archive.read(inner)
    elif data.startswith(_ELF) and _APPENDED in data:
        yield from streams(name, data)


def streams(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """What every zlib stream in ``data`` unpacks to."""
    position = 0
    while match := _ZLIB.search(data, position):
        inner, end = unpacked(data, match.start())
        if end:
            yield f"{name}!{match.start()}", inner
        position = end or match.start() + 1


def unpacked(data: bytes, start: int) -> tuple[bytes, int]:
    """The zlib stream that begins at ``start`` and where it ends; 0 if there is no whole one."""
    unpacker = zlib.decompressobj()
    parts, position = [], start
    try:
        while position < len(data) and not unpacker.eof:  # piece by piece: what follows may be long
            piece = data[position : position + 65536]
            parts.append(unpacker.decompress(piece))
            position += len(piece)
    except zlib.error:
        return b"", 0
    return b"".join(parts), position - len(unpacker.unused_data) if unpacker.eof else 0


def holding(files: Iterable[tuple[str, bytes]], words: list[bytes]) -> Iterator[tuple[str, str]]:
    """Names of files that hold one of ``words``, with what stands around it."""
    pattern = re.compile(b"|".join(re.escape(word) for word in words))
    for name, data in files:
        if match := pattern.search(data):
            around = data[max(0, match.start() - 20) : match.end() + 60].decode("ascii", errors="replace")
            yield name, "".join(c if c.isascii() and c.isprintable() else "." for c in around)


def traces(package: Path, words: list[bytes]) -> tuple[int, list[str]]:
    """How many files were read, what is packed inside of files included, and those that hold one of ``words``."""
    read = 0

    def everything(found: Iterator[tuple[str, IO[bytes] | None]]) -> Iterator[tuple[str, bytes]]:
        nonlocal read
        for name, file in found:
            data = file.read() if file else b""
            for pair in ((name, data), *packed_inside(name, data)):
                read += 1
                yield pair

    with members(package) as found:
        hits = [f"{name}: …{around}…" for name, around in holding(everything(found), words)]
    return read, hits
