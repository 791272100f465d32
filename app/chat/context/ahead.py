"""Shows at the documents of the next question how far their passages are read by meaning before it is asked."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.composer import Composer
from app.chat.context.count import ContextCounter
from app.chat.session.session import ChatSession


class ShownAhead(QObject):
    """Has read ahead what ``counter`` says will be searched."""

    def __init__(self, counter: ContextCounter, session: ChatSession, composer: Composer, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._composer = session, composer
        counter.searched.connect(session.ahead.want)
        session.ahead.changed.connect(self._show)
        composer.documents.changed.connect(self._show)
        session.folder.changed.connect(self._show)

    def _show(self) -> None:
        composer, of = self._composer, self._session.ahead.of
        attached = [each.document for each in composer.documents.attached]
        composer.documents.show_ahead([of(each) if each is not None else None for each in attached])
        composer.folder.show_ahead({each.id: of(each.document) for each in self._session.folder.used})
