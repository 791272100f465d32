"""Map of a chat's branches: a menu of all versions of its messages, indented by the branch that they lie in."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QWidget

from app.chat.session.branches import Version
from app.language import tr
from app.theme.widgets import menu_text, named

INDENT = "\u2003"
DEEPEST = 8
"""Indentations at most, so that words remain."""


class BranchMenu(QMenu):
    """``chosen`` carries the id of the message whose branch is to be shown; those on screen now are checked."""

    chosen = Signal(str)

    def __init__(self, versions: Sequence[Version], parent: QWidget) -> None:
        super().__init__(parent)
        named(self, "branch-menu", title=tr("Branches of this chat"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for version in versions:
            action = self.addAction(menu_text(INDENT * min(version.depth, DEEPEST) + version.words))
            named(action, f"branch.{version.message.id}", checkable=True, checked=version.shown)
            action.triggered.connect(lambda _=False, id=version.message.id: self.chosen.emit(id))
