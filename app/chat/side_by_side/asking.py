"""Asking for several answers to one message: from the menu next to Send or a command, through the chooser."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.chat.composer import Composer
from app.chat.news import News
from app.chat.session.sending import Sending
from app.chat.session.session import ChatSession
from app.chat.settings.chat_settings import ChatSettings
from app.chat.side_by_side.chooser import SeveralDialog
from app.chat.side_by_side.columns import AnswerColumn, Offer, offered
from app.language import tr
from app.link.link import EngineLink
from app.models.state.remotes import RemoteServers
from app.theme.theme import Theme

NOTHING = tr("Write the message first; then several can answer it.")
RUNNING = tr("Stop the answer that is being written first.")
EDITING = tr("Save the answer that you edit first, or leave it with Esc.")


class AskingSeveral(QObject):
    """An empty message box asks the last question again."""

    compare_asked = Signal()
    """The person wants to compare models of this computer."""

    def __init__(
        self,
        link: EngineLink,
        session: ChatSession,
        sending: Sending,
        composer: Composer,
        settings: ChatSettings,
        news: News,
        theme: Theme,
        page: QWidget,
    ) -> None:
        super().__init__(page)
        self._link, self._session, self._sending, self._composer = link, session, sending, composer
        self._settings, self._news, self._theme, self._page = settings, news, theme, page
        self.remotes: RemoteServers | None = None
        """Other servers whose models can be asked, once they are known."""
        self._keys: list[str] = []
        """Columns of the last time."""
        self._dialog: SeveralDialog | None = None
        composer.ways.several_asked.connect(self.choose)
        composer.ways.again_asked.connect(lambda: self._ask(self._keys))

    @property
    def refusal(self) -> str:
        """Reason, as a sentence, that nothing can be asked now; "" if something can."""
        if self._session.streaming:
            return RUNNING
        if self._session.writes_answer(self._composer.draft):
            return EDITING
        if not self._composer.something and (self._composer.editing or not self._question):
            return NOTHING
        reason = self._sending.reason_for(far=True)
        return f"{reason}." if reason else ""

    def choose(self) -> None:
        """Have the person choose the columns."""
        if self.refusal:
            self._say(self.refusal)
            return
        if self._dialog is None:
            self._dialog = SeveralDialog(self._theme, self._page)
            self._dialog.chosen.connect(self._ask)
            self._dialog.compare_asked.connect(self.compare_asked)
            if self.remotes is not None:
                self.remotes.changed.connect(self._offer)
        self._dialog.show_for(self._offers(), self._keys, bool(self._session.talk.chat.servers))
        if self.remotes is not None:
            self.remotes.refresh()

    # --- inside ----------------------------------------------------------------------------------------------------

    @property
    def _question(self) -> str:
        """The id of the last question of the chat, "" for none."""
        asked = self._session.talk.last("user")
        return asked.id if asked is not None else ""

    def _offers(self) -> list[Offer]:
        card = self._link.card
        remotes = self.remotes.offered if self.remotes is not None else {}
        chat = self._session.talk.chat
        return offered(chat, self._settings.presets, remotes, card.name if card is not None else "")

    def _offer(self) -> None:
        if self._dialog is not None and self._dialog.isVisible():
            self._dialog.offer(self._offers())

    def _ask(self, keys: Sequence[str]) -> None:
        known = {key: column for offer in self._offers() for key, column in offer.columns.items()}
        missing = [key for key in keys if key not in known]
        if missing or not keys:  # a preset or a server went meanwhile
            self.choose()
            return
        columns = [known[key] for key in keys]
        self._keys = list(keys)
        self._composer.ways.remember([column.heading for column in columns])
        here = any(column.remote is None for column in columns)
        reason = self._sending.reason_for(far=not here)
        if refusal := self.refusal or (f"{reason}." if reason else ""):
            self._say(refusal)
            return
        self._sending.guard(lambda: self._begin(columns), None)

    def _say(self, refusal: str) -> None:
        """Say why nothing is asked, until something can be or another chat is on screen."""
        chat, known = self._session.talk.chat.id, self.refusal
        self._sending.say_while(refusal, lambda: (self._session.talk.chat.id, self.refusal) == (chat, known))

    def _begin(self, columns: Sequence[AnswerColumn]) -> None:
        self._composer.setFocus()
        if self._composer.something:
            self._sending.send_several(columns)
        else:
            self._news.dismiss()
            self._session.answer_several(self._question, columns)
