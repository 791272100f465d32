"""Import of chats on a thread of its own: one chat at a time, each whole or not at all, and taken back on request."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.history.bulk import BulkWriter
from app.history.duplicate import renumbered
from app.history.records import FolderDocument, new_id
from app.history.statements import Statement, of_chat, of_folder_documents, of_message, packed
from app.history.store import HistoryStore
from app.history.transfer.readers.files import BrokenFileError, chats
from app.history.transfer.readers.found import FoundChat, Skipped
from app.history.writer import is_full, words_of
from app.language import figure, plural, tr

log = logging.getLogger(__name__)

BATCH = 100
"""Statements of a transaction: the window waits for one of them at most."""
REMOVED_AT_ONCE = 20
"""Chats that are taken back in one transaction."""
HERE = tr("already here")


class _CancelledError(Exception):
    """The person, or the end of the program, ended the import."""


class ImportReport:
    """What came of an import."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        """The chats that are new."""
        self.messages = 0
        self.skipped: Counter[str] = Counter()
        """Chats that are not imported, by the reason in the plural."""
        self.left_out: Counter[str] = Counter()
        """What the new chats had and Kvasir has no place for."""
        self.problems: list[str] = []
        """Sentences on files that could not be read to their end."""
        self.cancelled = False

    @property
    def sentence(self) -> str:
        """All of it for people."""
        chats = plural("1 chat", "{n:,} chats", len(self.ids))
        messages = plural("1 message", "{n:,} messages", self.messages)
        parts = [tr("{chats} with {messages} imported.", chats=chats, messages=messages)]
        if self.cancelled:
            parts.insert(0, tr("The import was cancelled."))
        if self.skipped:
            whole = sum(self.skipped.values())
            parts.append(tr("{n:,} skipped: {reasons}.", n=whole, reasons=_listed(self.skipped)))
        if self.left_out:
            parts.append(tr("Left out: {parts}.", parts=_listed(self.left_out)))
        return " ".join([*parts, *self.problems])


class ImportJob(QObject):
    """Imports the chats of ``paths``. A chat that is in the history already, by its id, is skipped."""

    progressed = Signal(float, int)
    """(the share of the files that was read, chats imported so far)."""
    ended = Signal(object)
    """The ImportReport."""
    undone = Signal(str)
    """The import was taken back, or could not be; a sentence for people."""

    def __init__(self, history: HistoryStore, paths: Sequence[Path], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._history, self._paths = history, list(paths)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.report = ImportReport()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._begin(self._import)

    def undo(self) -> None:
        """Remove every chat that was imported."""
        self._begin(self._remove)

    def cancel(self) -> None:
        """Stop; chats that are imported stay, :meth:`undo` removes them."""
        self._stop.set()

    def close_down(self) -> None:
        """Stop, and wait for that."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self, act: Callable[[], None]) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=act, name="kvasir-import", daemon=True)
        self._thread.start()

    # --- on the thread ---------------------------------------------------------------------------------------------

    def _import(self) -> None:
        report = self.report
        try:
            bulk = self._history.bulk()
            try:
                for number, path in enumerate(self._paths):
                    self._import_file(bulk, path, number)
                    if self._stop.is_set():
                        break
            finally:
                bulk.close()
        except (sqlite3.Error, OSError) as error:
            log.exception("the import could not be written")
            report.problems.append(_unwritten(error))
        report.cancelled = self._stop.is_set()
        self._history.changed.emit("")
        self.ended.emit(report)

    def _import_file(self, bulk: BulkWriter, path: Path, number: int) -> None:
        def tell(share: float) -> None:
            if self._stop.is_set():
                raise _CancelledError
            self.progressed.emit((number + share) / len(self._paths), len(self.report.ids))

        reader = chats(path, tell)
        while not self._stop.is_set():
            try:
                found = next(reader, None)
            except _CancelledError:
                return
            except BrokenFileError as error:
                said = tr("“{name}” could not be read to its end: {why}.", name=path.name, why=error)
                self.report.problems.append(said)
                return
            except OSError as error:
                why = error.strerror or str(error)
                said = tr("“{name}” could not be read ({why}). Check that it is still there.", name=path.name, why=why)
                self.report.problems.append(said)
                return
            if found is None:
                return
            if isinstance(found, Skipped):
                self.report.skipped[found.why] += 1
            elif self._known(bulk, found):
                self.report.skipped[HERE] += 1
            else:
                self._import_chat(bulk, found)

    def _known(self, bulk: BulkWriter, found: FoundChat) -> bool:
        own = found.origin.removeprefix("kvasir:") if found.origin.startswith("kvasir:") else ""
        return bool(
            bulk.read("SELECT 1 FROM chats WHERE origin = ? AND NOT deleted", found.origin)
            or bulk.read("SELECT 1 FROM chats WHERE id = ? AND NOT deleted", own)
        )

    def _import_chat(self, bulk: BulkWriter, found: FoundChat) -> None:
        """In several transactions where it is long; until the last one it counts as deleted, and is removed at the next
        start if that never comes."""
        chat, ids = new_id(), {message.id: new_id() for message in found.messages}
        leaf = ids.get(found.chat.leaf, "")
        batch = list(self._head(bulk, found, chat, leaf))
        for message in renumbered(found.messages, chat, ids):
            state = "interrupted" if message.state == "streaming" else message.state
            batch += of_message(message._replace(state=state))
            if len(batch) >= BATCH:
                bulk.write(batch)
                batch = []
                if self._stop.is_set():
                    return
        bulk.write([*batch, Statement("UPDATE chats SET deleted = 0 WHERE id = ?", (chat,))])
        self.report.ids.append(chat)
        self.report.messages += len(ids)
        self.report.left_out.update({what: count for what, count in found.left_out.items() if count})

    def _head(self, bulk: BulkWriter, found: FoundChat, chat: str, leaf: str) -> Iterator[Statement]:
        """The chat without its messages."""
        folder, out = "", list[str]()
        if found.folder:
            rows = bulk.read("SELECT id FROM folders WHERE name = ?", found.folder)
            folder = rows[0][0] if rows else new_id()
            yield Statement("INSERT OR IGNORE INTO folders (id, name) VALUES (?,?)", (folder, found.folder))
            if not rows:  # a folder that is here keeps its own
                documents = {each.digest: FolderDocument(new_id(), each) for each in found.folder_documents}
                yield from of_folder_documents(folder, list(documents.values()))
                out = [each.id for digest, each in documents.items() if digest in found.without]
            elif found.without:
                own = bulk.read("SELECT id, document FROM folder_documents WHERE folder = ? ORDER BY place", folder)
                out = [key for key, digest in own if digest in found.without]
        yield of_chat(found.chat._replace(id=chat, leaf=leaf, left_out=tuple(out)))
        sql = "UPDATE chats SET folder = ?, pinned = ?, archived = ?, tags = ?, origin = ?, deleted = 1 WHERE id = ?"
        place = (folder, found.pinned, found.archived, packed(found.tags), found.origin, chat)
        yield Statement(sql, place)
        for digest, tools in found.tools.items():
            yield Statement("INSERT OR IGNORE INTO tools VALUES (?,?,?)", (chat, digest, packed(tools)))

    def _remove(self) -> None:
        ids = self.report.ids
        try:
            bulk = self._history.bulk()
            try:
                for start in range(0, len(ids), REMOVED_AT_ONCE):
                    some = ids[start : start + REMOVED_AT_ONCE]
                    bulk.write([Statement("DELETE FROM chats WHERE id = ?", (one,)) for one in some])
                    self.progressed.emit((start + len(some)) / len(ids), start + len(some))
                    if self._stop.is_set():  # the program ends; the rest goes with the next start
                        rest = ids[start + REMOVED_AT_ONCE :]
                        bulk.write([Statement("UPDATE chats SET deleted = 1 WHERE id = ?", (one,)) for one in rest])
                        break
            finally:
                bulk.close()
            sentence = plural("1 imported chat removed.", "{n:,} imported chats removed.", len(ids))
        except (sqlite3.Error, OSError) as error:
            log.exception("the import could not be taken back")
            sentence = _unwritten(error)
        for one in ids:
            self._history.changed.emit(one)
        self.undone.emit(sentence)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{figure(count)} {what}" for what, count in counts.most_common())


def _unwritten(error: sqlite3.Error | OSError) -> str:
    if is_full(error):
        return tr("The history could not be written further, because the disk is full. Free some space.")
    return tr(
        "The history could not be written further ({why}). Allow writing there and import again.", why=words_of(error)
    )
