"""What a side of an experiment looks like, and plots: for now the kind of each in words."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from app.theme.theme import Theme
from engine.protocol.lab import Picture, Plot


class PictureView(QLabel):
    """A picture of a run."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)

    def show_picture(self, picture: Picture) -> None:
        self.setText(type(picture).__name__)


class PlotView(QLabel):
    """A plot of a result, or one redrawn from a paper's numbers."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)

    def show_plot(self, plot: Plot) -> None:
        self.setText(plot.title)
