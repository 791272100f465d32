"""The figures of the cache: a column of name and value."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.cache import words
from app.language import tr
from app.theme.widgets import fill, named, tip
from engine.protocol import Telemetry


class Figures(QWidget):
    """Filled with the first frame; only values that changed are set again. ``widened`` carries the pixels that their
    longest words need next to each other, whenever that is another number."""

    widened = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Figures of the cache"))
        self._grid = fill(QGridLayout(self), margins=0, spacing=(12, 6), wide=0)
        self._shown: list[tuple[QLabel, QLabel]] = []
        self._wide = 0

    def text(self, name: str) -> str:
        """The value that stands after ``name``; "" where there is no such figure."""
        return next((value.text() for title, value in self._shown if title.text() == name), "")

    def show_frame(self, frame: Telemetry) -> None:
        figures = words.figures(frame)
        while len(self._shown) < len(figures):
            self._add_row()
        for row in self._shown[len(figures) :]:  # a model that was loaded before had more to show
            for label in row:
                label.hide()
        for (title, value), (name, figure, meaning) in zip(self._shown, figures, strict=False):
            title.show()
            value.show()
            if (title.text(), value.text(), title.toolTip()) != (name, figure, tip(meaning)):
                title.setText(name)
                value.setText(figure)
                value.setAccessibleName(f"{name}: {figure}. {meaning}")
                title.setToolTip(tip(meaning))
                value.setToolTip(tip(meaning))
        if (wide := self.minimumSizeHint().width()) != self._wide:
            self._wide = wide
            self.widened.emit(wide)

    def _add_row(self) -> None:
        title, value = QLabel(), QLabel()
        named(title, role="caption", wordWrap=True)
        value.setProperty("role", "figure")
        row = len(self._shown)
        fill(self._grid, (title, row, 0), (value, row, 1, Qt.AlignmentFlag.AlignRight))
        self._shown.append((title, value))
