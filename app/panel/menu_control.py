"""A choice among many: a button with the present one, and a menu of all."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from engine.protocol import OptionSpec


class MenuControl(QPushButton):
    """For a "choice" option with more choices than segments have room. One that cannot apply is greyed in the menu,
    and says why in its tooltip."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(f"{spec.key}.choices")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        self._group = QActionGroup(self)
        for choice, title in zip(spec.choices, spec.choice_titles or spec.choices, strict=True):
            action = menu.addAction(title)
            action.setObjectName(f"{spec.key}.{choice}")
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
            action.setToolTip(reason)
            action.setChecked(choice == spec.value)
            if choice == spec.value:
                self.setText(f"{action.text()}  ▾")
                self.setAccessibleName(f"{spec.title}: {action.text()}")
        self.setEnabled(not spec.disabled_reason)
