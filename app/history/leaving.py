"""Before the window closes over chats that could not be saved, it says so and offers to write them to another file."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from app.history.export import unsaved_to_markdown
from app.history.store import HistoryStore
from app.language import plural, tr
from app.theme.widgets import named

NAME = tr("Kvasir, unsaved chats.md")


class Leaving(QObject):
    """Stands before ``window`` closes."""

    def __init__(self, history: HistoryStore, window: QWidget) -> None:
        super().__init__(window)
        self._history, self._window = history, window
        self.box: QMessageBox | None = None
        """The question on show."""
        self._asks = True
        self._given_up = ""
        """Sentence on what was not saved when the person chose to close all the same, which something else may have
        kept from happening."""
        window.installEventFilter(self)

    def stop(self) -> None:
        """The program ends, whatever is not saved."""
        self._asks = False

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() != QEvent.Type.Close or not self._asks or self._history.flush() or not self._history.unsaved():
            return False
        if unsaved_to_markdown(self._history) == self._given_up:
            return False
        event.ignore()
        if self.box is None:
            self._ask()
        return True

    def export(self) -> bool:
        """Ask for a file and write the chats there; False where none was written."""
        start = str(Path.home() / NAME)
        path, _ = QFileDialog.getSaveFileName(self._window, tr("Save the chats elsewhere"), start, "Markdown (*.md)")
        if not path:
            return False
        try:
            Path(path).write_text(unsaved_to_markdown(self._history), encoding="utf-8")
        except OSError as error:
            why = error.strerror or error
            self._box(tr("The file could not be written ({why}). Choose another folder.", why=why)).open()
            return False
        return True

    def _ask(self) -> None:
        count = len(self._history.unsaved())
        box = self._box(
            plural(
                "A chat is not saved in the history. If Kvasir closes now, what was said last is lost.",
                "{n} chats are not saved in the history. If Kvasir closes now, what was said last is lost.",
                count,
            )
        )
        save = box.addButton(tr("Save elsewhere…"), QMessageBox.ButtonRole.AcceptRole)
        leave = box.addButton(tr("Close anyway"), QMessageBox.ButtonRole.DestructiveRole)
        box.addButton(tr("Keep open"), QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(save)
        save.clicked.connect(self._save)
        leave.clicked.connect(self._close)
        box.open()

    def _box(self, sentence: str) -> QMessageBox:
        box = named(QMessageBox(QMessageBox.Icon.Warning, "Kvasir", sentence, parent=self._window), "history.unsaved")
        box.finished.connect(self._on_finished)
        self.box = box
        return box

    def _on_finished(self) -> None:
        if (box := self.sender()) is self.box:
            self.box = None
        assert isinstance(box, QObject)
        box.deleteLater()

    def _save(self) -> None:
        if self.export():
            self._close()

    def _close(self) -> None:
        self._given_up = unsaved_to_markdown(self._history)
        self._window.close()
