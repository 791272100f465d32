"""The dialog that exports many chats: in which format, to one zip or to a folder, with progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.history.records import ListedChat
from app.history.store import HistoryStore
from app.history.transfer.export_job import ExportJob
from app.history.transfer.formats import FORMATS
from app.history.transfer.places import ExportPlace, FolderPlace, ZipPlace
from app.language import plural, tr
from app.theme.widgets import Segments, caption, fill, named, say

ABOUT = {
    "markdown": tr("The branch that each chat shows, as text that any editor opens."),
    "html": tr("The branch that each chat shows, as pages for a browser that load nothing from elsewhere."),
    "pdf": tr("The branch that each chat shows, on pages to print. Takes the longest."),
    "json": tr("Everything, all branches included, for a backup or another Kvasir, which can import it."),
}
WIDTH = 460


class ExportDialog(QDialog):
    """``chats`` are those to export, ``title`` is the window's, as "Export all chats"."""

    def __init__(
        self, history: HistoryStore, chats: Sequence[ListedChat], title: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._history, self._chats = history, list(chats)
        self.job: ExportJob | None = None
        named(self, "export", windowTitle=title)
        self.format = Segments(tr("Format"), list(FORMATS), [each.title for each in FORMATS.values()], "export.format")
        self.place = Segments(tr("Place"), ("zip", "folder"), (tr("one zip file"), tr("a folder")), "export.place")
        self._format, self._place = "markdown", "zip"
        self.format.choose(self._format)
        self.place.choose(self._place)
        self.format.chosen.connect(self._choose_format)
        self.place.chosen.connect(self._choose_place)
        self._about = caption(ABOUT[self._format], "export.about")
        self._bar = named(QProgressBar(), "export.progress", title=tr("Progress of the export"), textVisible=False)
        self._said = caption(name="export.said")
        self._go = named(QPushButton(tr("Export…")), "export.go", clicked=self._ask, kind="primary")
        self._close = named(QPushButton(tr("Close")), "export.close", clicked=self.reject)
        for hidden in (self._bar, self._said):
            hidden.hide()
        fill(
            QVBoxLayout(self),
            named(QLabel(plural("1 chat, each a file", "{n:,} chats, each a file", len(chats))), role="title"),
            _row(tr("Format"), self.format),
            self._about,
            _row(tr("Into"), self.place),
            1,
            self._bar,
            self._said,
            fill(QHBoxLayout(), 1, self._close, self._go, spacing=8),
            margins=16,
            spacing=12,
        )
        self.setMinimumWidth(WIDTH)
        self._go.setDefault(True)

    def start(self, path: Path) -> None:
        """Export to a zip at ``path``, or to a new folder in it."""
        name = tr("Kvasir chats {day}", day=time.strftime("%Y-%m-%d"))
        place: ExportPlace = ZipPlace(path) if self._place == "zip" else FolderPlace(path, name)
        job = self.job = ExportJob(self._history, self._chats, FORMATS[self._format], place, self)
        job.progressed.connect(self._on_progress)
        job.ended.connect(self._on_ended)
        self._bar.setRange(0, max(1, len(self._chats)))
        self._bar.setValue(0)
        self._bar.show()
        say(self._said, tr("Exporting…"), "caption")
        self._settle(True)
        job.start()

    def done(self, result: int) -> None:
        """Closing cancels."""
        if self.job is not None:
            self.job.close_down()
        super().done(result)

    def _ask(self) -> None:
        if self._place == "zip":
            name = tr("Kvasir chats {day}", day=time.strftime("%Y-%m-%d"))
            start = str(Path.home() / f"{name}.zip")
            path, _ = QFileDialog.getSaveFileName(self, tr("Export to a zip file"), start, "Zip (*.zip)")
        else:
            path = QFileDialog.getExistingDirectory(self, tr("Export to a new folder in"), str(Path.home()))
        if path:
            self.start(Path(path))

    def _choose_format(self, key: str) -> None:
        self._format = key
        self._about.setText(ABOUT[key])

    def _choose_place(self, key: str) -> None:
        self._place = key

    def _on_progress(self, done: int, total: int) -> None:
        self._bar.setValue(done)
        say(self._said, tr("{done:,} of {total:,}", done=done, total=total), "caption")

    def _on_ended(self, whole: bool, sentence: str) -> None:
        self._bar.setVisible(whole)
        say(self._said, sentence, "caption" if whole else "warn")
        self._settle(False)

    def _settle(self, running: bool) -> None:
        for part in (self.format, self.place, self._go):
            part.setEnabled(not running)
        stop: Callable[[], None] = self._cancel if running else self.reject
        self._close.setText(tr("Cancel") if running else tr("Close"))
        self._close.clicked.disconnect()
        self._close.clicked.connect(stop)

    def _cancel(self) -> None:
        if self.job is not None:
            self.job.cancel()


def _row(name: str, control: QWidget) -> QHBoxLayout:
    return fill(QHBoxLayout(), (QLabel(name), 1), (control, 0, Qt.AlignmentFlag.AlignRight), spacing=16)
