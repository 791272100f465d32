"""The chat page: header, transcript, composer, and the conversation they show."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.chat.answers import Answers, Snapshot
from app.chat.chat_settings import ChatSettings
from app.chat.composer import Composer
from app.chat.context_count import ContextCounter
from app.chat.conversation import Conversation
from app.chat.header import Header
from app.chat.notice import Notice
from app.chat.stats import reading_prompt
from app.chat.thinking_switch import allowed
from app.chat.transcript import COLUMN_PX, Transcript
from app.history.records import Message
from app.history.store import HistoryStore
from app.link.link import RESTARTS, EngineLink, LinkState
from app.theme.theme import Theme
from engine import protocol
from engine.protocol import ChatMessage, LoadOptions, Sampling, Thinking

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

    def __init__(self, link: EngineLink, history: HistoryStore, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._history = history
        self._talk = Conversation(history)
        self._edited = ""
        self._engine_notice = False
        self._death = ""
        self.setObjectName("chat-page")
        self.setProperty("surface", "bg")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.answers = Answers(link, history, self)
        self.header = Header(link, theme, self)
        self.transcript = Transcript(theme, self)
        self.notice = Notice(self)
        self.composer = Composer(theme, self)
        self.settings = ChatSettings(theme, self)
        self.counter = ContextCounter(link, self.header.context, self._next_prompt, self)
        self._arrange()
        self._connect_parts()
        self._connect_link()
        self.setFocusProxy(self.composer.edit)
        self._refresh_composer()
        if history.notice:
            self.notice.say(history.notice, bad=True)

    # --- for the window --------------------------------------------------------------------------------------------

    @property
    def chat_id(self) -> str:
        """Empty while the chat has no message."""
        return self._talk.chat.id if self._talk.saved else ""

    @property
    def streaming(self) -> bool:
        """Whether the branch on screen ends in an answer that is being written."""
        return self.answers.running(self._talk.leaf)

    def new_chat(self) -> None:
        self._show(Conversation(self._history))
        self.composer.edit.setFocus()

    def open_chat(self, chat_id: str) -> None:
        """Show a saved chat; one that is gone gives a new chat."""
        if chat_id and chat_id == self.chat_id:
            return
        chat = self._history.chat(chat_id)
        if chat is None:
            self.new_chat()
            return
        messages = [self.answers.current(message) for message in self._history.messages(chat_id)]
        self._show(Conversation(self._history, chat, messages))

    def set_tint(self, tint: bool) -> None:
        """Tint words by where their tokens came from: accepted guesses and corrected ones."""
        self.transcript.set_tint(tint)

    def set_load_options(
        self, provider: Callable[[], LoadOptions], draft: Callable[[], str | None] = lambda: None
    ) -> None:
        """Where the model selector takes the options of a load, and its draft, from (the settings)."""
        self.header.load_options = provider
        self.header.default_draft = draft

    def last_prompt(self) -> tuple[list[ChatMessage], Sampling] | None:
        """The prompt of the last answer with the settings and seed it was drawn with; None before the first message."""
        return self._talk.last_prompt()

    def last_thinking(self) -> Thinking:
        """How the last answer was let think, as far as the present model knows that."""
        return allowed(self._link.card, self._talk.last_thinking())

    def send(self, text: str) -> None:
        """Append the person's message and ask for the answer; one that no model could read stays in the composer."""
        if len(text) > MOST_CHARS:
            words = f"The message has {len(text):,} characters and {MOST_CHARS:,} are the most. Send a part of it."
            self._say(words, bad=True)
            return
        fresh = not self._talk.saved
        asked = self._talk.ask(text, self._edited)
        self._edited = ""
        self.composer.clear()
        self.notice.dismiss()
        self._engine_notice = False
        if fresh:
            self.chat_changed.emit(self.chat_id)
        self._answer(asked.id, self._talk.chat.sampling, self._talk.chat.thinking)

    def stop(self) -> None:
        self.answers.stop(self._talk.leaf)

    def regenerate_last(self) -> None:
        """Another answer to the last question, with a new seed."""
        answer = self._talk.last("assistant")
        if answer is not None:
            self._act(answer.id, "regenerate")

    def edit_last(self) -> None:
        """Take the last message of the person back into the composer."""
        asked = self._talk.last("user")
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
        self.header.settings_asked.connect(self._open_settings)
        self.settings.changed.connect(self._on_settings)
        self.notice.acted.connect(self._on_notice)
        self.answers.grown.connect(self._on_grown)
        self.answers.waiting.connect(self._on_waiting)
        self.answers.ended.connect(self._on_ended)
        self.answers.refused.connect(self._on_refused)

    def _connect_link(self) -> None:
        link = self._link
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        link.loaded.connect(self._on_loaded)
        for signal in (link.welcomed, link.loading, link.unloaded):
            signal.connect(self._refresh_composer)
        self._history.failed.connect(self._on_history_failed)
        self._history.changed.connect(self._on_history_changed)

    def _show(self, talk: Conversation) -> None:
        self._talk, self._edited = talk, ""
        self.composer.clear()
        self.counter.know(None)
        self.transcript.show_path([], talk.branch)
        self._refresh()
        self.transcript.scroll_to_end()
        self.chat_changed.emit(self.chat_id)

    def _refresh(self) -> None:
        """The shown branch, or where it ends, changed."""
        self.transcript.show_path(self._talk.path, self._talk.branch)
        self._refresh_composer()
        self.counter.ask_soon()
        self.prompt_changed.emit()

    def _refresh_composer(self, *_: object) -> None:
        self.composer.set_streaming(self.streaming)
        self.composer.set_reason(self._reason())
        self.composer.thinking.show_for(self._link.card, self._talk.chat.thinking)
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
        return "" if self._link.card is not None else "Choose a model to begin"

    def _next_prompt(self) -> tuple[list[ChatMessage], Thinking]:
        """What would be sent now: the shown branch and what stands in the composer; and how it would be rendered."""
        parent = self._talk.tree.get(self._edited).parent if self._edited else self._talk.leaf
        typed = self.composer.text
        asked = [ChatMessage(role="user", content=typed)] if typed.strip() else []
        return self._talk.prompt(parent) + asked, allowed(self._link.card, self._talk.chat.thinking)

    def _answer(self, parent: str, sampling: Sampling, thinking: Thinking) -> None:
        card = self._link.card
        name, thinking = card.name if card is not None else "", allowed(card, thinking)
        answer = self._talk.begin_answer(parent, sampling, name, thinking)
        self.answers.begin(answer, self._talk.prompt(parent), self._talk.answer_before(answer.id))
        self._refresh()
        self.transcript.scroll_to_end()

    def _act(self, message_id: str, action: str) -> None:
        message = self._talk.tree.get(message_id)
        if action in ("previous", "next"):
            self._talk.switch(message_id, 1 if action == "next" else -1)
            self._refresh()
        elif action == "edit":
            self._edited = message_id
            self.composer.begin_edit(message.content)
        elif self.streaming or self._reason():
            words = f"{self._reason()}." if self._reason() else "Stop the answer that is being written first."
            self._say(words)
        elif action == "again":
            self._answer(message.parent, message.stats.sampling, message.stats.thinking)
        elif action in ("regenerate", "retry"):
            seedless = msgspec.structs.replace(self._talk.chat.sampling, seed=None)
            self._answer(message.parent if action == "regenerate" else message_id, seedless, self._talk.chat.thinking)

    def _say(self, sentence: str, bad: bool = False) -> None:
        self._engine_notice = False
        self.notice.say(sentence, bad=bad)

    def _open_settings(self) -> None:
        button, chat = self.header.settings, self._talk.chat
        corner = button.mapToGlobal(QPoint(button.width(), button.height() + 4))
        self.settings.show_for(chat.system_prompt, chat.sampling, self._link.card, corner)

    def _on_settings(self, system: str, sampling: Sampling) -> None:
        self._talk.set_settings(system, sampling)
        self.counter.ask_soon()
        self.prompt_changed.emit()

    def _on_thinking(self, thinking: Thinking) -> None:
        self._talk.set_thinking(thinking)
        self.counter.ask_soon()

    def _on_edit_cancelled(self) -> None:
        self._edited = ""

    def _on_grown(self, message_id: str) -> None:
        if message_id == self._talk.leaf:
            self.transcript.stream(message_id, lambda: self._snapshot(message_id))

    def _snapshot(self, message_id: str) -> Snapshot:
        if self.answers.running(message_id):
            return self.answers.snapshot(message_id)
        message = self._talk.tree.get(message_id)
        return Snapshot(message.content, list(message.spans), message.thinking, message.stats.thought_s)

    def _on_waiting(self, message_id: str, done: int, total: int) -> None:
        self.transcript.wait(message_id, reading_prompt(done, total))

    def _on_ended(self, message: Message) -> None:
        if message.chat != self._talk.chat.id:
            return
        self._talk.tree.put(message)
        self.transcript.update_message(message)
        self._refresh()
        stats, usage = message.stats, message.stats.usage
        if stats.detail:
            self._say(stats.detail, bad=stats.reason != "cancelled")
        if usage is not None and message.id == self._talk.leaf and not usage.thinking_tokens:
            # Most templates leave earlier thinking out, so that only a count can tell what is left of it.
            self.counter.know(usage.prompt_tokens + usage.generated_tokens)

    def _on_refused(self, message: Message, sentence: str) -> None:
        if message.chat != self._talk.chat.id:
            self._history.set_leaf(message.chat, message.parent, touch=False)
            return
        self._talk.remove(message.id)
        self._refresh()
        self._say(sentence, bad=True)

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self._say(error.message, bad=True)
        self._refresh_composer()

    def _on_history_failed(self, sentence: str) -> None:
        self._say(sentence, bad=True)

    def _on_history_changed(self, chat_id: str) -> None:
        """Renamed or deleted elsewhere: a deleted chat leaves the screen, its answer stops."""
        if not self._talk.saved or chat_id != self._talk.chat.id:
            return
        chat = self._history.chat(chat_id)
        if chat is not None:
            self._talk.chat = self._talk.chat._replace(title=chat.title)
            return
        self.stop()
        self.new_chat()

    def _on_state(self, state: LinkState, sentence: str) -> None:
        self._refresh_composer()
        if state in (LinkState.RESTARTING, LinkState.DEAD):
            dead = state is LinkState.DEAD
            self.notice.say(
                sentence, bad=True, action="revive" if dead else "", title="Start the engine" if dead else ""
            )
            self._engine_notice = True
            self._death = sentence.removesuffix(RESTARTS)
        elif state is LinkState.CONNECTED:
            gone = "" if self._link.knows_model else " The model was not loaded again: choose one above."
            self._tell_return(f"It is running again.{gone}")
            self.counter.ask_soon()

    def _on_loaded(self, _: protocol.Loaded) -> None:
        self._tell_return("It is running again and the model is loaded.")
        self._refresh_composer()
        self.counter.ask_soon()

    def _tell_return(self, words: str) -> None:
        """Good news after a death takes the place of the bad, and still says what happened."""
        if self._engine_notice:
            self.notice.say(f"{self._death} {words}")

    def _on_notice(self, action: str) -> None:
        if action == "revive":
            self.notice.dismiss()
            self._engine_notice = False
            self._link.revive()
