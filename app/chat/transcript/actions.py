"""Actions of the person on a message that stands in the transcript."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.chat.composer import Composer
from app.chat.news import News
from app.chat.session import again
from app.chat.session.continuing import declined
from app.chat.session.sending import Sending
from app.chat.session.session import ChatSession
from app.history.records import StoredMessage, attached
from app.language import tr
from app.texts.side_by_side import SideBySide
from app.theme.theme import Theme


class MessageActions(QObject):
    """``page`` is where a dialogue opens."""

    overflow_asked = Signal()
    """The person wants to choose what happens when the context is full."""
    branches_asked = Signal(str)
    """The person wants to see all versions, at the message of this id."""
    lesson_asked = Signal(object)
    """The person wants to see why the figures of that answer are as they are."""

    def __init__(
        self, session: ChatSession, sending: Sending, composer: Composer, news: News, theme: Theme, page: QWidget
    ) -> None:
        super().__init__(page)
        self._session, self._sending, self._composer, self._news = session, sending, composer, news
        self._theme, self._page = theme, page

    def act(self, message_id: str, action: str) -> None:
        session, message = self._session, self._session.talk.tree.get(message_id)
        if action == "use":
            session.choose(message_id)
            self._composer.setFocus()
        elif action in ("previous", "next"):
            session.switch(message_id, 1 if action == "next" else -1)
        elif action == "edit" and message_id == session.queued:
            self._sending.take_back(True)
        elif action == "edit":
            self._composer.begin_edit(message.content, message_id, message.pictures, attached(message))
        elif action == "begin":
            self._composer.begin_answer(message_id)
        elif action == "continue" and (reason := declined(message)):
            self._news.say(reason)
        elif action == "branches":
            self.branches_asked.emit(message_id)
        elif action == "overflow":
            self.overflow_asked.emit()
        elif action == "compare":
            self._compare(message)
        elif action == "learn":
            self.lesson_asked.emit(message)
        elif self._sending.reason:
            self._sending.say_reason()
        elif session.streaming:
            words = tr("Stop the answer that is being written first.")
            self._sending.say_while(words, lambda: session.streaming)
        elif action == "continue":
            self._sending.guard(lambda: session.go_on(message), None)
        elif action == "again":
            self._sending.guard(lambda: session.again(message), None)
        elif action == "renew":
            self._sending.guard(lambda: session.renew(session.side_by_side), None)
        elif action == "regenerate" and message in session.side_by_side:
            self._sending.guard(lambda: session.renew([message]), None)
        elif action in ("regenerate", "retry"):
            parent = message.parent if action == "regenerate" else message_id
            self._sending.guard(lambda: session.regenerate(parent), None)

    def act_on_last(self, role: str, action: str) -> None:
        """The same to the last message of ``role``, if there is one; all answers that stand side by side are given
        again."""
        if action == "regenerate" and self._session.side_by_side:
            action = "renew"
        message = self._session.talk.last(role)
        if message is not None:
            self.act(message.id, action)

    def _compare(self, message: StoredMessage) -> None:
        """An answer that was run again exactly, and the one before."""
        repeat, tree = message.stats.repeat, self._session.talk.tree
        if repeat is None or repeat.of not in tree.siblings(message.id):
            self._news.say(tr("The answer that this one repeats is gone."))
            return
        first, second = tr("First answer"), tr("Run again exactly", "the second of two answers")
        sides = (again.side(tree.get(repeat.of), first), again.side(message, second))
        dialog = SideBySide(*sides, "", self._theme, self._page)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
