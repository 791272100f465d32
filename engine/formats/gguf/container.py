"""GGUF files (versions 2 and 3, little-endian) without trusting them; ggml's docs/gguf.md.

Layout: "GGUF", u32 version, u64 tensors, u64 keys, the keys with values, one entry a tensor, padding to the alignment,
the data. Everything is checked before a tensor is looked at. Tensors are views of the mapped file.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.base.files import regular_size, unreadable
from engine.formats.gguf.find import PART
from engine.formats.gguf.metadata import AGAIN, Reader, Value
from engine.formats.gguf.types import FLOATING, TYPES
from engine.formats.mapped import mapped_file, mapped_range

VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_TENSORS = 1 << 15
MAX_PARTS = 1024
MAX_NAME = 1024


class GgufTensorInfo(NamedTuple):
    """One tensor of a file: ``type`` is ggml's number, ``start`` its first byte in the file, ``size`` in bytes.

    ``shape`` is torch's, the row's length last.
    """

    name: str
    type: int
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


class GGUFFile:
    """A model in GGUF, whether of one file or of several. ``metadata`` is that of the (first) file."""

    def __init__(self, path: Path, metadata: dict[str, Value], entries: dict[str, GgufTensorInfo]) -> None:
        self.path, self.metadata, self.entries = path, metadata, entries
        self._maps: dict[Path, mmap.mmap] = {}

    @classmethod
    def open(cls, path: Path) -> GGUFFile:
        """Reads all headers; ``path`` is the file, or any one of several. Raises :class:`CheckpointError`."""
        parts = part_files(path)
        metadata, found = read_header(parts[0])
        total = _expected(parts[0], metadata, 0, len(parts))
        for number, part in enumerate(parts[1:], 1):
            own, more = read_header(part)
            _expected(part, own, number, len(parts))
            found += more
        entries = {entry.name: entry for entry in found}
        if len(entries) < len(found):
            raise CheckpointError(f"Two parts of {path.name} hold the same tensor. {AGAIN}")
        if total is not None and total != len(found):
            raise CheckpointError(
                f"The parts of {path.name} hold {len(found):,} tensors where {total:,} are expected. {AGAIN}"
            )
        return cls(parts[0], metadata, entries)

    def packed(self, name: str) -> Tensor:
        """The tensor's bytes as uint8 ``[rows, bytes of a row]``, a view of its mapped file: not to be written to."""
        entry = self.entries[name]
        kind = TYPES[entry.type]
        return self._bytes(entry).view(-1, entry.shape[-1] // kind.weights * kind.bytes)

    def floating(self, name: str) -> Tensor:
        """A tensor of type F32, F16 or BF16 in its shape, a view of its mapped file."""
        entry = self.entries[name]
        return self._bytes(entry).view(FLOATING[entry.type]).view(entry.shape)

    def in_file(self, name: str) -> Tensor:
        """The tensor's bytes ``[size]``, in a map of its own, to be kept after :meth:`close`.

        Raises :class:`CheckpointError`.
        """
        entry = self.entries[name]
        try:
            return mapped_range(entry.file, entry.start, entry.size)
        except ValueError:
            raise CheckpointError(f"{entry.file.name} was cut short while it was open. {AGAIN}") from None
        except OSError as error:
            raise unreadable(entry.file, error) from error

    def _bytes(self, entry: GgufTensorInfo) -> Tensor:
        if entry.file not in self._maps:
            self._maps[entry.file] = mapped(entry.file)
        buffer = self._maps[entry.file]
        if entry.start + entry.size > len(buffer):
            raise CheckpointError(f"{entry.file.name} was cut short while it was open. {AGAIN}")
        return torch.frombuffer(buffer, dtype=torch.uint8, count=entry.size, offset=entry.start)

    def close(self) -> None:
        """Let go of the maps; views that are still held keep theirs."""
        self._maps.clear()


def part_files(path: Path) -> list[Path]:
    """All files of the model that ``path`` is a part of. Raises :class:`CheckpointError` when one is missing."""
    match = PART.fullmatch(path.name)
    if match is None:
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count <= MAX_PARTS:
        raise CheckpointError(f"{path.name} names itself part {number:,} of {count:,}. Check the file's name.")
    parts = [path.with_name(f"{match['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    for part in parts:
        if not part.exists():
            raise CheckpointError(f"{part.name} is missing, one of the model's {count} files. Download it.")
    return parts


def mapped(file: Path) -> mmap.mmap:
    """The file in the address space. Raises :class:`CheckpointError`."""
    try:
        regular_size(file)
        return mapped_file(file)
    except ValueError as error:
        raise CheckpointError(f"{file} cannot be read (it is empty). {AGAIN}") from error
    except OSError as error:
        raise unreadable(file, error) from error


def read_header(file: Path) -> tuple[dict[str, Value], list[GgufTensorInfo]]:
    """Metadata and tensors of one file. Raises :class:`CheckpointError` for anything that is not a whole, sound file.

    At most a second and 100 MB, whatever the file holds.
    """
    with mapped(file) as data:
        return _parse(Reader(file, data))


def _parse(reader: Reader) -> tuple[dict[str, Value], list[GgufTensorInfo]]:
    file = reader.file
    magic = reader.data[:8]
    if magic == b"version ":
        raise CheckpointError(
            f"{file.name} is a Git LFS pointer and not the weights themselves. Fetch the file with `git lfs pull`."
        )
    if magic[:4] != b"GGUF":
        raise CheckpointError(f"{file.name} is not a GGUF file (it does not begin with GGUF). {AGAIN}")
    reader.at = 4
    version = reader.integer("I", "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        known = "big-endian" if swapped else f"of version {version}"
        raise CheckpointError(
            f"{file.name} is a GGUF file {known}, and Kvasir reads versions 2 and 3 in little-endian. "
            "Choose another version of the model."
        )
    count, keys = reader.integer("Q", "the number of tensors"), reader.integer("Q", "the number of keys")
    if count > MAX_TENSORS:
        raise reader.corrupt(f"it claims to have {count:,} tensors")
    metadata = reader.metadata(keys)
    alignment = metadata.get("general.alignment", ALIGNMENT)
    # Powers of two from 8 on, as the format demands, so that every tensor's numbers lie where torch can view them.
    if type(alignment) is not int or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise reader.corrupt(f"its alignment is {alignment!r}")
    reader.need(count, 8 + 4 + 8 + 4 + 8, "the list of tensors")
    listed = [_entry(reader, alignment) for _ in range(count)]
    start = -(-reader.at // alignment) * alignment
    entries = [entry._replace(start=start + entry.start) for entry in listed]
    _check_places(reader, entries)
    return metadata, entries


def _entry(reader: Reader, alignment: int) -> GgufTensorInfo:
    """One tensor's entry; its start counts from the data's, and may still be anywhere."""
    name = reader.string("a tensor's name", MAX_NAME)
    dimensions = reader.integer("I", "a tensor's entry")
    if not 1 <= dimensions <= 4:
        raise reader.corrupt(f"{name!r} has {dimensions:,} dimensions")
    *sizes, number, start = reader.integers(f"<{dimensions}QIQ", "a tensor's entry")
    kind = TYPES.get(number)
    if kind is None:
        raise CheckpointError(
            f"{reader.file.name} stores {name!r} in the type number {number}, which Kvasir does not know. "
            "Choose another version of the model."
        )
    if not all(sizes) or sizes[0] % kind.weights:
        raise reader.corrupt(f"{name!r} of {sizes} is not a whole number of {kind.name} blocks")
    if start % alignment:
        raise reader.corrupt(f"{name!r} is not aligned to {alignment} bytes")
    size = math.prod(sizes) // kind.weights * kind.bytes
    return GgufTensorInfo(name, number, tuple(reversed(sizes)), reader.file, start, size)


def _check_places(reader: Reader, entries: Iterable[GgufTensorInfo]) -> None:
    names: set[str] = set()
    end, last = 0, ""
    for entry in sorted(entries, key=lambda entry: entry.start):
        if entry.name in names:
            raise reader.corrupt(f"it holds two tensors {entry.name!r}")
        names.add(entry.name)
        if entry.start < end:
            raise reader.corrupt(f"the tensors {last!r} and {entry.name!r} overlap")
        end, last = entry.start + entry.size, entry.name
        if end > reader.end:
            raise CheckpointError(
                f"{reader.file.name} is truncated: {entry.name!r} ends at byte {end:,} of {reader.end:,}. {AGAIN}"
            )


def _expected(file: Path, metadata: dict[str, Value], number: int, count: int) -> int | None:
    """Check a part's own numbering, and give the number of tensors that all parts together should have."""
    if metadata.get("split.count", 1 if count == 1 else None) not in (count, 0 if count == 1 else count):
        raise CheckpointError(
            f"{file.name} is one of {metadata.get('split.count')!r} files by its content and one of {count} by its "
            "name. Give the parts their original names."
        )
    if count > 1 and metadata.get("split.no") != number:
        raise CheckpointError(
            f"{file.name} says that it is part {metadata.get('split.no')!r} (counted from 0) and not {number}. "
            "Give the parts their original names."
        )
    total = metadata.get("split.tensors.count")
    return total if count > 1 and type(total) is int else None
