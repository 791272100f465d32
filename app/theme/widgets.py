"""Widgets that Qt lacks: a toggle, a row of segments, a bar of a share; and captions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any, TypeVar

import PySide6.QtGui
from PySide6.QtCore import QEasingCurve, QEvent, QObject, QRectF, QSize, Qt, QVariantAnimation, Signal, SignalInstance
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QButtonGroup,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QSizePolicy,
    QToolTip,
    QWidget,
)

from app.theme.direction import draw_text, mirrored
from app.theme.sheet import STYLED, restyle, set_role
from app.theme.theme import Theme

LayoutT = TypeVar("LayoutT", bound=QLayout)
ItemT = TypeVar("ItemT", bound=QObject)
Part = QWidget | QLayout | int | tuple[Any, ...]
_TIP_LETTERS = 72
_OTHER_EDGE = {"left": "right", "right": "left"}


def fill(
    layout: LayoutT,
    *parts: Part,
    margins: int | tuple[int, int, int, int] | None = None,
    spacing: int | tuple[int, int] | None = None,
    wide: int | None = None,
) -> LayoutT:
    """Add widgets and layouts in their order; a number is a stretch, a tuple what ``addWidget`` takes.

    ``margins``: pixels, the same on all sides, or left, top, right, bottom. ``spacing``: pixels; of a grid also those
    across and down, -1 for the usual. ``wide``: the column of a grid that takes what room there is. Left and right are
    mirrored with the window.
    """
    box: Any = layout
    if margins is not None:
        left, top, right, bottom = margins if isinstance(margins, tuple) else (margins,) * 4
        box.setContentsMargins(*((right, top, left, bottom) if mirrored() else (left, top, right, bottom)))
    if isinstance(spacing, tuple):
        box.setHorizontalSpacing(spacing[0])
        box.setVerticalSpacing(spacing[1])
    elif spacing is not None:
        box.setSpacing(spacing)
    if wide is not None:
        box.setColumnStretch(wide, 1)
    for part in parts:
        if isinstance(part, int):
            box.addStretch(part)
        else:
            first, *how = part if isinstance(part, tuple) else (part,)
            (box.addLayout if isinstance(first, QLayout) else box.addWidget)(first, *how)
    return layout


def named(
    item: ItemT,
    name: str | None = None,
    *,
    title: str | None = None,
    tooltip: str | None = None,
    clicked: Callable[..., object] | SignalInstance | None = None,
    **properties: object,
) -> ItemT:
    """Set the object name, the accessible name, the tooltip, and properties: Qt's, or those that the style sheet reads.

    A widget with a ``surface`` paints it, of whatever class it is.
    """
    if mirrored() and properties.get("edge") in _OTHER_EDGE:
        properties["edge"] = _OTHER_EDGE[str(properties["edge"])]
    given = {"objectName": name, "accessibleName": title, "toolTip": tooltip, **properties}
    for key, value in given.items():
        if value is not None:
            known = item.setProperty(key, value)
            assert known or key in STYLED, f"{type(item).__name__} has no {key}"
    if "surface" in properties and isinstance(item, QWidget):
        item.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    if clicked is not None:
        assert isinstance(item, QAbstractButton)
        item.clicked.connect(clicked)
    return item


def switched(button: QAbstractButton, take: Callable[[bool], object]) -> None:
    """Call ``take`` when a person checks or unchecks a button; a screen reader toggles it, which is no click."""
    button.toggled.connect(lambda on: None if button.property("shown") else take(on))


def show_checked(button: QAbstractButton, on: bool) -> None:
    """Show a button as checked or not, of which :func:`switched` tells nothing."""
    button.setProperty("shown", True)
    button.setChecked(on)
    button.setProperty("shown", False)


def clear(layout: QLayout, widgets: Sequence[QWidget] | None = None) -> None:
    """Take these out, or all. Until the event loop has its turn they live, unseen and without a name to be found by."""
    items = [layout.itemAt(at) for at in range(layout.count())] if widgets is None else []
    for widget in widgets or [widget for item in items if item and (widget := item.widget()) is not None]:
        layout.removeWidget(widget)
        widget.hide()
        widget.setObjectName("")
        widget.deleteLater()


def take_out(widget: QWidget) -> None:
    """Remove it from its layout and its parent at once; it lives until the event loop runs again."""
    widget.setParent(None)
    widget.deleteLater()


def keep_place(widget: QWidget, kept: bool = True) -> None:
    """Let it take its room while it is hidden too, so that nothing moves when it comes or goes; or no longer."""
    policy = widget.sizePolicy()
    policy.setRetainSizeWhenHidden(kept)
    widget.setSizePolicy(policy)


def tip(text: str) -> str:
    """Words for a tooltip, in lines of a readable length: Qt would show a sentence as one line."""
    lines = (textwrap.fill(line, _TIP_LETTERS, break_long_words=False) for line in text.split("\n"))
    return as_written("\n".join(lines))


def as_written(text: str) -> str:
    """Names and paths from elsewhere for a tooltip, which would take some of them for HTML."""
    return f"<p style='white-space: pre'>{escape(text)}</p>" if PySide6.QtGui.Qt.mightBeRichText(text) else text


def button_text(text: str) -> str:
    """Words for a button, in which & would underline the letter after it, and make it a shortcut."""
    return text.replace("&", "&&")


def menu_text(text: str, column: str = "") -> str:
    """Words for an entry of a menu, on one line; a tab of theirs would begin the ``column`` to the right."""
    words = button_text(" ".join(text.split("\n")).replace("\t", " "))
    return f"{words}\t{button_text(column)}" if column else words


class FocusFirst(QWidget):
    """Gives the keyboard to its ``first`` part when it is given to the whole.

    A focus proxy does so, too, but Tab lands on it whenever it comes to the whole, and skips the parts before it.
    """

    first: QWidget | None = None

    def setFocus(self, reason: Qt.FocusReason = Qt.FocusReason.OtherFocusReason) -> None:
        if self.first is not None:
            self.first.setFocus(reason)
        else:
            super().setFocus(reason)


class Toggle(QAbstractButton):
    """An on/off switch, 32 x 18 px at the usual text size."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._at = 0.0
        self._slide = QVariantAnimation(self)
        self._slide.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._slide.valueChanged.connect(self._move)
        named(self, checkable=True, focusPolicy=Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.toggled.connect(self._go)
        theme.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        return QSize(self._theme.px(32), self._theme.px(18))

    def _go(self, on: bool) -> None:
        self._slide.stop()
        if not self.isVisible() or not self._theme.motion_ms:
            self._move(1.0 if on else 0.0)
            return
        self._slide.setDuration(self._theme.motion_ms)
        self._slide.setStartValue(self._at)
        self._slide.setEndValue(1.0 if on else 0.0)
        self._slide.start()

    def _move(self, at: float) -> None:
        self._at = at
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self._theme
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        track = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        off, on = theme.color("line"), theme.color("accent")
        if not self.isEnabled():
            on = theme.color("accent", 0.4)
        painter.setBrush(on if self._at >= 0.5 else off)
        painter.setPen(QPen(theme.color("text"), 1) if self.hasFocus() else Qt.PenStyle.NoPen)
        painter.drawRoundedRect(track, track.height() / 2, track.height() / 2)
        knob = track.height() - 4
        at = 1 - self._at if self.layoutDirection() is Qt.LayoutDirection.RightToLeft else self._at
        left = track.left() + 2 + at * (track.width() - 4 - knob)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._knob())
        painter.drawEllipse(QRectF(left, track.top() + 2, knob, knob))

    def _knob(self) -> QColor:
        return self._theme.color("on_accent", 1.0 if self.isEnabled() else 0.7)


class FillBar(QWidget):
    """A 6 px bar; ``fraction`` beyond 1 is drawn full."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.fraction = 0.0
        self.token = "accent"
        self.setFixedHeight(6)
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self._theme.color("line") if self._theme.edged else Qt.PenStyle.NoPen)
        whole = QRectF(self.rect())
        painter.setBrush(self._theme.color("raised"))
        painter.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5) if self._theme.edged else whole, 3, 3)
        painter.setPen(Qt.PenStyle.NoPen)
        if self.fraction > 0:
            painter.setBrush(self._theme.color(self.token))
            filled = max(6.0, whole.width() * min(1.0, self.fraction))
            if self.layoutDirection() is Qt.LayoutDirection.RightToLeft:
                whole.setLeft(whole.right() - filled)
            else:
                whole.setWidth(filled)
            painter.drawRoundedRect(whole, 3, 3)


class Segments(QFrame):
    """Buttons side by side of which one is chosen; ``chosen`` carries the key of the one the person pressed."""

    chosen = Signal(str)

    def __init__(
        self, name: str, keys: Sequence[str], titles: Sequence[str], prefix: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        named(self, title=name, segmented="true")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._row = fill(QHBoxLayout(self), margins=2, spacing=0)
        self._prefix = prefix
        self._keys: list[str] = []
        self._group = QButtonGroup(self, exclusive=True)
        self.offer(keys, titles)

    def offer(self, keys: Sequence[str], titles: Sequence[str]) -> None:
        """Put these in the place of those that there were, none of them chosen."""
        for button in self._group.buttons():
            self._group.removeButton(button)
            self._row.removeWidget(button)
            take_out(button)
        self._keys = list(keys)
        for index, (key, title) in enumerate(zip(keys, titles, strict=True)):
            segment = named(QPushButton(button_text(title)), kind="segment", checkable=True)
            named(segment, f"{self._prefix}.{key}", title=f"{self.accessibleName()}: {title}")
            switched(segment, partial(self._on_segment, key))
            self._group.addButton(segment, index)
            self._row.addWidget(segment)
        self.setFocusProxy(self._group.button(0))

    def _on_segment(self, key: str, on: bool) -> None:
        if on:
            self.chosen.emit(key)

    def choose(self, key: str) -> None:
        """Show ``key`` as chosen, without a signal."""
        if key in self._keys:
            show_checked(self._group.button(self._keys.index(key)), True)

    def refuse(self, key: str, reason: str) -> None:
        """Grey a segment, with the reason as its tooltip; an empty reason allows it."""
        self._group.button(self._keys.index(key)).setEnabled(not reason)
        self.explain(key, reason)

    def explain(self, key: str, words: str) -> None:
        """A segment's tooltip."""
        self._group.button(self._keys.index(key)).setToolTip(tip(words))


def caption(text: str = "", name: str = "") -> QLabel:
    """Secondary words that wrap and can be copied."""
    selectable = Qt.TextInteractionFlag.TextSelectableByMouse
    plain = Qt.TextFormat.PlainText
    label = QLabel(text, textFormat=plain, wordWrap=True, textInteractionFlags=selectable)
    return named(label, name, role="caption")


def say(label: QLabel, sentence: str, role: str | None = None) -> None:
    """Show a sentence, or hide the label that has none."""
    label.setText(sentence)
    label.setVisible(bool(sentence))
    if role is not None:
        set_role(label, role)


def show_badge(label: QLabel, text: str, tone: str) -> None:
    """A word in a frame of the colour ``tone``, as wide as it is; "" hides it."""
    label.setText(text)
    if label.property("badge") != tone:
        label.setProperty("badge", tone)
        restyle(label)
    label.setVisible(bool(text))


class PageTitle(QLabel):
    """As high as a button: titles stand at one height on all pages, those with buttons next to them and the others."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        set_role(self, "title")

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Polish, QEvent.Type.StyleChange):
            self.setMinimumHeight(QPushButton().sizeHint().height())
        return super().event(event)


class ElidedLabel(QLabel):
    """One line that ends in an ellipsis where the width ends, and says all of it under the mouse."""

    def __init__(self, text: str, role: str) -> None:
        super().__init__(text)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.short = ""
        """Text that is shown if there is no room for the whole one; "": as much of it as fits."""
        self.setProperty("role", role)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    @property
    def elided(self) -> str:
        """Text that is shown: shortened to fit the width."""
        metrics, text = self.fontMetrics(), self.text()
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, self.width())
        if self.short and shown != text:
            shown = metrics.elidedText(self.short, Qt.TextElideMode.ElideRight, self.width())
        return shown

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and not self.toolTip() and self.elided != self.text():
            assert isinstance(event, QHelpEvent)
            QToolTip.showText(event.globalPos(), tip(self.text()), self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setLayoutDirection(self.layoutDirection())  # at first it is the application's
        painter.setPen(self.palette().windowText().color())
        draw_text(painter, self.rect(), self.alignment() | Qt.AlignmentFlag.AlignVCenter, self.elided)
