"""The chat on screen: its record, its tree of messages, and every change to them written to the history."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import zip_longest

import msgspec

from app.documents.prompt import with_documents
from app.documents.records import MessageDocument
from app.history.records import AnswerStats, Chat, StoredMessage, new_id, now
from app.history.sent import in_front
from app.history.store import HistoryStore
from app.history.tree import MessageTree
from app.language import tr
from engine.protocol import ChatMessage, Overflow, RemoteModel, Sampling, Thinking, ToolConfig, ToolResult
from engine.protocol.rounds import NOT_RUN

TITLE_CHARS = 60


class Conversation:
    """A chat is saved with its first message; until then nothing is written."""

    def __init__(
        self,
        history: HistoryStore,
        chat: Chat | None = None,
        messages: Iterable[StoredMessage] = (),
        folder: str = "",
    ) -> None:
        """``folder``: the id of that in which a new chat begins, "" for none."""
        self._history, self.folder = history, folder
        begun = now()
        self.saved = chat is not None
        self.chat = chat or Chat(id=new_id(), title=tr("New chat"), created=begun, updated=begun)
        self.tree = MessageTree(messages, self.chat.leaf)

    @property
    def leaf(self) -> str:
        """The id of the last message shown, "" in an empty chat."""
        return self.tree.leaf

    @property
    def path(self) -> list[StoredMessage]:
        return self.tree.path()

    def last(self, role: str) -> StoredMessage | None:
        """The last message of ``role`` in the shown branch."""
        return next((message for message in reversed(self.path) if message.role == role), None)

    def branch(self, message_id: str) -> tuple[int, int]:
        """(index, count) of the message among its versions."""
        siblings = self.tree.siblings(message_id)
        return siblings.index(message_id), len(siblings)

    def prompt(
        self, leaf: str, system: str | None = None, front: Sequence[MessageDocument] | None = None
    ) -> list[ChatMessage]:
        """Messages the model is given to answer ``leaf``: the system prompt, if any, and the branch up to it.

        ``system``: None takes that of the chat. ``front``: documents of the folder before the first message, where
        all chats of the folder have them in common; None takes those that the last question was asked with.
        """
        path = self.tree.path(leaf)
        front = in_front(path) if front is None else front
        first = next((message for message in path if message.role == "user"), None)
        return self.head(system) + [
            _said(message, after is not None and after.role == "tool", front if message is first else ())
            for message, after in zip_longest(path, path[1:])
        ]

    def head(self, system: str | None = None) -> list[ChatMessage]:
        """What stands before all messages; ``system``: None takes that of the chat."""
        system = self.chat.system_prompt if system is None else system
        return [ChatMessage.of("system", system)] if system else []

    def last_prompt(self) -> tuple[list[ChatMessage], Sampling] | None:
        """The prompt of the last answer with the settings and seed it was drawn with; None in an empty chat."""
        answer = self.last("assistant")
        if answer is not None:
            return self.prompt(answer.parent, answer.stats.system), answer.stats.sampling
        return (self.prompt(self.leaf), self.chat.sampling) if self.leaf else None

    def last_thinking(self) -> Thinking:
        """Thinking setting of the last answer; in an empty chat that of the next one."""
        answer = self.last("assistant")
        return answer.stats.thinking if answer is not None else self.chat.thinking

    def last_adapter(self) -> str:
        """The adapter that gave the last answer; in an empty chat the one that will give the next."""
        answer = self.last("assistant")
        return answer.stats.adapter if answer is not None else self.chat.adapter

    def last_tools(self) -> ToolConfig | None:
        """Tools that the last answer could call. Raises LookupError where they are not kept."""
        answer = self.last("assistant")
        if answer is None or not answer.stats.servers:
            return None
        return self._history.tools(self.chat.id, answer.stats.tools)

    def ask(
        self,
        text: str,
        instead_of: str = "",
        pictures: tuple[bytes, ...] = (),
        documents: tuple[MessageDocument, ...] = (),
    ) -> StoredMessage:
        """Append a message of the person, or begin a branch as an alternative to ``instead_of``."""
        parent = self.tree.get(instead_of).parent if instead_of else self.leaf
        with self._history.together():
            if parent and self.tree.get(parent).wants_results:
                parent = self.add_results(parent, []).id
            asked = StoredMessage(new_id(), self.chat.id, parent, "user", text, created=now(), pictures=pictures)
            asked = asked._replace(documents=documents)
            if not self.saved:
                self.chat = self.chat._replace(title=self.first_title(asked), updated=now())
                self._history.save_chat(self.chat)
                if self.folder:
                    self._history.set_folder(self.chat.id, self.folder)
                self.saved = True
            self._history.save_message(asked)
            self.tree.put(asked)
            self.go_to(asked.id)
        self._history.flush()  # a question that stands on the screen is in the file
        return asked

    @staticmethod
    def first_title(message: StoredMessage) -> str:
        """The title of a chat that begins with this message, until it gets another."""
        name = message.documents[0].document.name if message.documents else tr("A picture")
        return title_of(message.content or name)

    def set_uses(self, message_id: str, documents: tuple[MessageDocument, ...]) -> StoredMessage:
        """Keep what of its documents is sent with a message."""
        message = self.tree.get(message_id)._replace(documents=documents)
        self.tree.put(message)
        self._history.save_message(message)
        return message

    def add_results(self, answer: str, results: Sequence[ToolResult]) -> StoredMessage:
        """Append the message with the results of an answer's calls; one without a result was not run.

        It is shown where the shown branch ends with the answer.
        """
        message, given = self.tree.get(answer), {result.id: result for result in results}
        parts = tuple(
            given.get(call.id) or ToolResult(call.id, NOT_RUN, call.name, failed=True) for call in message.calls
        )
        told = StoredMessage(new_id(), self.chat.id, answer, "tool", "", created=now(), parts=parts)
        with self._history.together():
            self._history.save_message(told)
            self.tree.put(told)
            if answer == self.leaf:
                self.go_to(told.id)
        return told

    def rounds(self, leaf: str) -> int:
        """Messages with results since the last message of the person."""
        path = self.tree.path(leaf)
        last = max((place for place, message in enumerate(path) if message.role == "user"), default=-1)
        return sum(message.role == "tool" for message in path[last + 1 :])

    def begin_answer(self, parent: str, asked: AnswerStats) -> StoredMessage:
        """An empty, streaming answer to ``parent``, now the leaf; a seed is drawn unless it is ``asked`` with one.

        The seed is drawn here and not by the engine, so that an interrupted answer can be run again too. A server
        elsewhere draws its own.
        """
        if asked.sampling.seed is None and asked.remote is None:
            sampling = msgspec.structs.replace(asked.sampling, seed=random.getrandbits(31))
            asked = msgspec.structs.replace(asked, sampling=sampling)
        answer = StoredMessage(new_id(), self.chat.id, parent, "assistant", "", "streaming", asked, created=now())
        self.tree.put(answer)
        self.go_to(answer.id)
        return answer

    def write_answer(self, parent: str, text: str, like: AnswerStats, edited: bool = True) -> StoredMessage:
        """Append an answer in the person's words (not ``edited``: as it is), now the leaf.

        It would go on with the settings of ``like``.
        """
        written, model = edited or like.edited, "" if edited else like.model
        asked = msgspec.structs.replace(like.settings, edited=written, model=model)
        answer = StoredMessage(new_id(), self.chat.id, parent, "assistant", text, "complete", asked, created=now())
        with self._history.together():
            self._history.save_message(answer)
            self.tree.put(answer)
            self.go_to(answer.id)
        self._history.flush()
        return answer

    def continue_answer(self, message: StoredMessage, model: str, thinking: Thinking) -> StoredMessage:
        """The shown branch's last answer, which goes on: streaming again, without the figures of what stands there.

        As many tokens may follow as answers of the chat can have now.
        """
        asked, wrote = message.stats, message.stats.model
        stats = msgspec.structs.replace(
            asked.settings,
            sampling=msgspec.structs.replace(asked.sampling, max_tokens=self.chat.sampling.max_tokens),
            thinking=thinking,
            model=model,
            thought_s=asked.thought_s,
            edited=asked.edited,
            continued_at=len(message.thinking) + len(message.content),
            begun_by=wrote if wrote and wrote != model else asked.begun_by,
            beside=asked.beside,
        )
        answer = message._replace(state="streaming", stats=stats)
        self.tree.put(answer)
        self.go_to(answer.id)
        return answer

    def answer_before(self, message_id: str) -> str:
        """The id of the last answer above the message, "" if there is none."""
        above = self.tree.path(self.tree.get(message_id).parent)
        return next((message.id for message in reversed(above) if message.role == "assistant"), "")

    def go_to(self, leaf: str, touch: bool = True) -> None:
        self.tree.leaf = leaf
        self._history.set_leaf(self.chat.id, leaf, touch)

    def switch(self, message_id: str, step: int) -> None:
        """Show the version ``step`` places after this one, with the newest messages below it."""
        siblings = self.tree.siblings(message_id)
        place = max(0, min(siblings.index(message_id) + step, len(siblings) - 1))
        self.go_to(self.tree.newest_leaf(siblings[place]), touch=False)

    def show(self, message_id: str) -> None:
        """Show a branch that goes through the message."""
        if all(message.id != message_id for message in self.path):
            self.go_to(self.tree.newest_leaf(message_id), touch=False)

    def remove(self, message_id: str) -> None:
        """Take away an answer that never came to be (the history has removed it already)."""
        self.tree.remove(message_id)
        self.go_to(self.leaf, touch=False)

    def fresh(self) -> Conversation:
        """A chat without messages that has the settings of this one."""
        other, chat = Conversation(self._history, folder=self.folder), self.chat
        other.set_settings(chat.system_prompt, chat.sampling)
        other.set_thinking(chat.thinking)
        other.set_overflow(chat.overflow)
        other.set_adapter(chat.adapter)
        other.set_servers(chat.servers)
        other.set_remote(chat.remote)
        return other

    def set_settings(self, system_prompt: str, sampling: Sampling) -> None:
        self.chat = self.chat._replace(system_prompt=system_prompt, sampling=sampling)
        if self.saved:
            self._history.set_settings(self.chat.id, system_prompt, sampling)

    def set_thinking(self, thinking: Thinking) -> None:
        self.chat = self.chat._replace(thinking=thinking)
        if self.saved:
            self._history.set_thinking(self.chat.id, thinking)

    def set_overflow(self, overflow: Overflow) -> None:
        self.chat = self.chat._replace(overflow=overflow)
        if self.saved:
            self._history.set_overflow(self.chat.id, overflow)

    def set_adapter(self, adapter: str) -> None:
        self.chat = self.chat._replace(adapter=adapter)
        if self.saved:
            self._history.set_adapter(self.chat.id, adapter)

    def set_servers(self, servers: Sequence[str]) -> None:
        self.chat = self.chat._replace(servers=tuple(servers))
        if self.saved:
            self._history.set_servers(self.chat.id, servers)

    def set_remote(self, remote: RemoteModel | None) -> None:
        self.chat = self.chat._replace(remote=remote)
        if self.saved:
            self._history.set_remote(self.chat.id, remote)

    def set_left_out(self, documents: Sequence[str]) -> None:
        self.chat = self.chat._replace(left_out=tuple(documents))
        if self.saved:
            self._history.set_left_out(self.chat.id, documents)


def _said(message: StoredMessage, called: bool, front: Sequence[MessageDocument]) -> ChatMessage:
    """The message as the model is given it, with what stands in front of it; calls that have no results are none."""
    if message.role == "tool":
        return ChatMessage(role="tool", parts=list(message.parts))
    content = with_documents(message.content, [*front, *(each for each in message.documents if not each.in_front)])
    return ChatMessage.of(message.role, content, message.thinking, message.pictures, message.calls if called else ())


def title_of(text: str) -> str:
    """The first line of the first message, cut at a word."""
    line = " ".join(text.strip().split("\n", 1)[0].split())
    return line if len(line) <= TITLE_CHARS else line[:TITLE_CHARS].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"
