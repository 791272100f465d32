"""The folder of saved chats: the index of chats, their sizes, and which are deleted for the quota."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.cache.offload.saved_files import ChatFiles, Index, Kind, index_size, saved_in

_log = logging.getLogger(__name__)

SPARE = 1_000_000_000
"""Bytes of the disk that are left to others."""
_MOST_INDICES = 32
"""Indices that are kept in memory."""


class SavedSizes(NamedTuple):
    """Number and size of the chats on the disk."""

    chats: int
    size: int
    """Bytes."""


class NoRoom(Exception):  # noqa: N818 - an outcome that is counted
    """There is no room for what should be written; the message says where."""


@dataclass
class _Known:
    size: int
    used: float


class SavedFolder:
    """Chats by the names of their files. Called by the engine and by the thread that writes.

    Its lock guards what is known of the chats; files are read and written without it. Methods raise OSError and
    `saved_files.Damaged`, but for those that say otherwise.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._indices: dict[str, Index] = {}
        self.evicted = 0
        """Chats that made way, since the start."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name == "posix":
            path.chmod(0o700)
        for name in saved_in(path):
            files = self.files(name)
            with contextlib.suppress(OSError):
                self._known[name] = _Known(files.size(), files.index.stat().st_mtime)

    def files(self, name: str) -> ChatFiles:
        return ChatFiles(self._path, name)

    def sizes(self) -> SavedSizes:
        """Number of all saved chats and bytes of their files."""
        with self._lock:
            return SavedSizes(len(self._known), sum(known.size for known in self._known.values()))

    def index(self, name: str) -> Index | None:
        """Index of a chat's saved pages; None if none are saved."""
        with self._lock:
            index = self._indices.get(name)
        if index is None:
            index = self.files(name).read_index()
            if index is not None:
                with self._lock:
                    self._remember(name, index)
        return index

    def used(self, name: str) -> None:
        """Mark the chat as used now."""
        now = self._clock()
        with self._lock:
            if name in self._known:
                self._known[name].used = now
        with contextlib.suppress(OSError):
            os.utime(self.files(name).index, (now, now))

    def write(
        self, name: str, kind: Kind, tokens: np.ndarray, first: int, pages: Tensor, quota: int, stay: Collection[str]
    ) -> None:
        """Replace what follows the chat's first pages by `pages`. Raises `NoRoom` too.

        Others than the chats `stay` make way for it, the longest unused first.
        """
        stop = first + len(pages)
        self.make_room(stop * kind.page_bytes + index_size(kind, stop), quota, {*stay, name}, name)
        if shutil.disk_usage(self._path).free < pages.nbytes + SPARE:
            raise NoRoom(f"the disk of {self._path} is nearly full")
        files = self.files(name)
        index = files.append(self.index(name), kind, tokens, first, pages)
        known = _Known(files.size(), self._clock())
        with self._lock:
            self._known[name] = known
            self._remember(name, index)
        self.used(name)

    def make_room(self, size: int, quota: int, stay: Collection[str], instead: str = "") -> None:
        """Delete chats, least recently used first, until ``size`` bytes fit; the chat `instead` is not counted."""
        while True:
            with self._lock:
                others = sum(known.size for name, known in self._known.items() if name != instead)
                idle = [(known.used, name) for name, known in self._known.items() if name not in stay]
            if others + size <= quota:
                return
            if not idle:
                raise NoRoom("it is over the quota, together with those that are being saved")
            self.remove(min(idle)[1])
            self.evicted += 1

    def remove(self, name: str) -> None:
        """Delete what is saved of a chat. What cannot be deleted is logged."""
        with self._lock:
            self._indices.pop(name, None)
            self._known.pop(name, None)
        try:
            self.files(name).remove()
        except OSError as error:
            _log.warning("the saved chat %s cannot be deleted: %s", name, error)

    def names(self) -> list[str]:
        """File names (`saved_files.name_of`) of all saved chats."""
        with self._lock:
            return list(self._known)

    def _remember(self, name: str, index: Index) -> None:
        self._indices.pop(name, None)
        self._indices[name] = index
        if len(self._indices) > _MOST_INDICES:
            del self._indices[next(iter(self._indices))]
