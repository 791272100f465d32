"""A large file written piece by piece under another name; one that was left unfinished is gone on with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.services.training.errors import STOPPED, RecipeError, RecipeStopped

UNFINISHED = ".unfinished"
"""Ends the name of a file that is not whole yet."""
SYNCED = 1 << 20
"""Bytes of a piece from which on it is brought to the disk before the next one begins."""


class FilePiece(NamedTuple):
    """``size`` bytes of a file; ``make`` gives them, in parts, when it is their turn."""

    size: int
    make: Callable[[], Iterable[np.ndarray]]


def write_file(
    file: Path, head: bytes, pieces: Sequence[FilePiece], wrote: Callable[[int], None], stopped: Callable[[], bool]
) -> None:
    """``file`` of ``head`` and the pieces. ``wrote(index)`` is called after each piece, those kept included.

    A file that is whole is kept. Raises :class:`RecipeStopped`, between two parts, and :class:`RecipeError` where the
    disk refuses.
    """
    unfinished = file.with_name(file.name + UNFINISHED)
    try:
        if file.exists() and _is_whole(file, head, pieces):
            unfinished.unlink(missing_ok=True)
            for index in range(len(pieces)):
                wrote(index)
            return
        with unfinished.open("r+b" if unfinished.exists() else "w+b") as stream:
            kept = _kept(stream, head, pieces)
            for index, piece in enumerate(pieces):
                if index >= kept:
                    _write(stream, piece, stopped)
                wrote(index)
            _sync(stream)
        unfinished.replace(file)
    except BrokenPipeError:
        raise  # who was told has gone
    except OSError as error:
        raise cannot_write(file, error) from error


def cannot_write(file: Path, error: OSError) -> RecipeError:
    return RecipeError(
        f"{file} cannot be written ({error.strerror}). Make room, and give the same command again: it goes on where it "
        "ended."
    )


def _write(stream: BinaryIO, piece: FilePiece, stopped: Callable[[], bool]) -> None:
    begun = stream.tell()
    for part in piece.make():
        if stopped():
            raise RecipeStopped(STOPPED)
        stream.write(part.data)
    assert stream.tell() - begun == piece.size
    if piece.size >= SYNCED:
        _sync(stream)


def _is_whole(file: Path, head: bytes, pieces: Sequence[FilePiece]) -> bool:
    with file.open("rb") as stream:
        begins = stream.read(len(head)) == head
    return begins and file.stat().st_size == len(head) + sum(piece.size for piece in pieces)


def _kept(stream: BinaryIO, head: bytes, pieces: Sequence[FilePiece]) -> int:
    """Count the pieces that the file has whole after ``head``; it is left open and cut where the next one begins.

    The last large piece, and all after it, need not have reached the disk when the machine lost its power.
    """
    size = os.fstat(stream.fileno()).st_size
    whole, last, at = 0, 0, len(head)
    if stream.read(len(head)) == head:
        for index, piece in enumerate(pieces):
            at += piece.size
            if at > size:
                break
            whole, last = index + 1, index if piece.size >= SYNCED else last
    kept = min(whole, last)
    stream.seek(0)
    stream.write(head)
    stream.seek(len(head) + sum(piece.size for piece in pieces[:kept]))
    stream.truncate()
    return kept


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def as_bytes(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor as they lie in a file, uint8."""
    raw: np.ndarray = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
    return raw
