"""What a measurement is at and what it found: one card, which lies over the rows below the measured one.

It takes no room of theirs: no row moves when it comes, changes or goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QRect, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from app.language import tr
from app.panel.effects import EffectLine
from app.theme.room import scrolling
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, FillBar, clear, fill, named
from engine.protocol import CompareProgress

RUNNING_PX, FOUND_PX = 72, 168
"""Its height while it measures, and the least with what was found: it is as high as its words, and scrolls those that
the panel has no room for."""
EDGE_PX = 6


class ResultCard(QFrame):
    """Of one switch at a time, which :attr:`key` names. The person can close it; it comes back with the next one."""

    both_asked = Signal(str)
    """Both answers are to be shown, of the switch of that key."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.key = ""
        self._near: QWidget | None = None
        self._lines: Sequence[EffectLine] = ()
        self._found = False
        """True if what was found is on show."""
        named(self, "panel.card", card="tip", focusPolicy=Qt.FocusPolicy.ClickFocus)
        self.hide()
        self._title = ElidedLabel("", "figure")
        self.close_button = named(QToolButton(), "panel.card.close", title=tr("Close what was measured"), kind="quiet")
        self.close_button.setText("×")
        self.close_button.clicked.connect(self.hide)
        self._at = named(QLabel(), "panel.card.progress", role="caption")
        self._bar = FillBar(theme)
        said = QWidget()
        self._said = fill(QVBoxLayout(said), margins=(0, 0, 4, 0), spacing=4)
        self._scroll = scrolling(said)
        self.both = named(QPushButton(tr("See both")), "panel.card.both", kind="link")
        named(self.both, tooltip=tr("Both answers side by side, with the place marked where they part"))
        self.both.clicked.connect(lambda: self.both_asked.emit(self.key))
        head = fill(QHBoxLayout(), (self._title, 1), self.close_button, spacing=4)
        foot = fill(QHBoxLayout(), self.both, 1)
        fill(QVBoxLayout(self), head, self._at, self._bar, (self._scroll, 1), foot, margins=(12, 4, 6, 8), spacing=4)

    @property
    def words(self) -> str:
        """All that it says of the measurement."""
        return "\n".join(line.text for line in self._lines)

    def begin(self, key: str, title: str, near: QWidget) -> None:
        """Show it below ``near``, the row of a switch that is measured from now on."""
        if self._near is not None:
            self._near.removeEventFilter(self)
        self.key, self._near = key, near
        near.installEventFilter(self)
        self._title.setText(title)
        self.setAccessibleName(tr("Measuring {title}", title=title))
        self._say([], False)
        self.show_progress(tr("Measuring…"), None)
        self._found = False
        self.place()
        self.show()
        self.raise_()

    def show_progress(self, words: str, progress: CompareProgress | None) -> None:
        """``progress`` is that of a comparison; None where there are no runs to count."""
        counted = progress is not None and progress.total > 0
        if progress is not None and counted:
            words = tr("Run {done} of {total}", done=progress.done, total=progress.total)
        self._at.setText(words)
        self._bar.fraction = progress.done / progress.total if progress is not None and counted else 0.0
        self._at.show()
        self._bar.setVisible(counted)
        self._bar.update()

    def show_found(self, key: str, lines: Sequence[EffectLine], both: bool) -> None:
        """Show the sentences of a measurement, unless the person closed the card or it is of another by now."""
        if key == self.key and not self.isHidden():
            self._at.hide()
            self._bar.hide()
            self._say(lines, both)
            self._found = True
            self.place()
            self.setAccessibleName(f"{self._title.text()}: {self.words}")

    def forget(self, key: str = "") -> None:
        """What it says of ``key`` does not hold any more; "": whatever it is of, and its row may go."""
        if key in ("", self.key):
            self.hide()
        if not key and self._near is not None:
            self._near.removeEventFilter(self)
            self._near = None

    def place(self) -> None:
        """Below its row, or above it where that is one of the last."""
        near, parent = self._near, self.parentWidget()
        if near is None or parent is None:
            return
        top_left = near.mapTo(parent, near.rect().topLeft())
        area = QRect(top_left, near.size())
        width = area.width() + 2 * EDGE_PX
        height = self._height(width)
        below = parent.height() - area.bottom() - 1
        if height <= below or below >= area.top():
            top, height = area.bottom() + 1, min(height, below)
        else:
            height = min(height, area.top())
            top = area.top() - height
        self.setGeometry(area.left() - EDGE_PX, top, width, height)

    def _height(self, width: int) -> int:
        """The height that shows everything at a width, of which the view that it scrolls in is the most."""
        if not self._found:
            return self._theme.px(RUNNING_PX)
        column = self.layout()
        assert column is not None
        column.invalidate()
        edges = column.contentsMargins()
        inner = width - edges.left() - edges.right() - 2 * self.frameWidth()
        needed = (
            column.totalSizeHint().height() - self._scroll.sizeHint().height() + self._said.totalHeightForWidth(inner)
        )
        parent = self.parentWidget()
        view = parent.parentWidget() if parent is not None else None
        most = view.height() if view is not None else needed
        return max(self._theme.px(FOUND_PX), min(needed, most))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay where its row is."""
        if watched is self._near and event.type() in (QEvent.Type.Resize, QEvent.Type.Move):
            self.place()
        return False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.hide()
        else:
            super().keyPressEvent(event)

    def _say(self, lines: Sequence[EffectLine], both: bool) -> None:
        self._lines = lines
        clear(self._said)
        while self._said.takeAt(0) is not None:  # the stretch
            pass
        for line in lines:
            label = QLabel(line.text, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
            set_role(label, line.tone)
            self._said.addWidget(label)
            label.show()  # what is added to a layout is else counted in the next turn of the event loop
        self._said.addStretch(1)
        self.both.setVisible(both)
