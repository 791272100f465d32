"""Bar that finds words in the chat on screen: a field, how many matches there are, and buttons to go through them."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QToolButton, QWidget

from app.language import figure, plural, tr
from app.theme.icons import icon
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip

WIDE_PX, FIELD_PX, COUNT_PX, ICON_PX = 380, 40, 96, 14
"""Width of the bar, the least of its field, that of its count where it is wide, and that of icons."""
NONE = tr("No match")


class FindField(QLineEdit):
    """Enter and F3 go to the next match, with Shift to the one before."""

    stepped = Signal(bool)
    """True for the next match."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.stepped.emit(not event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        else:
            super().keyPressEvent(event)


class FindBar(QFrame):
    """Hidden until :meth:`open`; ``closed``: with its button or Escape."""

    changed = Signal(str)
    """The words to find, at each key."""
    stepped = Signal(bool)
    """Same as that of :class:`FindField`."""
    closed = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        named(self, "find-bar", card="tip")
        words = tr("Find in this chat")
        self.field = named(FindField(self), "find-field", title=words, placeholderText=words)
        self.field.setMaxLength(1000)
        self._count = named(QLabel(self), "find-count", role="caption")
        self._count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._buttons = {
            "up": self._button(
                "up", tr("Previous match"), tr("Previous match (Shift+Enter)"), lambda: self.stepped.emit(False)
            ),
            "down": self._button("down", tr("Next match"), tr("Next match (Enter)"), lambda: self.stepped.emit(True)),
            "close": self._button("close", tr("Close the search"), tr("Close the search (Esc)"), self.close_bar),
        }
        row = fill(QHBoxLayout(self), (self.field, 1), self._count, *self._buttons.values(), margins=6, spacing=4)
        row.insertSpacing(2, 4)
        self.field.textChanged.connect(self.changed)
        self.field.stepped.connect(self.stepped)
        theme.changed.connect(self._restyle)
        self._restyle()
        self.hide()

    @property
    def count(self) -> str:
        """What it says of the matches."""
        return self._count.text()

    def open(self, words: str) -> None:
        """Show it with these words, or those of last time for ""."""
        self.show()
        if words:
            self.field.setText(words)
        self.field.setFocus()
        self.field.selectAll()

    def close_bar(self) -> None:
        self.hide()
        self.closed.emit()

    def show_count(self, number: int, total: int, whole: bool) -> None:
        """The present match from 0, -1 for none, of ``total``; more may come where it is not the ``whole``."""
        if not self.field.text():
            words = ""
        elif not whole:
            words = f"{figure(total)}…"
        elif total and number >= 0:
            words = tr("{number:,} of {total:,}", number=number + 1, total=total)
        else:
            words = plural("1 match", "{n:,} matches", total) if total else NONE
        self._count.setText(words)
        for name in ("up", "down"):
            self._buttons[name].setEnabled(total > 0)

    def sizeHint(self) -> QSize:
        return QSize(self._theme.px(WIDE_PX), super().sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The count keeps its width, so that the field does not move, but in a narrow window."""
        super().resizeEvent(event)
        wide = self.width() >= self._theme.px(WIDE_PX)
        self._count.setMinimumWidth(self._theme.px(COUNT_PX) if wide else 0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_bar()
        else:
            event.accept()  # keys of its buttons are not for the message

    def _button(self, image: str, title: str, help_text: str, act: object) -> QToolButton:
        button = named(QToolButton(self), f"find-{image}", title=title, tooltip=tip(help_text), kind="quiet")
        button.setProperty("image", image)
        button.clicked.connect(act)
        return button

    def _restyle(self) -> None:
        side = self._theme.px(ICON_PX)
        for button in self._buttons.values():
            button.setIconSize(QSize(side, side))
            button.setIcon(icon(self._theme, button.property("image"), side))
        self.field.setMinimumWidth(self._theme.px(FIELD_PX))
