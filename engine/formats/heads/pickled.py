"""Heads that come as a pickle (``.pt``, ``.bin``): read without running any of it, and written as safetensors once.

Unpickling can run any code. torch's weights-only reader knows just the few callables that make tensors and plain
containers, and refuses every other; what it gives is accepted only if it is one flat dictionary of dense tensors. From
then on the safetensors copy is read, for as long as the pickle's size and time are those it was made from.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.formats.safetensors import DTYPES, read_header

SUFFIXES = (".pt", ".bin", ".pth")
_FROM = "converted_from"
_KNOWN = frozenset(DTYPES.values())
_MOST_NAMES = 10_000


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, as views of the mapped file. Raises :class:`CheckpointError` for all other contents."""
    try:
        if not zipfile.is_zipfile(file):
            raise _refused(file, "it is not in the format that torch has written since 2020")
        with zipfile.ZipFile(file) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise _refused(file, "it is compressed, which torch's files are not")
        loaded: Any = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror}). Check the file.") from error
    except CheckpointError:
        raise
    except Exception as error:  # a hostile file can make the reader fail in any way
        raise _refused(file, "it is damaged, or holds more than tensors, which could run any code") from error
    if not isinstance(loaded, dict) or not loaded or len(loaded) > _MOST_NAMES:
        raise _refused(file, "it is not a dictionary of tensors")
    for name, tensor in loaded.items():
        if not isinstance(name, str) or type(tensor) not in (Tensor, torch.nn.Parameter):
            raise _refused(file, f"its entry {str(name)[:60]!r} is not a tensor with a name")
        if not _sound(tensor):
            raise _refused(file, f"its tensor {name[:60]!r} is of an unusual kind")
    if sum(tensor.nbytes for tensor in loaded.values()) > 4 * file.stat().st_size:
        raise _refused(file, "its tensors would take far more memory than the file has bytes")
    return {name: tensor.detach() for name, tensor in loaded.items()}


def _sound(tensor: Tensor) -> bool:
    """Return True if the tensor is dense, on the CPU, of a known dtype, and no larger than its own storage."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.dtype not in _KNOWN:
        return False
    return tensor.nbytes <= tensor.untyped_storage().nbytes()


def _refused(file: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{file.name} is a pickle that Kvasir does not read: {why}. Choose a safetensors version of these heads."
    )


def copy_of(file: Path, elsewhere: Path) -> Path | None:
    """The safetensors copy of a pickle that :func:`converted` made, if there is one and it is still right.

    A file of that name next to it that somebody else wrote is taken as it is. Raises :class:`CheckpointError`.
    """
    stamp = _stamp(file)
    for place in _places(file, elsewhere):
        if place.is_file():
            made_from = _made_from(place)
            if made_from == stamp or (made_from is None and place.parent == file.parent):
                return place
    return None


def converted(file: Path, elsewhere: Path) -> Path:
    """The safetensors copy of a pickle, next to it where that can be written, else in the folder ``elsewhere``.

    It is made where there is none, or where the pickle has changed since. Raises :class:`CheckpointError`.
    """
    found = copy_of(file, elsewhere)
    if found is not None:
        return found
    stamp = _stamp(file)
    tensors = _unshared(read_tensors(file))
    failures: list[str] = []
    places = _places(file, elsewhere)
    for place in places:
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(place, tensors, stamp)
        except Exception as error:  # safetensors has an error of its own for a full disk
            failures.append(getattr(error, "strerror", None) or repr(error)[:200])
        else:
            return place
    raise CheckpointError(
        f"{file.name} has to be copied to safetensors once, and neither {places[0].parent} nor {places[1].parent} "
        f"can be written ({'; '.join(failures)}). Make one of them writable, or convert the file yourself."
    )


def _places(file: Path, elsewhere: Path) -> tuple[Path, Path]:
    """Places of the copy: beside the pickle, or ``elsewhere`` under a hash of its whole path, as names repeat."""
    name = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:32]
    return file.with_suffix(".safetensors"), elsewhere / f"{name}.safetensors"


def _stamp(file: Path) -> str:
    try:
        status = file.stat()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror}). Check the file.") from error
    return f"{file.name}, {status.st_size} bytes, {status.st_mtime_ns} ns"


def _made_from(file: Path) -> str | None:
    """The stamp of the pickle that a safetensors file was made from; None: it was not made here."""
    read_header(file)  # all of it is checked, so that the few lines below need not
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    metadata = header.get("__metadata__")
    made_from = metadata.get(_FROM) if isinstance(metadata, dict) else None
    return made_from if isinstance(made_from, str) else None


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors of which no two share memory, which safetensors cannot express."""
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone(memory_format=torch.contiguous_format) if storage in seen else tensor.contiguous()
        seen.add(storage)
    return found


def _write(place: Path, tensors: dict[str, Tensor], stamp: str) -> None:
    unfinished = place.with_name(f"{place.name}.{os.getpid()}.unfinished")
    try:
        save_file(tensors, unfinished, metadata={"format": "pt", _FROM: stamp})
        os.replace(unfinished, place)
    finally:
        unfinished.unlink(missing_ok=True)
