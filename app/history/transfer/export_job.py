"""Export of chats, one at a time: read on the window's thread, written on another, so that neither waits long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from PySide6.QtCore import QObject, Signal

from app.history.export import file_name
from app.history.records import ListedChat
from app.history.store import HistoryStore
from app.history.transfer import chat_file
from app.history.transfer.formats import Format
from app.history.transfer.places import ExportPlace
from app.language import plural, tr

log = logging.getLogger(__name__)

CANCELLED = tr("The export was cancelled, and nothing is left of it.")


class ExportJob(QObject):
    """Writes ``chats`` to ``place``; whatever ends it early leaves nothing there.

    Only one chat is in memory at any time.
    """

    progressed = Signal(int, int)
    """(chats written, chats in all)."""
    ended = Signal(bool, str)
    """(whether all are written, a sentence for people)."""
    _written = Signal(object)

    def __init__(
        self,
        history: HistoryStore,
        chats: Sequence[ListedChat],
        form: Format,
        place: ExportPlace,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._history, self._form, self._place = history, form, place
        self._folders = {folder.id: folder.name for folder in history.folders()}
        self._left, self._all = list(reversed(chats)), len(chats)
        self._names: set[str] = set()
        self._cancelled = False
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "kvasir-export")
        self._written.connect(self._on_written)

    @property
    def running(self) -> bool:
        return self._pool is not None

    def start(self) -> None:
        self._next()

    def cancel(self) -> None:
        """Stop after the chat that is being written."""
        self._cancelled = True

    def close_down(self) -> None:
        """Give up at once, and wait until nothing is left."""
        self._cancelled = True
        if self._pool is not None:
            self._pool.submit(self._place.give_up)
            self._pool.shutdown()
            self._pool = None

    def _next(self) -> None:
        if self._cancelled:
            self._do(self._place.give_up, "cancelled")
            return
        while self._left:
            listed = self._left.pop()
            record = chat_file.read(self._history, listed, self._folders.get(listed.folder, ""))
            if record is not None:
                self._do(partial(self._write, self._name(record), record), "written")
                return
        self._do(self._place.finish, "finished")

    def _write(self, name: str, record: chat_file.ChatRecord) -> None:
        """On the other thread."""
        self._place.put(name, self._form.render(record))

    def _do(self, act: Callable[[], None], what: str) -> None:
        if self._pool is None:
            return
        self._pool.submit(act).add_done_callback(lambda done: self._written.emit((what, done)))

    def _on_written(self, result: tuple[str, Future[None]]) -> None:
        what, done = result
        if self._pool is None:
            return
        error = done.exception()
        if error is not None:
            self._fail(error)
        elif what == "cancelled":
            self._end(False, CANCELLED)
        elif what == "finished":
            path = self._place.path
            said = plural("1 chat exported to {path}.", "{n:,} chats exported to {path}.", self._all, path=path)
            self._end(True, said)
        else:
            self.progressed.emit(self._all - len(self._left), self._all)
            self._next()

    def _fail(self, error: BaseException) -> None:
        self._place.give_up()
        log.error("chats could not be exported to %s", self._place.path, exc_info=error)
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        self._end(
            False,
            tr(
                "{path} could not be written ({why}). Choose another place or free some space.",
                path=self._place.path,
                why=why,
            ),
        )

    def _end(self, whole: bool, sentence: str) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        self.ended.emit(whole, sentence)

    def _name(self, record: chat_file.ChatRecord) -> str:
        """A name that no other chat of this export has, in its folder."""
        folder = file_name(record.chat._replace(title=record.folder), "") + "/" if record.folder else ""
        first = file_name(record.chat, "")
        name, number = f"{folder}{first}{self._form.suffix}", 2
        while name.casefold() in self._names:
            name, number = f"{folder}{first} ({number}){self._form.suffix}", number + 1
        self._names.add(name.casefold())
        return name
