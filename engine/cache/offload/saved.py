"""Chats whose keys and values outlive the engine, so that they continue without being read again.

After an answer the engine saves the chat's new pages; after a restart it asks how much of a prompt is saved and loads
that. A thread of its own writes and deletes, so that no step waits for a disk: while it is behind, pages are dropped
and counted, and saved with a later answer. Reading happens where it is asked for. Nothing here raises for what is on
the disk: what cannot be read or written is logged, counted, deleted, and the text is read again. (The files are those
of engine/cache/offload/saved_files.py. Two engines may share a folder: what one overwrites for the other fails its
checksum.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from engine.cache.offload.saved_files import Damaged, Index, Kind, as_ids, index_size, name_of
from engine.cache.offload.saved_folder import NoRoom, SavedFolder, SavedSizes
from engine.cache.pool import PAGE_SIZE

__all__ = ["Kind", "SavedChats", "SavedCounts", "SavedSizes"]

_log = logging.getLogger(__name__)

MOST_PENDING = 512 << 20
"""Bytes of pages that may wait for the disk, in host memory."""
MOST_WRITES = 8
"""Answers that may wait."""


@dataclass(frozen=True)
class SavedCounts:
    """Since the start: pages ``written`` and ``read``. Answers whose pages were not written, because the writer was
    behind (``dropped``), for the quota (``refused``) or because the disk would not (``failed``). Chats that made way
    (``evicted``) or were found ``damaged``."""

    written: int = 0
    read: int = 0
    dropped: int = 0
    refused: int = 0
    failed: int = 0
    evicted: int = 0
    damaged: int = 0


@dataclass(eq=False, frozen=True)
class _Write:
    name: str
    kind: Kind
    tokens: np.ndarray
    first: int
    pages: Tensor


@dataclass(eq=False, frozen=True)
class _Delete:
    """``name`` "" deletes only what is over the quota."""

    name: str = ""


class SavedChats:
    """Saved chats in their user's own folder, at most `quota` bytes in all: the least recently used make way.

    With a quota of 0 nothing is saved, loaded or deleted (an engine may start before its quota is set).
    """

    def __init__(
        self, folder: Path, quota: int, clock: Callable[[], float] = time.time, pending: int = MOST_PENDING
    ) -> None:
        self.quota, self._pending = quota, pending
        self._counts, self._closed = SavedCounts(), False
        # Guards the queue and the counts.
        self._changed = threading.Condition()
        self._queue: deque[_Write | _Delete] = deque()
        self._running: _Write | _Delete | None = None
        self._thread: threading.Thread | None = None
        self._folder: SavedFolder | None = None
        try:
            self._folder = SavedFolder(folder, clock)
        except OSError as error:
            _log.warning("chats are not saved: %s", error)
            return
        self.resize(quota)

    # --- what the engine does ------------------------------------------------------------------------------------

    def save(self, chat: str, kind: Kind, tokens: Sequence[int], export: Callable[[int, int], Tensor]) -> bool:
        """Save the whole pages of the chat's `tokens`, those of them that are not saved yet; True if there is work.

        `export(first, stop)` gives the pages [first, stop) of the sequence as `KVStore.export_pages` does; it is called
        at once, or not at all. What is saved of the chat beyond its common beginning with `tokens` is given up, if
        there is something new to save in its place. Waits for no disk but to read the chat's index, once.
        """
        name, ids = name_of(chat), as_ids(tokens)
        with self._changed:
            if self._off:
                return False
            writes = [task for task in self._tasks() if isinstance(task, _Write)]
            room = (self._pending - sum(task.pages.nbytes for task in writes)) // kind.page_bytes
            if self._busy(name) or len(writes) >= MOST_WRITES or room < 1:
                self._count(dropped=1)
                return False
        index = self._index(name)
        first = index.common_pages(kind, ids) if index is not None else 0
        stop = min(len(ids) // PAGE_SIZE, first + room)
        if stop <= first:
            return False
        if stop * kind.page_bytes + index_size(kind, stop) > self.quota:
            _log.info("a chat is not saved: alone it is more than all of them may be")
            self._count(refused=1)
            return False
        self._submit(_Write(name, kind, ids[: stop * PAGE_SIZE], first, export(first, stop)))
        return True

    def match(self, chat: str, kind: Kind, tokens: Sequence[int]) -> int:
        """Number of leading pages of `tokens` that are saved. Their checksums are verified when they are loaded."""
        index = self._readable(name_of(chat))
        return index.common_pages(kind, as_ids(tokens)) if index is not None else 0

    def load(
        self, chat: str, kind: Kind, tokens: Sequence[int], first: int, stop: int, out: Tensor | None = None
    ) -> Tensor | None:
        """The pages [first, stop) of `tokens`, as `KVStore.import_pages` wants them; in `out`, if given.

        None if they are not all there, whole and of these tokens; a chat whose files are damaged is deleted.
        """
        name = name_of(chat)
        index = self._readable(name)
        if index is None or not 0 <= first < stop <= index.common_pages(kind, as_ids(tokens)):
            return None
        assert self._folder is not None
        try:
            pages = self._folder.files(name).read_pages(index, first, stop, out)
        except (OSError, Damaged) as error:
            self._discard(name, error)
            return None
        self._folder.used(name)
        self._count(read=stop - first)
        return pages

    def forget(self, chat: str) -> None:
        """Delete what is saved of the chat, and what waits to be."""
        self._delete(name_of(chat))

    def clear(self) -> None:
        """Delete all chats."""
        for name in self._folder.names() if self._folder is not None else []:
            self._delete(name)

    def resize(self, quota: int) -> None:
        """Another quota; what is over it is deleted, unless it is 0."""
        self.quota = quota
        if quota > 0:
            self._submit(_Delete())

    def flush(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until all is written and deleted; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._tasks(), timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits, for at most ``timeout`` seconds; nothing is saved or loaded afterwards."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if not self.flush(timeout):
            _log.warning("not all chats were saved in time: %d are left out", len(self._tasks()))
        elif self._thread is not None:
            self._thread.join(timeout)

    # --- contents ------------------------------------------------------------------------------------------------

    def sizes(self) -> SavedSizes:
        """The sizes of all chats on the disk."""
        return self._folder.sizes() if self._folder is not None else SavedSizes(0, 0)

    @property
    def counts(self) -> SavedCounts:
        return replace(self._counts, evicted=self._folder.evicted if self._folder is not None else 0)

    # --- inside --------------------------------------------------------------------------------------------------

    @property
    def _off(self) -> bool:
        return self._closed or self._folder is None or self.quota <= 0

    def _tasks(self) -> list[_Write | _Delete]:
        return [*self._queue, *([self._running] if self._running is not None else [])]

    def _busy(self, name: str) -> bool:
        return any(task.name == name for task in self._tasks())

    def _readable(self, name: str) -> Index | None:
        """Not while it is written: what is being saved is still in the cache itself."""
        with self._changed:
            if self._off or self._busy(name):
                return None
        return self._index(name)

    def _index(self, name: str) -> Index | None:
        assert self._folder is not None
        try:
            return self._folder.index(name)
        except (OSError, Damaged) as error:
            self._discard(name, error)
            return None

    def _discard(self, name: str, why: Exception) -> None:
        _log.warning("the saved chat %s is deleted, and will be read again: %s", name, why)
        self._count(damaged=1)
        self._delete(name)

    def _delete(self, name: str) -> None:
        with self._changed:
            self._queue = deque(task for task in self._queue if task.name != name)
            closed = self._closed
        if closed and self._folder is not None:
            self._folder.remove(name)
        else:
            self._submit(_Delete(name), first=True)

    def _submit(self, task: _Write | _Delete, first: bool = False) -> None:
        if self._folder is None:
            return
        with self._changed:
            if self._closed:
                return
            if first:
                self._queue.appendleft(task)
            else:
                self._queue.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kvasir-saved-chats", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _count(self, **more: int) -> None:
        with self._changed:
            self._counts = replace(self._counts, **{key: getattr(self._counts, key) + n for key, n in more.items()})

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._folder is not None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                task = self._running = self._queue.popleft()
            try:
                self._do(self._folder, task)
            except NoRoom as error:
                _log.warning("a chat is not saved: %s", error)
                self._count(refused=isinstance(task, _Write))
            except Exception as error:  # whatever it is, the thread goes on, and the chat is read again
                _log.warning("a chat is not saved: %r", error)
                self._count(failed=1)
                self._folder.remove(task.name)
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _do(self, folder: SavedFolder, task: _Write | _Delete) -> None:
        with self._changed:
            stay = {other.name for other in self._queue if isinstance(other, _Write)}
        match task:
            case _Write(name, kind, tokens, first, pages):
                folder.write(name, kind, tokens, first, pages, self.quota, stay)
                self._count(written=len(pages))
            case _Delete(""):
                folder.make_room(0, self.quota, stay)
            case _Delete(name):
                folder.remove(name)
