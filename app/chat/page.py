"""The chat page: header, transcript, composer, and what they show of the session."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.chat.answers import Answers
from app.chat.chat_settings import ChatSettings
from app.chat.composer import Composer
from app.chat.context_count import ContextCounter
from app.chat.context_offer import ContextOffer
from app.chat.engine_news import EngineNews
from app.chat.header import Header
from app.chat.notice import Notice
from app.chat.session import ChatSession
from app.chat.stats import reading_prompt
from app.chat.tint_legend import TintLegend
from app.chat.transcript import COLUMN_PX, Transcript
from app.chat.welcome import CHOOSE, Welcome
from app.history.records import Message
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from app.theme.theme import Theme
from engine import protocol
from engine.protocol import ChatMessage, LoadOptions, Overflow, Sampling, Thinking

MOST_CHARS = 2_000_000
"""Of one message: far beyond what models read, and what can be laid out while somebody waits."""


class ChatPage(QWidget):
    """One conversation at a time; answers of others go on in the background."""

    status = Signal(str)
    """What the page is busy with, for a status line; "" for nothing."""
    prompt_changed = Signal()
    """:meth:`last_prompt` may give something else now."""
    chat_changed = Signal(str)
    """The id of the chat now shown, "" for one that is not saved yet."""
    tint_changed = Signal(bool)
    """The person switched the tints on or off here."""

    def __init__(self, link: EngineLink, history: HistoryStore, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self.setObjectName("chat-page")
        self.setProperty("surface", "bg")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.session = ChatSession(link, history, self)
        self.header = Header(link, theme, self)
        self.legend = TintLegend(theme, self)
        self.transcript = Transcript(theme, self)
        self.welcome = Welcome(self.transcript.viewport())
        self.notice = Notice(self)
        self.news = EngineNews(link, self.notice, self)
        self.offer = ContextOffer(self.session, self.news, self.notice, lambda: not self._reason(), self)
        self.composer = Composer(theme, self)
        self.settings = ChatSettings(theme, self)
        self.counter = ContextCounter(link, self.header.context, self._next_prompt, self)
        self._arrange()
        self._connect_parts()
        self._connect_session()
        self._connect_engine(history)
        self.setFocusProxy(self.composer.edit)
        self._refresh_composer()
        if history.notice:
            self.notice.say(history.notice, bad=True)

    # --- for the window --------------------------------------------------------------------------------------------

    @property
    def answers(self) -> Answers:
        return self.session.answers

    @property
    def chat_id(self) -> str:
        """Empty while the chat has no message."""
        return self.session.chat_id

    @property
    def streaming(self) -> bool:
        """Whether the branch on screen ends in an answer that is being written."""
        return self.session.streaming

    def new_chat(self) -> None:
        self.session.new()
        self.composer.edit.setFocus()

    def open_chat(self, chat_id: str) -> None:
        """Show a saved chat; one that is gone gives a new chat."""
        if (not chat_id or chat_id != self.chat_id) and not self.session.open(chat_id):
            self.new_chat()

    def set_tint(self, tint: bool) -> None:
        """Tint words by where their tokens came from, with a legend: accepted guesses and corrected ones."""
        self.header.tint.setChecked(tint)
        self.legend.setVisible(tint)
        self.transcript.set_tint(tint)

    def toggle_tint(self) -> None:
        self.header.tint.click()

    def set_load_options(
        self, provider: Callable[[], LoadOptions], draft: Callable[[], str | None] = lambda: None
    ) -> None:
        """Where the model selector takes the options of a load, and its draft, from (the settings)."""
        self.header.load_options = provider
        self.header.default_draft = draft

    def last_prompt(self) -> tuple[list[ChatMessage], Sampling] | None:
        """The prompt of the last answer with the settings and seed it was drawn with; None before the first message."""
        return self.session.talk.last_prompt()

    def last_thinking(self) -> Thinking:
        """How the last answer was let think, as far as the present model knows that."""
        return self.session.last_thinking()

    def send(self, text: str) -> None:
        """Append the person's message and ask for the answer; one that no model could read stays in the composer."""
        if len(text) > MOST_CHARS:
            words = f"The message has {len(text):,} characters and {MOST_CHARS:,} are the most. Send a part of it."
            self.news.say(words, bad=True)
            return
        self.composer.clear()
        self.news.dismiss()
        self.session.send(text)

    def _ask(self, question: str) -> None:
        """A question that was offered; what is in the composer already stays there."""
        if self._reason() or self.composer.text:
            self.news.say(f"{self._reason()}." if self._reason() else "Send what you wrote first, or delete it.")
        else:
            self.send(question)
        self.composer.edit.setFocus()

    def stop(self) -> None:
        self.session.stop()

    def regenerate_last(self) -> None:
        """Another answer to the last question, with a new seed."""
        answer = self.session.talk.last("assistant")
        if answer is not None:
            self._act(answer.id, "regenerate")

    def edit_last(self) -> None:
        """Take the last message of the person back into the composer."""
        asked = self.session.talk.last("user")
        if asked is not None:
            self._act(asked.id, "edit")

    def focus_composer(self) -> None:
        self.composer.edit.setFocus()

    def close_down(self) -> None:
        """Before the program ends: answers that stream are kept as interrupted."""
        self.counter.stop()
        self.transcript.stop()
        self.answers.interrupt_all()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        foot = QHBoxLayout()
        foot.setContentsMargins(16, 0, 16, 16)
        self.composer.setMaximumWidth(COLUMN_PX)
        foot.addStretch(1)
        foot.addWidget(self.composer, 1000)
        foot.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self.legend)
        column.addWidget(self.transcript, 1)
        column.addWidget(self.notice)
        column.addSpacing(12)
        column.addLayout(foot)

    def _connect_parts(self) -> None:
        self.composer.sent.connect(self.send)
        self.composer.stopped.connect(self.stop)
        self.composer.edit_cancelled.connect(self._on_edit_cancelled)
        self.composer.text_changed.connect(self.counter.ask_soon)
        self.composer.thinking.changed.connect(self._on_thinking)
        self.transcript.acted.connect(self._act)
        self.welcome.chosen.connect(self._ask)
        self.header.settings_asked.connect(self._open_settings)
        self.header.tint.clicked.connect(self.tint_changed)
        self.settings.changed.connect(self._on_settings)
        self.settings.overflow_changed.connect(self._on_overflow)
        self.offer.taken.connect(self._on_overflow)

    def _connect_session(self) -> None:
        session = self.session
        session.opened.connect(self._on_opened)
        session.changed.connect(self._refresh)
        session.asked.connect(self.transcript.scroll_to_end)
        session.saved.connect(self.chat_changed)
        session.updated.connect(self.transcript.update_message)
        session.ended.connect(self._on_ended)
        session.answers.grown.connect(self._on_grown)
        session.answers.waiting.connect(self._on_waiting)

    def _connect_engine(self, history: HistoryStore) -> None:
        link = self._link
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        link.loaded.connect(self.counter.ask_soon)
        for signal in (link.welcomed, link.loading, link.loaded, link.unloaded):
            signal.connect(self._refresh_composer)
        history.failed.connect(lambda sentence: self.news.say(sentence, bad=True))

    def _on_opened(self) -> None:
        self.composer.clear()
        self.counter.know(None)
        self.transcript.show_path([], self.session.talk.branch)
        self._refresh()
        self.transcript.scroll_to_end()
        self.chat_changed.emit(self.chat_id)

    def _refresh(self) -> None:
        """The shown branch, or where it ends, changed."""
        talk = self.session.talk
        self.header.context.overflow = talk.chat.overflow
        self.transcript.show_path(talk.path, talk.branch)
        self._refresh_composer()
        self.counter.ask_soon()
        self.prompt_changed.emit()

    def _refresh_composer(self, *_: object) -> None:
        self.composer.set_streaming(self.streaming)
        self.composer.set_reason(self._reason())
        without = self._reason() == CHOOSE
        self.welcome.show_for(self._link.card, not self.session.talk.leaf, without)
        self.composer.thinking.show_for(self._link.card, self.session.talk.chat.thinking)
        loading = self.header.loading
        self.status.emit(f"Loading: {loading.stage} {loading.fraction:.0%}" if loading is not None else "")

    def _reason(self) -> str:
        """Why nothing can be asked now; "" when something can."""
        state = self._link.state
        if state is LinkState.DEAD:
            return "The engine is not running"
        if state is not LinkState.CONNECTED:
            return "The engine is starting"
        if self.header.loading is not None:
            return "The model is loading"
        return "" if self._link.card is not None else CHOOSE

    def _next_prompt(self) -> tuple[list[ChatMessage], Thinking]:
        return self.session.next_prompt(self.composer.text)

    def _act(self, message_id: str, action: str) -> None:
        session, message = self.session, self.session.talk.tree.get(message_id)
        if action in ("previous", "next"):
            session.switch(message_id, 1 if action == "next" else -1)
        elif action == "edit":
            session.edited = message_id
            self.composer.begin_edit(message.content)
        elif action == "overflow":
            self._open_settings()
            self.settings.overflow.setFocus()
        elif self.streaming or self._reason():
            words = f"{self._reason()}." if self._reason() else "Stop the answer that is being written first."
            self.news.say(words)
        elif action == "again":
            session.again(message)
        elif action in ("regenerate", "retry"):
            session.regenerate(message.parent if action == "regenerate" else message_id)

    def _open_settings(self) -> None:
        button, chat = self.header.settings, self.session.talk.chat
        corner = button.mapToGlobal(QPoint(button.width(), button.height() + 4))
        self.settings.show_for(chat.system_prompt, chat.sampling, self._link.card, corner, chat.overflow)

    def _on_settings(self, system: str, sampling: Sampling) -> None:
        self.session.talk.set_settings(system, sampling)
        self.counter.ask_soon()
        self.prompt_changed.emit()

    def _on_overflow(self, policy: Overflow) -> None:
        self.session.talk.set_overflow(policy)
        self.header.context.overflow = policy
        self.counter.ask_soon()

    def _on_thinking(self, thinking: Thinking) -> None:
        self.session.talk.set_thinking(thinking)
        self.counter.ask_soon()

    def _on_edit_cancelled(self) -> None:
        self.session.edited = ""

    def _on_grown(self, message_id: str) -> None:
        if message_id == self.session.talk.leaf:
            self.transcript.stream(message_id, lambda: self.session.snapshot(message_id))

    def _on_waiting(self, message_id: str, done: int, total: int) -> None:
        self.transcript.wait(message_id, reading_prompt(done, total))

    def _on_ended(self, message: Message) -> None:
        stats, usage = message.stats, message.stats.usage
        if stats.detail and stats.reason != "context":
            self.news.say(stats.detail, bad=stats.reason != "cancelled")
        if usage is not None and message.id == self.session.talk.leaf and not usage.thinking_tokens:
            # Most templates leave earlier thinking out, so that only a count can tell what is left of it.
            self.counter.know(usage.prompt_tokens + usage.generated_tokens)

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self.news.say(error.message, bad=True)
        self._refresh_composer()

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        self._refresh_composer()
        if state is LinkState.CONNECTED:
            self.counter.ask_soon()
