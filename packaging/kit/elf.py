"""What an ELF file asks of the machine it runs on: libraries and versions of their symbols.

Read from the dynamic section, as ld.so does, so that no binutils are needed. 64-bit little-endian files only: the
programs are built for x86-64. Source: System V ABI, and the Linux Standard Base for the version tables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAGIC = b"\x7fELF"
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_VERNEED = 0x6FFFFFFE


class Elf(NamedTuple):
    soname: str
    """The name others link to; empty in a program."""
    needed: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    """(library, symbol version) such as ("libc.so.6", "GLIBC_2.34")."""
    search: tuple[str, ...]
    """RPATH and RUNPATH, split."""


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def read(path: Path) -> Elf:
    """The dynamic section of a file; empty where it has none (a static program). Raises ValueError for other kinds."""
    data = path.read_bytes()
    if data[:6] != MAGIC + b"\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file.")
    segments = list(_segments(data))
    dynamic = next(((offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC), None)
    if dynamic is None:
        return Elf("", (), (), ())
    loads = [(offset, address, size) for kind, offset, address, size in segments if kind == _LOAD]
    entries = list(struct.iter_unpack("<qQ", data[dynamic[0] : dynamic[0] + dynamic[1] // 16 * 16]))
    found = dict(entries)
    strings = _offset(loads, found[_STRTAB])

    def text(index: int) -> str:
        return data[strings + index : data.index(b"\0", strings + index)].decode()

    versions: tuple[tuple[str, str], ...] = ()
    if _VERNEED in found:
        start = _offset(loads, found[_VERNEED])
        versions = tuple((text(library), text(name)) for library, name in _verneed(data, start))
    return Elf(
        soname=text(found[_SONAME]) if _SONAME in found else "",
        needed=tuple(text(value) for tag, value in entries if tag == _NEEDED),
        versions=versions,
        search=tuple(
            part for tag, value in entries if tag in (_RPATH, _RUNPATH) for part in text(value).split(":") if part
        ),
    )


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(type, file offset, address, bytes in the file) of every program header."""
    table = struct.unpack_from("<Q", data, 32)[0]
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, table + index * size)
        yield kind, offset, address, length


def _offset(loads: list[tuple[int, int, int]], address: int) -> int:
    for offset, start, size in loads:
        if start <= address < start + size:
            return offset + address - start
    raise ValueError(f"no segment holds the address {address:#x}")


def _verneed(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """(library, version) as offsets into the string table."""
    while True:
        _, count, library, first, following = struct.unpack_from("<HHIII", data, at)
        item = at + first
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, item)
            yield library, name
            item += step
        if not following:
            return
        at += following
