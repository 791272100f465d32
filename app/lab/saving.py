"""The button that saves the result on show as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog

from app.lab import words
from app.lab.experiment import ExperimentView
from app.lab.export import save_html, save_png
from app.theme.widgets import MenuButton


class SaveButton(MenuButton):
    """Of the result of ``view``. ``said``: what became of it, as a sentence and the role that it has on the page."""

    said = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.view: ExperimentView | None = None
        self.setObjectName("lab.save")
        self.setAccessibleName("Save the result as a file")
        self.offer("HTML, with its pictures…", "lab.save.html", lambda: self._save(".html", "HTML (*.html)", save_html))
        self.offer("Picture of this page (PNG)…", "lab.save.png", lambda: self._save(".png", "PNG (*.png)", save_png))
        self.show_title("Save as")

    def _save(self, ending: str, kinds: str, write: Callable[[ExperimentView, Path], None]) -> None:
        view = self.view
        if view is None or view.result is None:
            return
        start = str(Path.home() / (words.file_name(view.result) + ending))
        path, _ = QFileDialog.getSaveFileName(self, "Save the result", start, kinds)
        if not path:
            return
        view.player.finish()
        try:
            write(view, Path(path))
        except OSError as error:
            self.said.emit(words.unwritten(error), "bad")
        else:
            self.said.emit(words.saved(path), "caption")
