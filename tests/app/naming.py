"""Which widgets a screen reader cannot name."""

from __future__ import annotations

from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QScrollBar,
    QTextEdit,
    QWidget,
)

INTERACTIVE = (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
)


def nameless(root: QWidget) -> list[str]:
    """What a person can operate and a screen reader cannot name. A button's text is its name."""
    found = []
    for widget in root.findChildren(QWidget):
        inner = widget.objectName().startswith("qt_") or isinstance(widget, QScrollBar)
        if inner or not isinstance(widget, INTERACTIVE) or isinstance(widget.parent(), QAbstractSpinBox | QLineEdit):
            continue
        text = widget.text() if isinstance(widget, QAbstractButton) else ""
        if not widget.accessibleName() and not text and not widget.isHidden():
            found.append(f"{type(widget).__name__} {widget.objectName()!r} in {type(widget.parent()).__name__}")
    return found
