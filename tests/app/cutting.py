"""Which words of a window are cut off, or lie over each other."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractScrollArea, QLabel, QWidget

from app.models.selector import ModelButton
from app.theme.widgets import ElidedLabel

_SLACK = 2
"""Pixels that rounding may take."""


def cut(root: QWidget) -> list[str]:
    """Labels and buttons whose words do not fit into them, or are outside of what they lie in; pairs that overlap."""
    inside = (each for each in root.findChildren(QWidget) if each.window() is root.window())  # not what is over it
    shown = [each for each in inside if each.isVisible() and _text(each).strip()]
    return [*_too_small(shown), *_outside(shown, root), *_over_each_other(shown)]


def _text(widget: QWidget) -> str:
    return widget.text() if isinstance(widget, QLabel | QAbstractButton) else ""


def _said(widget: QWidget) -> str:
    return f"{widget.objectName() or type(widget).__name__}: {_text(widget)[:40]}"


def _too_small(shown: list[QWidget]) -> Iterator[str]:
    for each in shown:
        needed = each.minimumSizeHint() if isinstance(each, ModelButton) else each.sizeHint()  # it cuts a name itself
        if isinstance(each, ElidedLabel):
            continue
        if isinstance(each, QLabel) and each.wordWrap():
            if each.heightForWidth(each.width()) > each.height() + _SLACK:
                yield f"too low: {_said(each)}"
        elif needed.width() > each.width() + _SLACK or needed.height() > each.height() + _SLACK:
            yield f"too small: {_said(each)}"


def _outside(shown: list[QWidget], root: QWidget) -> Iterator[str]:
    for each in shown:
        inner, outer = each, each.parentWidget()
        while outer is not None and inner is not root:
            area = outer.parentWidget()
            left, right = (each.mapTo(outer, QPoint(x, 0)).x() for x in (0, each.width() - 1))
            scrolls = isinstance(area, QAbstractScrollArea) and outer is area.viewport()
            if scrolls and area.horizontalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff:
                break
            if left < -_SLACK or right >= outer.width() + _SLACK:
                yield f"outside: {_said(each)}"
                break
            inner, outer = outer, area


def _over_each_other(shown: list[QWidget]) -> Iterator[str]:
    for at, each in enumerate(shown):
        for other in shown[at + 1 :]:
            if each.parentWidget() is other.parentWidget():
                both = each.geometry().intersected(other.geometry())
                if both.width() > _SLACK and both.height() > _SLACK:
                    yield f"over each other: {_said(each)} | {_said(other)}"
