"""Which embedding model finds passages of documents, and where one is got. No widget is made here."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app.chat.session.session import ChatSession
from app.documents.meaning import chosen
from app.history.store import HistoryStore
from app.models.state.library import ModelLibrary
from app.settings.page import SettingsPage
from app.settings.store import SettingsStore


class PassagesWiring(QObject):
    """Lives as long as the window. ``find`` shows where such a model is found. Vectors of documents that the history
    has no more are deleted."""

    def __init__(
        self,
        store: SettingsStore,
        library: ModelLibrary,
        history: HistoryStore,
        session: ChatSession,
        page: SettingsPage,
        find: Callable[[], object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        meaning, ahead = session.meaning, session.ahead
        meaning.model = lambda: chosen(store.settings.passages, library.stored)
        library.stored_changed.connect(lambda: page.passages.offer_models(library.stored))
        for look in (ahead.refresh, ahead.retry):  # another file may lie at the same path
            library.stored_changed.connect(look)
        store.changed.connect(lambda names: ahead.refresh() if "passages" in names else None)
        page.passages.find_asked.connect(find)
        meaning.kept.keep(history.document_digests())
