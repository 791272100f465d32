"""The chat page: header, transcript, composer, and what they show of the session."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.chat.composer import Composer
from app.chat.context.ahead import ShownAhead
from app.chat.context.count import ContextCounter
from app.chat.context.offer import ContextOffer
from app.chat.dialogs import ChatDialogs
from app.chat.elsewhere import reason
from app.chat.find.find import FindInChat
from app.chat.header import Header
from app.chat.news import News
from app.chat.pictures import in_mime
from app.chat.session.answers import Answers
from app.chat.session.background import Background
from app.chat.session.drafts import DraftTexts
from app.chat.session.queued import QueuedBar
from app.chat.session.sending import Sending
from app.chat.session.session import ChatSession
from app.chat.session.titles import Titles
from app.chat.settings.adapters import ChatAdapters
from app.chat.settings.chat_settings import ChatSettings
from app.chat.settings.tools import ChatTools
from app.chat.side_by_side.asking import AskingSeveral
from app.chat.tint_legend import TintLegend
from app.chat.transcript.actions import MessageActions
from app.chat.transcript.shown import ShownBranch
from app.chat.transcript.transcript import Transcript
from app.chat.welcome import CHOOSE, WelcomeView
from app.dropped import accept_copy, files_in
from app.history.store import HistoryStore
from app.link.link import EngineLink
from app.models.state.loads import ModelLoads
from app.notice import NoticeBar
from app.shortcuts import typed
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, caption, fill, named, say, show_checked, switched
from engine.protocol import ChatMessage, Sampling


class ChatPage(FocusFirst):
    """One conversation at a time; answers of others go on in the background."""

    prompt_changed = Signal()
    """:meth:`last_prompt` may give something else now."""
    chat_changed = Signal(str)
    """The id of the chat now shown, "" for one that is not saved yet."""
    why_asked = Signal()
    """The person wants to see what makes answers fast."""
    models_asked = Signal()
    """The person wants a model that is not here."""
    file_asked = Signal()
    """The person wants to open a model's file."""
    tint_changed = Signal(bool)
    """The person switched the tints on or off here."""

    def __init__(
        self, link: EngineLink, history: HistoryStore, loads: ModelLoads, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._link, self.loads = link, loads
        named(self, "chat-page", surface="bg", acceptDrops=True)
        self.session = ChatSession(link, history, self)
        self.header = Header(link, loads, theme, self)
        self.transcript = Transcript(theme, self)
        self.legend = TintLegend(theme, self.transcript)
        self.transcript.set_head(self.legend)
        self.finding = FindInChat(self.session, self.transcript, self.focus_composer, theme, self)
        self.welcome = WelcomeView(self.transcript.viewport(), theme)
        self.notice = NoticeBar(theme, "notice", self)
        self.composer = Composer(theme, self)
        self.settings = ChatSettings(theme, self)
        self.news = News(link, history, self.notice, self)
        self.composer.is_answer = self.session.writes_answer
        self.sending = Sending(link, self.session, loads, self.composer, QueuedBar(self), self.news, self)
        self.several = AskingSeveral(
            link, self.session, self.sending, self.composer, self.settings, self.news, theme, self
        )
        self.message_actions = MessageActions(self.session, self.sending, self.composer, self.news, theme, self)
        self.dialogs = ChatDialogs(
            link, history, self.session, self.transcript, self.settings, self.header.settings, self.news, theme, self
        )
        ChatAdapters(link, self.session, self.settings, self)
        ChatTools(link, self.session, self.settings, theme, self)
        ContextOffer(self.session, self.news, lambda: not self.sending.reason, self)
        drafts = DraftTexts(self.composer, self.session, history, self)
        counter = ContextCounter(link, self.session, self.composer, self.header.context, self)
        ShownAhead(counter, self.session, self.composer, self)
        self.titles = Titles(link, history, self.session, self)
        self.background = Background(self.session, history, self)
        self._stops = (
            self.titles.stop,
            self.answers.interrupt_all,
            drafts.save,
            self.composer.reader.stop,
            counter.stop,
            self.session.ahead.stop,
            self.transcript.stop,
            self.finding.stop,
            self.dialogs.close_down,
        )
        self._arrange()
        self._connect_parts()
        self._connect_session()
        self.first = self.composer
        self.sending.refresh()

    # --- for the window --------------------------------------------------------------------------------------------

    @property
    def chat_id(self) -> str:
        """Empty while the chat has no message."""
        return self.session.chat_id

    @property
    def answers(self) -> Answers:
        return self.session.answers

    @property
    def streaming(self) -> bool:
        """True if the branch on screen ends in an answer that is being written."""
        return self.session.streaming

    @property
    def least_height(self) -> int:
        """Pixels that it takes at least, with a single line in the message box."""
        edit = self.composer.edit
        return self.minimumSizeHint().height() - edit.height() + edit.line_height

    def new_chat(self, folder: str = "") -> None:
        """Show a new chat, in the folder of that id."""
        self.session.new(folder)
        self.composer.setFocus()

    def open_chat(self, chat_id: str) -> None:
        """Show a saved chat; one that is gone gives a new chat."""
        if (not chat_id or chat_id != self.chat_id) and not self.session.open(chat_id):
            self.session.new()
        self.composer.setFocus()

    def open_hit(self, chat_id: str, message_id: str, words: str) -> None:
        """Show the place that a search found: its branch, scrolled to, with the words marked."""
        self.open_chat(chat_id)
        self.finding.close()
        if self.session.reveal(message_id):
            self.transcript.reveal(message_id, words)
        self.composer.setFocus()

    def clear_found(self) -> None:
        """Mark nothing any more."""
        self.transcript.reveal("", "")

    def regions(self) -> list[QWidget]:
        """The parts that the keyboard goes through."""
        return [self.header, self.transcript, self.composer]

    def set_tint(self, tint: bool) -> None:
        """Tint words by where their tokens came from, with a legend: accepted draft tokens and corrected ones."""
        show_checked(self.header.tint, tint)
        self.legend.setVisible(tint)
        self.transcript.place_head()
        self.transcript.set_tint(tint)

    def attach(self) -> None:
        self.composer.attach.click()

    def toggle_tint(self) -> None:
        self.header.tint.click()

    def last_prompt(self) -> tuple[list[ChatMessage], Sampling] | None:
        """The prompt of the last answer with the settings and seed it was drawn with; None before the first message."""
        return self.session.talk.last_prompt()

    def last_adapter(self) -> str:
        """The adapter that gave the last answer; in an empty chat the one that will give the next."""
        return self.session.talk.last_adapter()

    def send(self, text: str) -> None:
        """Send the text the way the person would."""
        self.sending.send(text)

    def type(self, text: str) -> None:
        """Keys that came to another part of the window belong to the message."""
        self.composer.type(text)

    def stop(self) -> None:
        self.session.stop()

    def regenerate_last(self) -> None:
        """Another answer to the last question, with a new seed; in every column where several stand side by side."""
        self.message_actions.act_on_last("assistant", "regenerate")

    def focus_composer(self) -> None:
        self.composer.setFocus()

    def close_down(self) -> None:
        """Before the program ends: answers that stream are kept as interrupted."""
        for stop in self._stops:
            stop()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Files and pictures can be dropped anywhere on the page."""
        if files_in(event.mimeData()) or in_mime(event.mimeData()):
            accept_copy(event)

    def dropEvent(self, event: QDropEvent) -> None:
        if self.composer.take_mime(event.mimeData()):
            accept_copy(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        edit = self.composer.edit
        edit.limit(self.height() - self.minimumSizeHint().height() + edit.height())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Letters that nothing on the page took belong to the message; Esc closes the search in the chat."""
        if event.key() == Qt.Key.Key_Escape and self.finding.open:
            self.finding.close()
        elif typed(event):
            self.type(event.text())
        else:
            super().keyPressEvent(event)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        foot = fill(QHBoxLayout(), margins=(16, 0, 16, 16))
        fill(foot, 1, (self.composer, 1000), 1)
        self.elsewhere = caption(name="chat.elsewhere")
        self.elsewhere.setContentsMargins(24, 6, 16, 6)
        column = fill(QVBoxLayout(self), self.header, self.elsewhere, margins=0, spacing=0)
        self.transcript.setMinimumHeight(1)  # where room is short the message box keeps its own
        fill(column, (self.transcript, 1), self.notice, self.sending.waits)
        column.addSpacing(12)
        column.addLayout(foot)

    def _connect_parts(self) -> None:
        session = self.session
        self.transcript.acted.connect(self.message_actions.act)
        session.tools.failed.connect(self.news.complain)
        self.message_actions.overflow_asked.connect(self.dialogs.choose_overflow)
        self.message_actions.branches_asked.connect(self.dialogs.show_branches)
        self.composer.thinking.changed.connect(session.set_thinking)
        self.composer.end_asked.connect(self.transcript.scroll_to_end)
        self.composer.recalled.connect(lambda: self.message_actions.act_on_last("user", "edit"))
        self.welcome.chosen.connect(self.sending.ask)
        self.welcome.write_asked.connect(self.focus_composer)
        self.welcome.open_asked.connect(self.file_asked)
        self.welcome.models_asked.connect(self.models_asked)
        self.welcome.why_asked.connect(self.why_asked)
        self.header.settings_asked.connect(self.dialogs.open_settings)
        switched(self.header.tint, self.tint_changed.emit)
        self.settings.changed.connect(session.set_settings)
        self.settings.refused.connect(self.news.complain)
        self.settings.overflow_changed.connect(session.set_overflow)
        self.composer.folder.left_out.connect(session.folder.leave_out)
        self.composer.folder.documents_asked.connect(self.dialogs.show_own_folder)

    def _connect_session(self) -> None:
        session = self.session
        session.folder.changed.connect(self._show_folder)
        for signal in (session.opened, session.asked):
            signal.connect(self.clear_found)
        ShownBranch(session, self.loads, self.transcript)
        session.opened.connect(lambda: self.chat_changed.emit(self.chat_id))
        for signal in (session.opened, session.changed, session.settings_changed):
            signal.connect(self.prompt_changed)
        session.saved.connect(self.chat_changed)
        self.sending.changed.connect(self._show_state)

    def _show_state(self) -> None:
        """Show what can be asked of which model, or the reason nothing can."""
        talk = self.session.talk
        card = self._link.card if talk.chat.remote is None else None
        self.header.set_remote(talk.chat.remote)
        say(self.elsewhere, reason(talk.chat.remote), "caption")
        self.welcome.show_for(card, not talk.leaf, self.sending.reason == CHOOSE)
        self.composer.thinking.show_for(card, talk.chat.thinking)
        self.composer.see(card)

    def _show_folder(self) -> None:
        """The documents of the folder that the next question is asked with."""
        talk, folder = self.session.talk, self.session.folder
        self.composer.folder.show_folder(folder.folder, folder.documents, talk.chat.left_out, not talk.saved)
