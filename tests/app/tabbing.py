"""Tab and Shift-Tab through all of a page."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QApplication, QWidget


def tab_reaches_all(qtbot, page: QWidget) -> None:
    """Fails where Tab and Shift-Tab do not both lead to everything that can have the keyboard."""
    page.window().activateWindow()
    for _ in range(3):
        QApplication.processEvents()
    there = [each for each in page.window().findChildren(QWidget) if _stop(each)]
    forward, back = (_reached(qtbot, there[0], key) for key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab))
    assert forward == back
    assert {_name(each) for each in there if not _inside(each)} <= forward


def _reached(qtbot, begin: QWidget, key: Qt.Key) -> set[str]:
    """Where the key leads to from there, by name, until it comes back; a text with links takes it more than once."""
    begin.setFocus(Qt.FocusReason.TabFocusReason)
    seen, presses = {_name(begin)}, 0
    while presses < 300:
        qtbot.keyClick(QApplication.focusWidget(), key)
        at, presses = QApplication.focusWidget(), presses + 1
        if at is begin:
            return seen
        seen.add(_name(at))
    return seen


def _stop(widget: QWidget) -> bool:
    return bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus) and widget.isVisible() and widget.isEnabled()


def _inside(widget: QWidget) -> bool:
    """Whether the arrow keys lead there from another of its kind, or it is the inner part of a field."""
    group = widget.group() if isinstance(widget, QAbstractButton) else None
    return (group is not None and group.exclusive()) or isinstance(widget.parent(), QAbstractSpinBox)


def _name(widget: QWidget) -> str:
    return (
        widget.objectName() or widget.accessibleName() or f"{type(widget).__name__} in {type(widget.parent()).__name__}"
    )
