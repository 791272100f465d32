"""The dialog of an import: how far it is, what came of it, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.history.store import HistoryStore
from app.history.transfer.import_job import ImportJob, ImportReport
from app.language import plural, tr
from app.theme.widgets import caption, fill, named

WIDTH = 460
_STEPS = 1000


class ImportDialog(QDialog):
    """Imports ``paths`` at once; closing it cancels."""

    def __init__(self, history: HistoryStore, paths: Sequence[Path], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "import", windowTitle=tr("Import chats"))
        self.job = ImportJob(history, paths, self)
        self._title = named(QLabel(tr("Importing…")), "import.title", role="title")
        self._bar = named(QProgressBar(), "import.progress", title=tr("Progress of the import"), textVisible=False)
        self._bar.setRange(0, _STEPS)
        self._said = caption(tr("The window can be used meanwhile."), "import.said")
        self._undo = named(QPushButton(tr("Undo the import")), "import.undo", clicked=self._take_back)
        self._undo.hide()
        self._close = named(QPushButton(tr("Cancel")), "import.close", clicked=self.job.cancel)
        buttons = fill(QHBoxLayout(), self._undo, 1, self._close, spacing=8)
        fill(QVBoxLayout(self), self._title, self._bar, self._said, 1, buttons, margins=16, spacing=12)
        self.setMinimumWidth(WIDTH)
        self.job.progressed.connect(self._on_progress)
        self.job.ended.connect(self._on_ended)
        self.job.undone.connect(self._on_undone)
        self.job.start()

    def done(self, result: int) -> None:
        """Closing cancels."""
        self.job.close_down()
        super().done(result)

    def _on_progress(self, share: float, chats: int) -> None:
        self._bar.setValue(round(_STEPS * share))
        self._title.setText(plural("1 chat", "{n:,} chats", chats) if self.job.report.ids else tr("Importing…"))

    def _on_ended(self, report: ImportReport) -> None:
        self._finish(tr("Import"), report.sentence)
        self._undo.setVisible(bool(report.ids))

    def _on_undone(self, sentence: str) -> None:
        self._finish(tr("Import undone"), sentence)

    def _take_back(self) -> None:
        self._undo.hide()
        self._title.setText(tr("Removing what was imported…"))
        self._bar.setValue(0)
        self._bar.show()
        self._close.setEnabled(False)
        self.job.undo()

    def _finish(self, title: str, sentence: str) -> None:
        self._title.setText(title)
        self._bar.hide()
        self._said.setText(sentence)
        self._close.setText(tr("Close"))
        self._close.setEnabled(True)
        self._close.clicked.disconnect()
        close: Callable[[], None] = self.accept
        self._close.clicked.connect(close)
        self.adjustSize()
