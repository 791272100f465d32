"""What opens over the chat page: its settings, the map of its branches, and the documents of its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.news import News
from app.chat.session.branches import versions
from app.chat.session.session import ChatSession
from app.chat.settings.chat_settings import ChatSettings
from app.chat.transcript.branch_menu import BranchMenu
from app.chat.transcript.transcript import Transcript
from app.history.store import HistoryStore
from app.link.link import EngineLink
from app.theme.theme import Theme

if TYPE_CHECKING:
    from app.chat.folder.dialog import FolderDocumentsDialog


class ChatDialogs(QObject):
    """``button`` is what the settings open below."""

    def __init__(
        self,
        link: EngineLink,
        history: HistoryStore,
        session: ChatSession,
        transcript: Transcript,
        settings: ChatSettings,
        button: QWidget,
        news: News,
        theme: Theme,
        page: QWidget,
    ) -> None:
        super().__init__(page)
        self._link, self._history, self._session, self._theme, self._page = link, history, session, theme, page
        self._transcript, self._settings, self._button, self._news = transcript, settings, button, news
        self._folders: list[FolderDocumentsDialog] = []

    def open_settings(self) -> None:
        chat, button = self._session.talk.chat, self._button
        corner = button.mapToGlobal(QPoint(button.width(), button.height() + 4))
        self._settings.show_for(chat.system_prompt, chat.sampling, self._link.card, corner, chat.overflow, chat.id)

    def choose_overflow(self) -> None:
        """The settings, at what happens when the context is full."""
        self.open_settings()
        self._settings.focus_overflow()

    def show_branches(self, message_id: str) -> None:
        """The map of the chat's branches, below the switcher of that message."""
        view = self._transcript.view(message_id)
        if view is not None:
            menu = BranchMenu(versions(self._session.talk.tree), self._page)
            menu.chosen.connect(self._show_version)
            menu.popup(view.branches_corner)

    def show_folder_documents(self, folder_id: str, files: Sequence[Path] = ()) -> None:
        """Show the documents of a folder, and read these files for it."""
        from app.chat.folder.dialog import FolderDocumentsDialog  # few ever ask

        folder = self._history.folder(folder_id)
        if folder is None:
            return
        tokens, window = self._session.tokens, self._page.window()
        dialog = FolderDocumentsDialog(self._history, folder, tokens, self._context, self._theme, window)
        dialog.unseen.connect(self._news.complain)
        self._folders = [each for each in self._folders if isValid(each)] + [dialog]
        dialog.open()
        if files:
            dialog.add(files)

    def show_own_folder(self) -> None:
        """Show the documents of the folder of the chat on screen."""
        folder = self._session.folder.folder
        if folder is not None:
            self.show_folder_documents(folder.id)

    def close_down(self) -> None:
        """Before the program ends."""
        for dialog in self._folders:
            if isValid(dialog):
                dialog.close_down()

    def _context(self) -> int:
        """Tokens that the model takes; 0 where nobody counts them."""
        card = self._link.card if self._session.talk.chat.remote is None else None
        return card.context if card is not None else 0

    def _show_version(self, message_id: str) -> None:
        if self._session.reveal(message_id):
            self._transcript.reveal(message_id, "")
