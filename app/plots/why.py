"""Answers to "Why this speed?": a small button near the token rate, and the card that it opens, which says what the
speed is made of and what would make it faster, each with its remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QMouseEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.language import known, plural, tr
from app.panel.controls import value_title
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import button_text, caption, fill, named, say, take_out
from engine.protocol import OptionSpec, Reason, Reasons

TITLE = tr("Why this speed?")
LOOKS = tr("Looking at the last seconds…")
NOTHING = tr("Nothing holds it up that could be mended.")
FASTER = tr("What would make it faster")
PLACES = {"models": tr("Open Models"), "settings": tr("Open Settings")}
MOST = 4
"""Reasons shown; those after them gain less."""
WIDTH, GAP = 380, 6


class WhyButton(QPushButton):
    """``asked`` carries the button itself, next to which the card opens."""

    asked = Signal(object)

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(TITLE, parent)
        about = tr("What it is made of, what limits it, and what mends that")
        named(self, name, title=TITLE, tooltip=f"{TITLE} {about}", kind="link")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.clicked.connect(lambda: self.asked.emit(self))

    def shorten(self, short: bool) -> None:
        """Shorten the button's text, for little room, or show it in full."""
        self.setText(tr("Why?") if short else TITLE)


class WhyCard(QFrame):
    """Lies over the window it belongs to; a click elsewhere, Escape and another size of the window close it. What finds
    no room in the window is scrolled to.

    ``mended`` carries the switches to set, ``place_asked`` the page of the window to show.
    """

    mended = Signal(object)
    place_asked = Signal(str)

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._theme, self._window = theme, window
        self._near = QRect()
        self.button: QWidget | None = None
        """Next to which it was opened."""
        self._found: Reasons | None = None
        """Reasons that it says, None while it waits for words."""
        self._made_of: QLabel | None = None
        """Label of what the speed is made of, whose figures change while it is open."""
        named(self, "why", title=TITLE, card="tip", focusPolicy=Qt.FocusPolicy.StrongFocus)
        self.hide()
        title = named(QLabel(TITLE), role="figure")
        body = QWidget()
        self._body = fill(QVBoxLayout(body), margins=0, spacing=10)
        self._rows = fill(QVBoxLayout(), spacing=12)
        self._limit = caption(name="why.limit")
        self._column = fill(QVBoxLayout(self), title, margins=(14, 10, 14, 12), spacing=10)
        fill(self._body, self._rows, self._limit)
        self._scroll = scrolling(body)  # it follows the buttons inside
        self._column.addWidget(self._scroll)

    @property
    def words(self) -> str:
        """All that it says."""
        labels = self.findChildren(QLabel)
        return "\n".join(label.text() for label in labels if label.text() and not label.isHidden())

    def open(self, near: QWidget) -> None:
        """Show it next to ``near``, waiting for words."""
        self.button, self._found, self._made_of = near, None, None
        self._near = QRect(near.mapTo(self._window, QPoint()), near.size())
        self._show_rows([_plain(LOOKS)], "")
        self.show()
        self.raise_()
        self.setFocus()

    def close_to_button(self) -> None:
        """Close it, and give the keyboard back to the button that opened it."""
        self.hide()
        with contextlib.suppress(RuntimeError):  # the strip has other buttons now
            if self.button is not None:
                self.button.setFocus()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        application = QApplication.instance()
        assert application is not None
        application.installEventFilter(self)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        application = QApplication.instance()
        if application is not None:
            application.removeEventFilter(self)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self._scroll.verticalScrollBar()
        if event.key() == Qt.Key.Key_Escape:
            self.close_to_button()
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up):
            bar.setValue(bar.value() + bar.singleStep() * (1 if event.key() == Qt.Key.Key_Down else -1))
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A press between its buttons goes no further: the window below would get it."""
        event.accept()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Close it, and let the event go on to where it belongs."""
        if event.type() == QEvent.Type.MouseButtonPress and isinstance(watched, QWidget):
            if watched not in (self, self.button) and not self.isAncestorOf(watched):  # the button closes it itself
                self.hide()
        elif event.type() == QEvent.Type.Resize and watched is self._window:
            self.hide()
        return False

    def say(self, sentence: str) -> None:
        """Show the reason nothing can be said."""
        self._found = self._made_of = None
        self._show_rows([_plain(sentence)], "")

    def show_reasons(self, found: Reasons, specs: Mapping[str, OptionSpec]) -> None:
        """``specs``: the switches by their keys, which say what their values are called. Nothing happens where it says
        the same already, or the keyboard would lose its place."""
        before, self._found = self._found, found
        if before is not None and (before.reasons, before.limit) == (found.reasons, found.limit):
            if before.parts != found.parts and self._made_of is not None:
                self._made_of.setText("\n".join(found.parts))
            return
        at = QApplication.focusWidget()
        here = at is not None and self.isAncestorOf(at)
        shown = found.reasons[:MOST]
        rows: list[QWidget] = []
        self._made_of = _plain("\n".join(found.parts)) if found.parts else None
        if self._made_of is not None:
            rows.append(named(self._made_of, "why.parts"))
        if shown:
            rows.append(_plain(FASTER, "section"))
        rows += [self._row(place, reason, specs) for place, reason in enumerate(shown)] or [_plain(NOTHING)]
        if more := len(found.reasons) - len(shown):
            said = plural("1 more, which matters less.", "{n} more, which matter less.", more)
            rows.append(_plain(said, "caption"))
        self._show_rows(rows, found.limit)
        first = self.findChild(QPushButton)
        if before is None or here:
            (first or self).setFocus()

    def _row(self, place: int, reason: Reason, specs: Mapping[str, OptionSpec]) -> QWidget:
        row = QWidget()
        column = fill(QVBoxLayout(row), _plain(reason.sentence), margins=0, spacing=4)
        for text in (reason.detail, reason.action):
            if text:
                column.addWidget(_plain(text, "caption"))
        title = remedy(reason, specs)
        if title:
            button = QPushButton(button_text(title))
            named(button, f"why.mend.{place}", title=f"{reason.sentence} {title}")
            button.clicked.connect(lambda: self._press(reason))
            line = fill(QHBoxLayout(), button, 1)
            column.addLayout(line)
        return row

    def _press(self, reason: Reason) -> None:
        if reason.keys:
            self.mended.emit(reason.keys)
        else:
            self.hide()
            self.place_asked.emit(reason.place)

    def _show_rows(self, rows: Sequence[QWidget], limit: str) -> None:
        while (item := self._rows.takeAt(0)) is not None:
            old = item.widget()
            assert old is not None, "rows are widgets"
            take_out(old)
        for row in rows:
            self._rows.addWidget(row)
            row.show()
        say(self._limit, limit)
        width = self._theme.px(WIDTH)
        self.setFixedWidth(width)
        edges, frame = self._column.contentsMargins(), self.contentsMargins()
        inside = width - edges.left() - edges.right() - frame.left() - frame.right()
        wanted = self._body.totalHeightForWidth(inside)
        self._scroll.setFixedHeight(wanted)
        whole, most = self._column.totalSizeHint().height(), self._window.height() - 2 * GAP
        self._scroll.setFixedHeight(wanted - max(0, whole - most))
        self.setFixedHeight(min(whole, most))
        self._place()

    def _place(self) -> None:
        """Above the button where there is room, and inside the window."""
        room = self._window.rect().adjusted(GAP, GAP, -GAP, -GAP)
        left = max(room.left(), min(self._near.left(), room.right() - self.width()))
        above = self._near.top() - GAP - self.height()
        below = min(self._near.bottom() + GAP, room.bottom() - self.height())
        self.move(left, above if above >= room.top() else max(room.top(), below))


def remedy(reason: Reason, specs: Mapping[str, OptionSpec]) -> str:
    """Title of the button that mends it; "" if none does."""
    if reason.keys:
        values = [(specs[key], value) for key, value in reason.keys.items() if key in specs]
        settings = ", ".join(f"{known(spec.title)}: {value_title(spec, value)}" for spec, value in values)
        return tr("Set {settings}", settings=settings) if settings else ""
    return PLACES.get(reason.place, "")


def _plain(text: str, role: str = "") -> QLabel:
    label = QLabel(text, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
    if role:
        label.setProperty("role", role)
    return label
