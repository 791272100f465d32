"""Disables what shows nothing of a model that answers from another server, with the reason. No widget is made here."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.chat.elsewhere import reason
from app.chat.session.session import ChatSession
from app.theme.widgets import tip


class ElsewhereWiring(QObject):
    """Lives as long as the window. ``parts``: those that show the engine of this machine."""

    def __init__(self, session: ChatSession, parts: tuple[QWidget, ...], parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._parts = session, parts
        for signal in (session.opened, session.settings_changed):
            signal.connect(self._show)
        self._show()

    def _show(self) -> None:
        why = reason(self._session.talk.chat.remote)
        for part in self._parts:
            part.setEnabled(not why)
            part.setToolTip(tip(why) if why else "")
