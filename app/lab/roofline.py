"""The roofline of this computer: what limits the model, where it stands, what each switch would move."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.lab import words
from app.lab.layout import Part, label
from app.lab.pictures import PlotView
from app.theme.theme import Theme
from engine.protocol.lab import LabRoofline

NAME = "roofline"
"""Of it, where experiments have theirs."""


class RooflineView(QWidget):
    """``run_asked`` and ``cancel_asked`` are its button."""

    run_asked = Signal()
    cancel_asked = Signal()

    def __init__(self, found: LabRoofline | None, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._running = self._again = False
        self._shown: QWidget | None = None
        self._inside = inside = Part()
        inside.column.setContentsMargins(0, 0, 6, 16)
        inside.column.setSpacing(12)
        self.run = QPushButton()
        self.run.setObjectName("lab.roofline.run")
        self.run.clicked.connect(lambda: (self.cancel_asked if self._running else self.run_asked).emit())
        self.state = label("", "caption", "lab.roofline.state")
        inside.add(label(words.ROOFLINE))
        inside.column.addWidget(self.run, 0, Qt.AlignmentFlag.AlignLeft)
        inside.add(self.state)
        inside.column.addStretch(1)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(inside)
        if found is not None:
            self.show_result(found)

    def show_result(self, found: LabRoofline) -> None:
        """In the place of the one before; the button keeps the keyboard."""
        if self._shown is not None:
            self._inside.column.removeWidget(self._shown)
            self._shown.setParent(None)
            self._shown.deleteLater()
        plot = PlotView(self._theme)
        plot.show_plot(found.plot)
        plot.setMinimumHeight(self._theme.px(320))
        self._shown = shown = Part().add(
            plot,
            Part("What it says").add(*(label(sentence) for sentence in found.sentences)),
            Part("How it was taken").add(*(label(line, "caption") for line in words.roofline_taken(found))),
        )
        shown.column.setSpacing(self._inside.column.spacing())
        self._inside.column.insertWidget(self._inside.column.count() - 1, shown)  # above what stretches
        self._again = True

    def show_state(self, running: bool, stopping: bool, blocked: str, note: str) -> None:
        """``stopping``: it was told to stop; ``blocked``: why it cannot run now; ``note``: how it ended last."""
        self._running = running
        self.run.setText("Cancel" if running else words.measure_roofline(self._again))
        self.run.setEnabled(running or not blocked)
        doing = words.STOPPING if stopping else words.MEASURING_ROOFLINE
        self.state.setText(doing if running else blocked or note)
        self.state.setVisible(bool(self.state.text()))
