"""Files of weights in the address space."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

import torch
from torch import Tensor


def stays_mapped(device: torch.device) -> bool:
    """Return True if a table that ``device`` looks rows up in may stay in its file.

    Windows lets no file be deleted or replaced while it is mapped.
    """
    return device.type == "cpu" and os.name != "nt"


def mapped_file(file: Path, start: int = 0, size: int = 0) -> mmap.mmap:
    """``size`` bytes of the file from ``start`` on, a multiple of the system's granularity; all that follow for 0.

    Copy-on-write, because torch wants a writable buffer; nobody writes, so no page is ever copied. Raises OSError, and
    ValueError where the file is too short, or empty.
    """
    with file.open("rb") as stream:
        return mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY, offset=start)


def mapped_range(file: Path, start: int, size: int) -> Tensor:
    """The bytes ``[size]`` uint8 from ``start`` on, a view of the file; what is read of it lies in the system's cache
    of files, which it is told to fill.

    Raises OSError, and ValueError where the file is too short.
    """
    first = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    part = mapped_file(file, first, start + size - first)
    if hasattr(mmap, "MADV_WILLNEED"):
        with contextlib.suppress(OSError):  # a file system that reads nothing ahead
            part.madvise(mmap.MADV_WILLNEED)
    return torch.frombuffer(part, dtype=torch.uint8, count=size, offset=start - first)
