"""Says in the title row which model answers in the chat on screen, and disables, with the reason, what shows nothing of
one of another server. No widget is made here."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.chat.elsewhere import reason
from app.chat.session.session import ChatSession
from app.models.selector import ModelSelector
from app.theme.widgets import tip


class ElsewhereWiring(QObject):
    """Lives as long as the window. ``parts``: those that show the engine of this machine."""

    def __init__(
        self, session: ChatSession, selector: ModelSelector, parts: tuple[QWidget, ...], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._selector, self._parts = session, selector, parts
        selector.local_asked.connect(lambda: session.set_remote(None))
        for signal in (session.opened, session.settings_changed):
            signal.connect(self._show)
        self._show()

    def _show(self) -> None:
        self._selector.set_remote(self._session.talk.chat.remote)
        why = reason(self._session.talk.chat.remote)
        for part in self._parts:
            part.setEnabled(not why)
            part.setToolTip(tip(why) if why else "")
