"""A choice among many: a button with the present one, and a menu of all."""

from __future__ import annotations

import re

from PySide6.QtCore import Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QWidget

from app.language import known
from app.theme.menus import MenuButton
from app.theme.widgets import menu_text, named, tip
from engine.protocol import OptionSpec


class MenuControl(MenuButton):
    """Control of a "choice" option with more words than segments have room. A choice that cannot apply is greyed in
    the menu, and says why in its tooltip. The button shows the present title up to its first bracket or comma, cut
    where the column ends; its tooltip has all of it."""

    changed = Signal(object)
    edges = 14

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(f"{spec.key}.choices")
        self._menu.setToolTipsVisible(True)
        self._group = QActionGroup(self)
        for choice, title in spec.titles.items():
            title = known(title)
            action = self._menu.addAction(menu_text(title))
            action.setObjectName(f"{spec.key}.{choice}")
            action.setProperty("title", title)
            action.setData(choice)
            action.setCheckable(True)
            self._group.addAction(action)
        self._group.triggered.connect(lambda action: self.changed.emit(action.data()))
        self.set_spec(spec)

    def set_spec(self, spec: OptionSpec) -> None:
        for action in self._group.actions():
            choice = action.data()
            reason = known(spec.disabled_reason or spec.disabled_choices.get(choice, ""))
            action.setEnabled(not reason)
            action.setToolTip(tip(reason))
            action.setChecked(choice == spec.value)
            if choice == spec.value:
                title = str(action.property("title"))
                named(self, title=f"{known(spec.title)}: {title}", tooltip=tip(known(spec.disabled_reason) or title))
                self.show_title(re.split(r"[,(]", title)[0].strip())
        self.setEnabled(not spec.disabled_reason)
