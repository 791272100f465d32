"""The dialog with the documents of a folder: added, read again, removed, and what was left out of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QDialog, QFileDialog, QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.chat.folder.chip import TOO_LONG
from app.chat.folder.files import FolderFiles
from app.chat.session.tokens import DocumentTokens
from app.documents.plan import planned
from app.documents.reading import KINDS
from app.documents.records import counted, kind_of, size_of
from app.dropped import accept_copy, files_in
from app.history.records import Folder, FolderDocument
from app.history.store import HistoryStore
from app.language import plural, tr
from app.theme.room import room_of, scrolling
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, caption, clear, fill, named, say

SIZE = QSize(620, 520)
ABOUT = tr(
    "Every question in this folder is asked with these documents, from the next one on. They stand before the chat, so "
    "that the model reads each once for all chats that begin here."
)
NONE = tr("No documents yet. Add files, or drop them here.")
CHANGED = tr("The file was changed since it was read.")
GONE = tr("The file is not there any more; what was read of it stays in use.")


class FolderDocumentsDialog(QDialog):
    """``context`` returns the tokens that the model takes, 0 where that is not known."""

    unseen = Signal(str)
    """Reason, as a sentence, that a file is no document of the folder, told after the dialog was closed."""

    def __init__(
        self,
        history: HistoryStore,
        folder: Folder,
        tokens: DocumentTokens,
        context: Callable[[], int],
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._tokens, self._context, self._closed = tokens, context, False
        self.files = FolderFiles(history, folder.id, self)
        named(self, "folder-dialog", windowTitle=tr("Documents of the folder"), acceptDrops=True)
        self.resize((SIZE * max(1.0, theme.scale)).boundedTo(room_of(self)))
        inside = QWidget()
        self._list = fill(QVBoxLayout(), margins=0, spacing=10)
        fill(QVBoxLayout(inside), self._list, 1, margins=(24, 4, 24, 12))
        self.sentence = caption(name="folder-sentence")
        self.whole = caption(name="folder-whole")
        self.add_button = named(QPushButton(tr("Add…")), "folder-add", clicked=self._choose, kind="primary")
        close = named(QPushButton(tr("Close")), "folder-close", clicked=self.accept)
        for button in (self.add_button, close):
            button.setAutoDefault(False)
        title = ElidedLabel(tr("Documents of “{folder}”", folder=folder.name), "title")
        top = fill(QVBoxLayout(), title, caption(ABOUT), margins=(24, 16, 24, 8), spacing=8)
        said = fill(QVBoxLayout(), self.sentence, self.whole, margins=(24, 8, 24, 0), spacing=6)
        foot = fill(QHBoxLayout(), 1, close, self.add_button, margins=(16, 8, 16, 16), spacing=8)
        shown = scrolling(inside, tr("Documents of the folder"))
        fill(QVBoxLayout(self), top, (shown, 1), said, foot, margins=0, spacing=0)
        say(self.sentence, "")
        self.files.changed.connect(self._on_files)
        self.files.refused.connect(self._refuse)
        tokens.changed.connect(self._show)
        self.finished.connect(self._on_finished)
        self._show()
        self.add_button.setFocus()

    def add(self, paths: Sequence[Path]) -> None:
        """Read these files, as if they had been dropped here."""
        say(self.sentence, "")
        self.files.add(paths)

    def close_down(self) -> None:
        """Before the program ends."""
        self.files.stop()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if files_in(event.mimeData()):
            accept_copy(event)

    def dropEvent(self, event: QDropEvent) -> None:
        accept_copy(event)
        self.add(files_in(event.mimeData()))

    # --- inside ----------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        patterns = " ".join("*" + suffix for suffix in KINDS)
        offered = ";;".join((tr("Files that can be read ({patterns})", patterns=patterns), tr("All files (*)")))
        files, _ = QFileDialog.getOpenFileNames(self, tr("Add documents"), "", offered)
        if files:
            self.add([Path(file) for file in files])

    def _refuse(self, sentence: str) -> None:
        if self._closed:
            self.unseen.emit(sentence)
        else:
            say(self.sentence, sentence, "bad")

    def _on_files(self) -> None:
        if not self._closed:
            self._show()
        elif not self.files.reading:
            self.deleteLater()

    def _on_finished(self) -> None:
        """Closed, it stays until all files are read, so that none is lost that was chosen."""
        self._closed = True
        self._tokens.changed.disconnect(self._show)
        self._on_files()

    def _show(self) -> None:
        clear(self._list)
        documents, context = self.files.documents, self._context()
        known = [self._tokens.of(each.document) for each in documents] if context else [None] * len(documents)
        counts = [count for count in known if count is not None]
        fits = iter(planned(context, 0, counts).whole) if context else iter(())
        for each, count in zip(documents, known, strict=True):
            self._list.addWidget(self._card(each, count, count is None or next(fits)))
        for name in self.files.reading:
            self._list.addWidget(self._being_read(name))
        if not documents and not self.files.reading:
            self._list.addWidget(caption(NONE))
        say(self.whole, self._sum(counts, context) if documents else "")

    def _sum(self, counts: Sequence[int], context: int) -> str:
        """How much they are together."""
        documents = plural("1 document", "{n:,} documents", len(self.files.documents))
        if len(counts) < len(self.files.documents):
            return documents
        tokens = counted(sum(counts), "token")
        return tr(
            "{documents}, {tokens}. The context has {context:,}.", documents=documents, tokens=tokens, context=context
        )

    def _card(self, each: FolderDocument, count: int | None, fits: bool) -> QFrame:
        facts, state = each.document.facts, self.files.state(each)
        card = named(QFrame(), f"folder-card.{each.document.name}")
        parts = [kind_of(facts), size_of(facts), *([counted(count, "token")] if count is not None else [])]
        row = fill(QHBoxLayout(), (ElidedLabel(each.document.name, "figure"), 1), spacing=8)
        if state == "changed":
            again = self._button(tr("Read again"), f"folder-renew.{each.document.name}", each.document.name)
            fill(row, named(again, clicked=lambda: self.files.renew(each.id)))
        remove = self._button(tr("Remove"), f"folder-remove.{each.document.name}", each.document.name)
        fill(row, named(remove, clicked=lambda: self.files.remove(each.id)))
        column = fill(
            QVBoxLayout(card), row, ElidedLabel(" · ".join(parts), "caption"), margins=(0, 4, 0, 4), spacing=2
        )
        notes = [{"changed": CHANGED, "gone": GONE, "": ""}[state], "" if fits else TOO_LONG, *facts.notes]
        if words := " ".join(filter(None, notes)):
            column.addWidget(named(caption(words, "folder-notes"), role="warn"))
        return card

    def _being_read(self, name: str) -> QFrame:
        card = named(QFrame(), f"folder-card.{name}")
        fill(QVBoxLayout(card), ElidedLabel(name, "figure"), caption(tr("reading…")), margins=(0, 4, 0, 4), spacing=2)
        return card

    def _button(self, title: str, name: str, document: str) -> QPushButton:
        button = named(QPushButton(title), name, title=f"{title}: {document}", kind="quiet")
        button.setAutoDefault(False)
        return button
