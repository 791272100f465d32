"""Logic of the chat page, without its widgets: the conversation on screen, and asking the engine for answers to it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QObject, Signal

from app.chat.session.answers import Answers, PartialAnswer
from app.chat.session.asker import Asker
from app.chat.session.beside import AnswersBeside
from app.chat.session.conversation import Conversation
from app.chat.session.folder import ChatFolder
from app.chat.session.next_question import NextQuestion
from app.chat.session.settling import answers_with, came_from_cache
from app.chat.session.tokens import DocumentTokens
from app.chat.session.tools import ShownCall, ToolRounds
from app.chat.side_by_side.columns import AnswerColumn
from app.chat.thinking_switch import allowed
from app.documents.ahead import EmbeddingsAhead
from app.documents.meaning import PassageEmbeddings
from app.documents.records import MessageDocument
from app.history.records import AnswerStats, Draft, StoredMessage, attached
from app.history.sent import without_repeats
from app.history.store import HistoryStore
from app.link.link import EngineLink
from engine import protocol
from engine.protocol import ChatMessage, Overflow, RemoteModel, Sampling, Thinking, ToolConfig, ToolResult
from engine.protocol.rounds import ENOUGH, MOST_ROUNDS, Decision


class ChatSession(QObject):
    """One conversation at a time; answers of others go on in the background."""

    opened = Signal()
    """Another conversation is on screen."""
    changed = Signal()
    """The shown branch, or where it ends, changed."""
    settings_changed = Signal()
    """Settings of the shown chat's answers changed: system prompt, sampling, thinking, context policy or adapter."""
    asked = Signal()
    """An answer was begun at the end of the branch."""
    saved = Signal(str)
    """The id of a chat that got its first message."""
    updated = Signal(object)
    """A Message of the shown chat has another record: it ended, or lost a part of its conversation."""
    ended = Signal(object)
    """An answer of the shown chat, the Message, has ended."""
    refused = Signal(object)
    """The engine's Error: an answer of the shown chat was not begun, and is gone; or one cannot go on."""

    def __init__(self, link: EngineLink, history: HistoryStore, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._history = link, history
        self.talk = Conversation(history)
        self._put_by: Conversation | None = None
        """Chat that is not begun, with settings chosen for it, while another is in its place."""
        self._queue: dict[str, str] = {}
        """Chat -> its message that waits for the model, the oldest first."""
        self.answers = Answers(link, history, self)
        self.answers.cut.connect(self._on_updated)
        self.answers.ended.connect(self._on_ended)
        self.answers.refused.connect(self._on_refused)
        self.answers.not_continued.connect(self.refused)
        self.tokens = DocumentTokens(link, self)
        self.folder = ChatFolder(history, lambda: self.talk, self)
        for shown in (self.opened, self.saved):
            shown.connect(self.folder.refresh)
        self.meaning = PassageEmbeddings(link, history.path.parent / "passages", self)
        self.ahead = EmbeddingsAhead(self.meaning, self)
        for hindrance_over in (link.welcomed, link.loaded, link.unloaded):  # an engine, or other room in the memory
            hindrance_over.connect(self.ahead.retry)
        self._asker = Asker(link, history, self.answers, self.tokens, self.meaning, self)
        self._asker.settled.connect(self._on_settled)
        self._beside = AnswersBeside(history, self.answers, self._asker, lambda: self.talk)
        self._next = NextQuestion(lambda: self.talk, self.folder)
        self.tools = ToolRounds(link, self)
        self.tools.ended.connect(self._on_results)
        self.tools.changed.connect(self._on_calls)
        history.changed.connect(self._on_history_changed)

    @property
    def chat_id(self) -> str:
        """Empty while the chat has no message."""
        return self.talk.chat.id if self.talk.saved else ""

    @property
    def streaming(self) -> bool:
        """True if the branch on screen ends in an answer that is being written, or whose calls are being run."""
        return any(map(self.answers.running, self.ends)) or self.tools.running(self.talk.leaf)

    @property
    def side_by_side(self) -> list[StoredMessage]:
        """Answers that stand side by side at the end of the branch, as none was chosen yet; usually none."""
        return self._beside.standing

    @property
    def ends(self) -> list[str]:
        """The ids of the last messages on screen: several where answers stand side by side."""
        return self._beside.ends

    @property
    def shown(self) -> list[StoredMessage]:
        """The messages on screen, each document of the folder where it came in."""
        beside, path = self.side_by_side, without_repeats(self.talk.path)
        return [*path[:-1], *beside] if beside else path

    @property
    def growth(self) -> tuple[int, int] | None:
        """Result of :meth:`Answers.context` for the answer that is being written; None without one."""
        return self.answers.context(self.talk.leaf) if self.answers.running(self.talk.leaf) else None

    def set_settings(self, system: str, sampling: Sampling) -> None:
        self.talk.set_settings(system, sampling)
        self.settings_changed.emit()

    def set_thinking(self, thinking: Thinking) -> None:
        self.talk.set_thinking(thinking)
        self.settings_changed.emit()

    def set_overflow(self, overflow: Overflow) -> None:
        self.talk.set_overflow(overflow)
        self.settings_changed.emit()

    def set_adapter(self, adapter: str) -> None:
        self.talk.set_adapter(adapter)
        self.settings_changed.emit()

    def set_servers(self, servers: Sequence[str]) -> None:
        """Set the MCP servers whose tools the chat has."""
        self.talk.set_servers(servers)
        self.settings_changed.emit()

    def set_remote(self, remote: RemoteModel | None) -> None:
        """Have the shown chat answered by a model of another server; None: by this machine's."""
        if remote != self.talk.chat.remote:
            self.talk.set_remote(remote)
            self.settings_changed.emit()

    def new(self, folder: str = "") -> None:
        """Show a new chat, in the folder of that id."""
        kept = self._put_by
        if kept is not None and folder in ("", kept.folder):
            self._put_by = None
            self._show(kept)
        else:
            self._show(Conversation(self._history, folder=folder))

    def new_apart(self) -> None:
        """Show a new chat for a message that was written elsewhere. One that is on screen and not begun comes back,
        with its settings, when a new chat is next wanted."""
        if not self.talk.saved:
            self._put_by = self.talk
        self._show(Conversation(self._history))

    def open(self, chat_id: str) -> bool:
        """Show a saved chat; False for one that is gone."""
        chat = self._history.chat(chat_id)
        if chat is None:
            return False
        messages = [self.answers.current(message) for message in self._history.messages(chat_id)]
        self._show(Conversation(self._history, chat, messages))
        return True

    def send(
        self,
        text: str,
        instead_of: str = "",
        ready: bool = True,
        pictures: tuple[bytes, ...] = (),
        documents: tuple[MessageDocument, ...] = (),
    ) -> None:
        """Append the person's message, or add it as an alternative to ``instead_of``, and ask for the answer.

        Where the model is not ``ready``, :meth:`send_queued` asks for it.
        """
        asked = self._append(text, instead_of, pictures, documents)
        if ready:
            self.answer(asked)
            return
        self._queue[self.chat_id] = asked
        self._tell_asked()

    @property
    def queued(self) -> str:
        """The id of the shown chat's message that waits for the model, "" for none."""
        return self._queue.get(self.chat_id, "")

    def take_back(self) -> Draft:
        """The shown chat's message that waits is taken out of it.

        Returns what it was made of, with the id of a message that it is an alternative to, "" for none.
        """
        message, tree = self.talk.tree.get(self._queue.pop(self.chat_id)), self.talk.tree
        self.talk.folder = self.folder.folder.id if self.folder.folder is not None else ""
        others = [other for other in tree.siblings(message.id) if other != message.id]
        origin = next((other for other in others if tree.get(other).role == "user"), "")
        with self._history.together():
            self._history.remove_message(message.id)
            self.talk.remove(message.id)
            empty = not len(self.talk.tree)  # nothing else was ever said in it
            if empty:
                self._history.delete(self.talk.chat.id)
        if empty:
            self._show(self.talk.fresh())
        else:
            self.changed.emit()
        return Draft(message.content, origin, pictures=message.pictures, documents=attached(message))

    def send_queued(self) -> None:
        """The model is ready: ask what waited for it, in every chat."""
        while self._queue:
            chat_id, message_id = next(iter(self._queue.items()))
            del self._queue[chat_id]
            if chat_id == self.chat_id:
                self.answer(message_id)
            elif (talk := self._talk_of(chat_id)) is not None and message_id in talk.tree:
                self._asker.ask(talk, message_id, talk.chat.settings)

    def answer(self, parent: str, sampling: Sampling | None = None) -> None:
        """Ask for an answer to ``parent`` with the chat's settings, or with another sampling."""
        like = self.talk.chat.settings
        self._begin(parent, like if sampling is None else msgspec.structs.replace(like, sampling=sampling))

    def again(self, message: StoredMessage) -> None:
        """Ask once more as this answer was asked for, seed and all."""
        self._begin(message.parent, message.stats.settings, message)

    def ask_several(
        self,
        text: str,
        columns: Sequence[AnswerColumn],
        instead_of: str = "",
        pictures: tuple[bytes, ...] = (),
        documents: tuple[MessageDocument, ...] = (),
    ) -> None:
        """Append the person's message as :meth:`send` does, and ask for an answer to it in each column."""
        self.answer_several(self._append(text, instead_of, pictures, documents), columns)

    def answer_several(self, parent: str, columns: Sequence[AnswerColumn]) -> None:
        """Ask for one answer to ``parent`` in each column; all are begun at once, and stand side by side."""
        self._queue.pop(self.chat_id, "")
        self._beside.begin(parent, columns)
        self._tell_asked()

    def renew(self, messages: Sequence[StoredMessage]) -> None:
        """Put another answer, with a new seed, into the columns of these; they stay as versions."""
        self._beside.renew(messages)
        self._tell_asked()

    def choose(self, message_id: str) -> None:
        """Go on from one of the answers that stand side by side; the others stay as versions, and are written no
        further."""
        self._beside.choose(message_id)
        self.changed.emit()

    def regenerate(self, parent: str) -> None:
        """Another answer to ``parent``, with a new seed."""
        self.answer(parent, msgspec.structs.replace(self.talk.chat.sampling, seed=None))

    def go_on(self, message: StoredMessage) -> None:
        """Have the last answer of the branch go on where its text ends."""
        self._asker.go_on(self.talk, message)
        self._tell_asked()

    def writing_for(self, draft: Draft) -> RemoteModel | None:
        """The model of another server that would go on from the draft of an answer; None for that of this machine."""
        return self.talk.chat.remote if draft.begins else self.talk.tree.get(draft.edited).stats.remote

    def write_answer(self, draft: Draft, always: bool = False) -> StoredMessage | None:
        """Keep the text of a draft as an answer of its own, beside the one that it edits or below the message to which
        it begins one; None where nothing is changed, unless it is to be kept ``always``."""
        talk = self.talk
        if draft.begins:
            written = talk.write_answer(draft.begins, draft.text, talk.chat.settings)
        else:
            edited = talk.tree.get(draft.edited)
            if edited.content == draft.text and not always:
                return None
            written = talk.write_answer(edited.parent, draft.text, edited.stats, draft.text != edited.content)
        self.changed.emit()
        return written

    def stop(self) -> None:
        for message_id in self.ends:
            self.answers.stop(message_id)
        results = self.tools.stop(self.talk.leaf)
        if results is not None:
            self.talk.add_results(self.talk.leaf, results)
            self.changed.emit()

    def decide(self, answer_id: str, call_id: str, decision: Decision) -> None:
        """The person allowed or denied a call of the shown chat."""
        self.tools.decide(self.talk.tree.get(answer_id), call_id, decision)

    def calls(self, message: StoredMessage) -> list[ShownCall]:
        """The calls of an answer, as they stand now."""
        if message.id == self.talk.leaf and message.wants_results:
            return self.tools.shown(message)
        return [ShownCall(call, "done") for call in message.calls]

    def cache_savings(self, message: StoredMessage) -> list[str]:
        """For each document of a message on screen, what the cache saved of reading it."""
        path = [*self.talk.path[:-1], *self.side_by_side] if self.side_by_side else self.talk.path
        place = next((at for at, each in enumerate(path) if each.id == message.id), len(path))
        return [came_from_cache(each.use, answers_with(each, path[place + 1 :])) for each in message.documents]

    def switch(self, message_id: str, step: int) -> None:
        """Show another version of a message."""
        self.talk.switch(message_id, step)
        self.changed.emit()

    def reveal(self, message_id: str) -> bool:
        """Show a branch that goes through the message; False where the shown chat has no such message."""
        if message_id not in self.talk.tree:
            return False
        self.talk.show(message_id)
        self.changed.emit()
        return True

    def writes_answer(self, draft: Draft) -> bool:
        """True if the draft is the text of an answer, and no message to be answered."""
        return self._next.writes_answer(draft)

    @property
    def next_tools(self) -> ToolConfig | None:
        """Tools of the next answer, as far as they are known."""
        return self.answers.tools.get(self.talk.chat.servers)

    def next_prompt(self, draft: Draft) -> tuple[list[ChatMessage], Thinking]:
        """Result of :meth:`NextQuestion.prompt`, and the thinking setting to render it."""
        return self._next.prompt(draft), allowed(self._link.card, self.talk.chat.thinking)

    def stays_in_front(self, draft: Draft) -> list[MessageDocument]:
        """Result of :meth:`NextQuestion.stays_in_front`."""
        return self._next.stays_in_front(draft)

    def last_thinking(self) -> Thinking:
        """Thinking setting of the last answer, as far as the present model knows that."""
        return allowed(self._link.card, self.talk.last_thinking())

    def snapshot(self, message_id: str) -> PartialAnswer:
        """An answer of the shown chat as far as it is written."""
        if self.answers.running(message_id):
            return self.answers.snapshot(message_id)
        message = self.talk.tree.get(message_id)
        spans, thought_s = list(message.spans), message.stats.thought_s
        return PartialAnswer(message.content, spans, message.thinking, thought_s, tuple(message.calls))

    # --- inside ----------------------------------------------------------------------------------------------------

    def _show(self, talk: Conversation) -> None:
        self.talk = talk
        self.opened.emit()

    def _append(
        self,
        text: str,
        instead_of: str,
        pictures: tuple[bytes, ...],
        documents: tuple[MessageDocument, ...],
    ) -> str:
        """Append the person's message; its id."""
        self.tools.stop(self.talk.leaf)  # calls that wait for the person's word are not run any more
        fresh = not self.talk.saved
        self.folder.refresh()
        documents = (*documents, *self.folder.parts(documents))
        asked = self.talk.ask(text, instead_of, pictures, documents)
        if fresh:
            self.saved.emit(self.chat_id)
        return asked.id

    def _begin(self, parent: str, like: AnswerStats, original: StoredMessage | None = None) -> None:
        self._queue.pop(self.chat_id, "")
        self._asker.ask(self.talk, parent, like, original)
        self._tell_asked()

    def _tell_asked(self) -> None:
        self.changed.emit()
        self.asked.emit()

    def _on_settled(self, message: StoredMessage) -> None:
        """The chat may have been left, and come back to, meanwhile."""
        if message.id in self.talk.tree:
            self.talk.tree.put(message)
            self.changed.emit()

    def _on_updated(self, message: StoredMessage) -> bool:
        """False for a message of another chat."""
        if message.chat != self.talk.chat.id:
            return False
        self.talk.tree.put(message)
        self.updated.emit(message)
        return True

    def _on_ended(self, message: StoredMessage) -> None:
        if message.wants_results and message.stats.repeat is None:  # what is run again exactly runs no tool by itself
            self.tools.begin(message)
        if self._on_updated(message):
            self.changed.emit()
            self.ended.emit(message)

    def _on_results(self, answer: StoredMessage, results: list[ToolResult]) -> None:
        """All calls of an answer have a result: let it go on, in whatever chat it is, unless its branch was left."""
        talk = self._talk_of(answer.chat)
        if talk is None:
            return
        told, asked = talk.add_results(answer.id, results), answer.stats
        goes_on, enough = talk.leaf == told.id, talk.rounds(told.id) >= MOST_ROUNDS
        if goes_on and not enough:
            like = msgspec.structs.replace(
                talk.chat.settings,
                sampling=msgspec.structs.replace(asked.sampling, seed=talk.chat.sampling.seed),
                thinking=asked.thinking,
                overflow=asked.overflow,
                servers=asked.servers,
            )
            self._asker.ask(talk, told.id, like)
        if talk is not self.talk:
            return
        self.changed.emit()
        if enough:
            self.tools.failed.emit(ENOUGH)
        elif goes_on:
            self.asked.emit()

    def _talk_of(self, chat_id: str) -> Conversation | None:
        """The chat, shown or not; None for one that is gone."""
        if chat_id == self.talk.chat.id:
            return self.talk
        chat = self._history.chat(chat_id)
        return Conversation(self._history, chat, self._history.messages(chat_id)) if chat is not None else None

    def _on_calls(self, answer_id: str) -> None:
        if answer_id == self.talk.leaf:
            self.changed.emit()

    def _on_refused(self, message: StoredMessage, error: protocol.Error) -> None:
        if message.chat != self.talk.chat.id:
            self._history.set_leaf(message.chat, message.parent, touch=False)
            return
        self.talk.remove(message.id)
        self._undecide(message.parent)
        self.changed.emit()
        self.refused.emit(error)

    def _undecide(self, message_id: str) -> None:
        """A question that was refused, and has no other answer: what of its documents is sent is decided again when it
        is, perhaps with another model."""
        question = self.talk.tree.get(message_id) if message_id else None
        if question is not None and question.documents and self.talk.tree.newest_leaf(message_id) == message_id:
            self.talk.set_uses(message_id, tuple(each._replace(use=None) for each in question.documents))

    def _on_history_changed(self, chat_id: str) -> None:
        """Renamed or deleted elsewhere: a deleted chat leaves the screen, its answer stops."""
        if not self.talk.saved or chat_id != self.talk.chat.id:
            return
        chat = self._history.chat(chat_id)
        if chat is not None:
            self.talk.chat = self.talk.chat._replace(title=chat.title)
            return
        self.answers.stop_chat(chat_id)
        self.tools.stop_chat(chat_id)
        self.new()
