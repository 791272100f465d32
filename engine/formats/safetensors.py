"""Reading safetensors without trusting them.

Layout: u64 little-endian length of the header, the header (JSON: name -> dtype, shape, data_offsets), the data, which
the tensors cover without gaps or overlaps (https://github.com/huggingface/safetensors). Everything is checked before a
tensor is looked at. Tensors are views of the mapped file: reading one takes no memory of the process's own.
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.base.collector import no_collection
from engine.base.errors import CheckpointError
from engine.base.files import SAFETENSORS_HEADER, read_json, regular_size, unreadable
from engine.formats.mapped import mapped_file, mapped_range

MAX_NAME = 1000
MAX_INDEX = 32 << 20
"""Most bytes of the file that says which tensor is in which file, with a line for each."""
MAX_FILE_NAME = 255
MAX_NUMBER = 1 << 63
MAX_DIMENSIONS = 64
"""torch's own limit."""
AGAIN = "Download it again."
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class TensorInfo(NamedTuple):
    """One tensor of a file: ``start`` is its first byte in the file."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    file: Path
    start: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.numel * self.dtype.itemsize


def read_header(file: Path) -> list[TensorInfo]:
    """The tensors of one file. Raises :class:`CheckpointError` for anything that is not a whole, sound file."""
    try:
        total = regular_size(file)
        with file.open("rb") as stream:
            first = stream.read(8)
            if first == b"version ":
                raise CheckpointError(
                    f"{file.name} is a Git LFS pointer and not the weights themselves. "
                    "Fetch the file with `git lfs pull`."
                )
            length = int.from_bytes(first, "little")
            if len(first) < 8 or not 2 <= length <= SAFETENSORS_HEADER:
                raise CheckpointError(f"{file.name} is not a safetensors file (its header length is absurd). {AGAIN}")
            if 8 + length > total:
                raise _truncated(file, 8 + length, total)
            raw = stream.read(length)
    except OSError as error:
        raise unreadable(file, error) from error
    with no_collection():  # which makes reading a large header quadratic
        entries = _entries(file, raw, 8 + length)
    _check_cover(file, entries, 8 + length, total)
    return entries


def _entries(file: Path, raw: bytes, base: int) -> list[TensorInfo]:
    try:
        header = json.loads(raw, object_pairs_hook=_once)
    except _Twice as error:
        raise CheckpointError(f"{file.name} is corrupt: its header names {error} twice. {AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file.name} is corrupt: its header is not valid JSON. {AGAIN}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{file.name} is corrupt: its header is not a JSON object. {AGAIN}")
    return [_entry(file, name, item, base) for name, item in header.items() if name != "__metadata__"]


class _Twice(Exception):  # noqa: N818 - caught where it is raised
    """A name occurs twice in one JSON object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(repr(next(name for name in found if names.count(name) > 1))[:200])
    return found


def _check_cover(file: Path, entries: list[TensorInfo], base: int, total: int) -> None:
    """Every byte after the header belongs to exactly one tensor."""
    reach = max((entry.start + entry.size for entry in entries), default=base)
    if reach > total:
        raise _truncated(file, reach, total)
    end, before = base, "the header"
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.size)):
        if entry.start != end:
            how = "overlap" if entry.start < end else "leave a gap between them"
            raise CheckpointError(f"{file.name} is corrupt: {before} and {entry.name} {how}. {AGAIN}")
        end, before = entry.start + entry.size, entry.name
    if end < total:
        raise CheckpointError(f"{file.name} is corrupt: {total - end:,} bytes at its end belong to no tensor. {AGAIN}")


def _truncated(file: Path, expected: int, found: int) -> CheckpointError:
    return CheckpointError(
        f"{file.name} is truncated: {expected:,} bytes are expected and {found:,} are there. {AGAIN}"
    )


def _entry(file: Path, name: str, item: Any, base: int) -> TensorInfo:
    if not name.isprintable() or len(name) > MAX_NAME:
        raise CheckpointError(f"{file.name} is corrupt: it names a tensor {name[:40]!r}. {AGAIN}")
    try:
        kind, sizes, (begin, end) = item["dtype"], item["shape"], item["data_offsets"]
        shape = tuple(sizes)
    except (TypeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{file.name} is corrupt: its entry for {name} is incomplete. {AGAIN}") from error
    if not isinstance(kind, str) or kind not in DTYPES:
        raise CheckpointError(
            f"{file.name} stores {name} in the dtype {str(kind)[:40]!r}, which Kvasir does not know. "
            "Choose another version of the model."
        )
    whole = all(type(n) is int and 0 <= n < MAX_NUMBER for n in (*shape, begin, end))
    if not isinstance(sizes, list) or not whole or len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(
            f"{file.name} is corrupt: shape or offsets of {name} are not whole numbers, or too large. {AGAIN}"
        )
    entry = TensorInfo(name, DTYPES[kind], shape, file, base + begin)
    if end - begin != entry.size:
        raise CheckpointError(
            f"{file.name} is corrupt: {name} of shape {list(shape)} takes {entry.size:,} bytes "
            f"and its offsets span {end - begin:,}. {AGAIN}"
        )
    return entry


class TensorFiles:
    """All tensors of a checkpoint by name, from one file or from shards with an index."""

    def __init__(self, entries: dict[str, TensorInfo]) -> None:
        self.entries = entries
        self._maps: dict[Path, mmap.mmap] = {}

    @classmethod
    def open(cls, folder: Path) -> TensorFiles:
        """Reads all headers. Raises :class:`CheckpointError`."""
        entries: dict[str, TensorInfo] = {}
        for file in _files(folder):
            for entry in read_header(file):
                if entry.name in entries:
                    raise CheckpointError(
                        f"{entry.name} is both in {entries[entry.name].file.name} and in {file.name}. {AGAIN}"
                    )
                entries[entry.name] = entry
        return cls(entries)

    def view(self, name: str) -> Tensor:
        """The tensor as a view of its mapped file: not to be written to, and gone from memory when it is dropped."""
        return self.map(self.entries[name])

    def dtype(self, name: str) -> torch.dtype:
        """Dtype of :meth:`view`."""
        return self.entries[name].dtype

    def map(self, entry: TensorInfo) -> Tensor:
        """Same as :meth:`view`, of a tensor that need not be one of the checkpoint's own. Raises
        :class:`CheckpointError` for a file that cannot be read or is too short."""
        if entry.numel == 0:
            return torch.empty(entry.shape, dtype=entry.dtype)
        if entry.file not in self._maps:
            try:
                self._maps[entry.file] = mapped_file(entry.file)
            except OSError as error:
                raise CheckpointError(f"{entry.file} cannot be read ({error.strerror}). Check the file.") from error
        buffer = self._maps[entry.file]
        if entry.start + entry.size > len(buffer):
            raise _truncated(entry.file, entry.start + entry.size, len(buffer))
        if entry.start % entry.dtype.itemsize:
            # Headers are usually padded so that this does not happen; torch cannot view unaligned numbers.
            raw = bytearray(buffer[entry.start : entry.start + entry.size])
            return torch.frombuffer(raw, dtype=entry.dtype, count=entry.numel).view(entry.shape)
        return torch.frombuffer(buffer, dtype=entry.dtype, count=entry.numel, offset=entry.start).view(entry.shape)

    def stays(self, name: str) -> bool:
        """True if :meth:`in_file` gives the numbers of :meth:`view`: not where they are read as others, or copied."""
        entry = self.entries[name]
        return entry.numel > 0 and entry.start % entry.dtype.itemsize == 0

    def in_file(self, name: str) -> Tensor:
        """Same as :meth:`view`, in a map of its own, to be kept after :meth:`close`; the others' memory is not tied to
        it. Raises :class:`CheckpointError`."""
        entry = self.entries[name]
        try:
            return mapped_range(entry.file, entry.start, entry.size).view(entry.dtype).view(entry.shape)
        except ValueError:
            raise _truncated(entry.file, entry.start + entry.size, entry.file.stat().st_size) from None
        except OSError as error:
            raise CheckpointError(f"{entry.file} cannot be read ({error.strerror}). Check the file.") from error

    def close(self) -> None:
        """Let go of the maps; views that are still held keep theirs."""
        self._maps.clear()


def _files(folder: Path) -> list[Path]:
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    stated = read_json(index, MAX_INDEX)
    if stated is not None:
        table = stated.get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise CheckpointError(f'{index} has no "weight_map". {AGAIN}')
        names = sorted(set(table.values()))
        for name in names:
            if Path(name).name != name or name in ("", ".", "..") or not name.isprintable():
                raise CheckpointError(f"{index} names {name!r:.300}, which is not a file next to it. {AGAIN}")
            if len(name.encode()) > MAX_FILE_NAME:
                raise CheckpointError(f"{index} names a file of {len(name):,} characters. {AGAIN}")
            if not (folder / name).exists():
                raise CheckpointError(f"{folder} lacks {name}, one of its {len(names)} weight files. Download it.")
        return [folder / name for name in names]
    if single.exists():
        return [single]
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return others
    if others:
        raise CheckpointError(
            f"{folder} has {len(others)} safetensors files and no index. Download the index file too."
        )
    if any(any(folder.glob(pattern)) for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt")):
        raise CheckpointError(
            f"{folder} holds pickled weights, which can run any code when they are read. Choose a safetensors version."
        )
    raise CheckpointError(f"{folder} holds no weights (no .safetensors and no .gguf file). Download the whole model.")
