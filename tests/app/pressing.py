"""Buttons pressed, and actions of menus chosen, as a person does."""

from __future__ import annotations

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QPushButton, QWidget


def button_of(within: QWidget, name: str) -> QPushButton | QAction | None:
    """The button of that name, or the action of a menu."""
    return within.findChild(QPushButton, name) or within.findChild(QAction, name)


def press(within: QWidget, name: str) -> None:
    button = button_of(within, name)
    assert button is not None, [child.objectName() for child in within.findChildren(QPushButton)]
    assert button.isEnabled(), button.toolTip()
    button.click() if isinstance(button, QPushButton) else button.trigger()
