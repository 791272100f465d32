"""A choice among many: a button with the present one, and a menu of all."""

from __future__ import annotations

import re

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QActionGroup, QResizeEvent
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from app.theme.widgets import button_text, menu_text, named, tip
from engine.protocol import OptionSpec

_ARROW = " ▾"
_EDGES_PX = 14
"""Pixels of the button's width that hold no text."""


class MenuControl(QPushButton):
    """Control of a "choice" option with more words than segments have room. A choice that cannot apply is greyed in
    the menu, and says why in its tooltip. The button shows the present title up to its first bracket or comma, cut
    where the column ends; its tooltip has all of it."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, f"{spec.key}.choices", kind="choice")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        menu = QMenu(self, toolTipsVisible=True)
        self._group = QActionGroup(self)
        self._title = ""
        for choice, title in zip(spec.choices, spec.choice_titles or spec.choices, strict=True):
            action = menu.addAction(menu_text(title))
            action.setObjectName(f"{spec.key}.{choice}")
            action.setProperty("title", title)
            action.setData(choice)
            action.setCheckable(True)
            self._group.addAction(action)
        self._group.triggered.connect(lambda action: self.changed.emit(action.data()))
        self.setMenu(menu)
        self.set_spec(spec)

    def set_spec(self, spec: OptionSpec) -> None:
        for action in self._group.actions():
            choice = action.data()
            reason = spec.disabled_reason or spec.disabled_choices.get(choice, "")
            action.setEnabled(not reason)
            action.setToolTip(tip(reason))
            action.setChecked(choice == spec.value)
            if choice == spec.value:
                self._title = str(action.property("title"))
                self.setToolTip(tip(spec.disabled_reason or self._title))
                self.setAccessibleName(f"{spec.title}: {self._title}")
        self.setEnabled(not spec.disabled_reason)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _fit(self) -> None:
        short = re.split(r"[,(]", self._title)[0].strip()
        room = self.width() - _EDGES_PX - self.fontMetrics().horizontalAdvance(_ARROW)
        self.setText(button_text(self.fontMetrics().elidedText(short, Qt.TextElideMode.ElideRight, room)) + _ARROW)
