"""What of a message's documents is sent, decided when it is asked: all of those that fit, passages of the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Signal

from app.chat.session.conversation import Conversation
from app.chat.session.tokens import DocumentTokens
from app.command import End, LineCommand
from app.documents import child
from app.documents.meaning import PassageEmbeddings, Preparation, Prepared
from app.documents.plan import (
    LEAST_ROOM,
    UNKNOWN_CONTEXT,
    DocumentPlan,
    answer_room,
    estimated,
    estimated_prompt,
    planned,
)
from app.documents.records import Document, DocumentPassage, DocumentUse, FoundPassages, MessageDocument, PassageSearch
from app.history.records import StoredMessage
from app.language import tr
from app.link.link import EngineLink, LinkState
from engine import protocol
from engine.protocol import ChatMessage

SPREAD = tr("No word of the question stands in it, so its beginning and passages from all over it were sent.")
NO_ROOM = tr("The context has no room left for any passage of it.")
FAILED = tr("Its passages could not be searched, so its beginning was sent. ({reason})")
FOLDER_SHARE = 1 / 3
"""Share of the room that is left which passages of a folder's documents take at most: each later question of the chat
brings its own."""
ONE_PASSAGE = 300
"""Tokens that they are given all the same, if there is room for them at all: less would be no passage."""
BY_WORDS = tr("Its passages were searched by words alone. ({reason})")
_ID = "settle-"
_numbers = itertools.count(1)


class Settling(QObject):
    """Decides for every message up to ``leaf`` for which that was not done, the first one first; then :meth:`start`
    calls what it was given."""

    told = Signal(str)
    """What it is busy with."""
    kept = Signal(object)
    """A message whose documents are decided, as the history has it now."""
    ended = Signal()
    """All is decided, or it was cancelled."""

    def __init__(
        self,
        link: EngineLink,
        tokens: DocumentTokens,
        meaning: PassageEmbeddings,
        talk: Conversation,
        leaf: str,
        tools: protocol.ToolConfig | None,
        parent: QObject,
        after: Settling | None = None,
    ) -> None:
        """``after``: one that decides for the same messages and has not ended, which is waited for."""
        super().__init__(parent)
        self.chat, self._after = talk.chat.id, after
        self._link, self._tokens, self._talk, self._leaf, self._tools = link, tokens, talk, leaf, tools
        self._meaning = meaning
        self._documents: list[Document] = []
        self._counts: dict[str, int] = {}
        """By the ids they are asked under, tokens of the prompt without the documents, of what is kept of it where
        earlier messages make room, of the question alone, and of what stands before all messages."""
        self._base = self._kept = self._question = self._head = ""
        self._folder_room = 0
        """Tokens for the passages of each of the folder's documents that is not sent whole."""
        self._uses: list[DocumentUse] = []
        self._plan: DocumentPlan | None = None
        self._preparing: Preparation | None = None
        self._run: LineCommand | None = None
        self._then: Callable[[], object] = lambda: None
        self._over = False

    @property
    def over(self) -> bool:
        return self._over

    def start(self, then: Callable[[], object]) -> None:
        self._then = then
        if self._after is not None and not self._after.over:
            self._after.ended.connect(self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        if self._over:
            return
        self._link.counted.connect(self._on_counted)
        self._link.failed.connect(self._on_failed)
        self._tokens.changed.connect(self._look)
        self._next()

    def _next(self) -> None:
        message = first_undecided(self._talk, self._leaf)
        if message is None:
            self._over = True
            self._then()
            self.ended.emit()
            self.deleteLater()
            return
        self._message, self._documents = message, [each.document for each in message.documents]
        self._uses, self._plan, self._counts = [], None, {}
        self._base, self._kept, self._question, self._head = (f"{_ID}{next(_numbers)}" for _ in range(4))
        self._count()

    def _count(self) -> None:
        link, message, talk = self._link, self._message, self._talk
        asked = ChatMessage.of("user", message.content or " ", pictures=message.pictures)
        prompt = [*talk.prompt(message.parent, front=()), asked]
        kept = [*talk.prompt(self._lasting(), front=()), asked]
        card = link.card if talk.chat.remote is None else None
        if card is None or link.idle or link.state is not LinkState.CONNECTED:  # nobody counts, so it is estimated
            said = estimated_prompt(kept)
            context = card.context if card is not None else UNKNOWN_CONTEXT
            self._decide(context, said, said, 0, [estimated(document) for document in self._documents])
            return
        counts = [(self._base, prompt), (self._kept, kept)]
        if any(each.folder for each in message.documents):
            counts.append((self._head, [*talk.head(), ChatMessage.of("user", " ")]))
        else:
            self._counts[self._head] = 0
        for number, counted in counts:
            link.send(protocol.CountTokens(id=number, prompt=counted, tools=self._tools))
        link.send(protocol.CountTokens(id=self._question, prompt=message.content))
        self._look()

    def _lasting(self) -> str:
        """The id of the last earlier message that surely stays in the prompt: all, unless they make room when the
        context is full, in which case the first does."""
        message, talk = self._message, self._talk
        if talk.chat.overflow == "stop":
            return message.parent
        return next((each.id for each in talk.tree.path(message.parent)), "")

    def cancel(self) -> None:
        """Decide nothing, and say nothing more."""
        self._over = True
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None
        if self._run is not None:
            self._run.drop()
            self._run = None
        self.ended.emit()
        self.deleteLater()

    def _on_counted(self, message: protocol.Counted) -> None:
        if message.id in (self._base, self._kept, self._question, self._head):
            self._counts[message.id] = message.tokens
            self._look()

    def _on_failed(self, error: protocol.Error) -> None:
        """What the engine does not count, it refuses when it is asked: that says why."""
        if error.id in (self._base, self._kept, self._question, self._head):
            self._counts[error.id] = 0
            self._look()

    def _look(self) -> None:
        """Decide once every count is there."""
        if self._over or self._plan is not None or len(self._counts) < 4:
            return
        card = self._link.card
        if card is None:  # it went meanwhile, which the engine says when it is asked
            self._decide(UNKNOWN_CONTEXT, 0, 0, 0, [estimated(document) for document in self._documents])
            return
        counts = [self._tokens.of(document) for document in self._documents]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts):
            before = self._counts[self._base] - self._counts[self._question]
            self._decide(card.context, self._counts[self._kept], before, self._counts[self._head], known)

    def _decide(self, context: int, base: int, before: int, head: int, counts: Sequence[int]) -> None:
        """``before``: tokens before the message; ``head``: before all messages, where whole ones of a folder stand."""
        plan = self._plan = planned(context, base, counts)
        parts = list(zip(self._message.documents, counts, plan.whole, strict=True))
        before += sum(count for each, count, whole in parts if each.folder and whole)
        left = context - base - sum(count for _, count, whole in parts if whole)
        self._folder_room = folder_room(plan, left, context, sum(each.folder and not whole for each, _, whole in parts))
        for place, (each, count, whole) in enumerate(parts):
            passages = None if whole else list[DocumentPassage]()
            in_front = each.folder and whole
            self._uses.append(DocumentUse(passages, tokens=count, before=head if in_front else before))
            if in_front:
                head += count
            else:
                before += count if whole else self._room(place)
        self._search(0)

    def _room(self, place: int) -> int:
        """Tokens for the passages of a document that is not sent whole."""
        assert self._plan is not None
        return self._folder_room if self._message.documents[place].folder else self._plan.passages

    def _search(self, place: int) -> None:
        """Search the documents that are not sent whole from this one on, one after the other."""
        assert self._plan is not None
        while place < len(self._uses) and self._plan.whole[place]:
            place += 1
        if place == len(self._uses):
            self._finish()
            return
        document, use = self._documents[place], self._uses[place]
        if self._room(place) < LEAST_ROOM:
            self._uses[place] = msgspec.structs.replace(use, note=NO_ROOM)
            self._search(place + 1)
            return
        self.told.emit(tr("searching {name}", name=document.name))
        chars = max(1, self._room(place) * len(document.text) // max(1, use.tokens))
        self._preparing = self._meaning.prepare(
            document,
            self._message.content,
            lambda done, count: self._tell_read(document, done, count),
            lambda prepared: self._rank(place, chars, prepared),
            self,
        )
        if self._preparing is None:
            self._rank(place, chars, Prepared())

    def _tell_read(self, document: Document, done: int, count: int) -> None:
        words = tr(
            "reading {name} by meaning, {done:,} of {count:,} passages", name=document.name, done=done, count=count
        )
        self.told.emit(words)

    def _rank(self, place: int, chars: int, prepared: Prepared) -> None:
        """Search a document, by the embeddings that are ``prepared`` too."""
        self._preparing = None
        if self._over:
            return
        text, question = self._documents[place].text, self._message.content
        given = msgspec.json.encode(PassageSearch(text, question, chars, prepared.path, [*prepared.question]))
        found: list[FoundPassages] = []
        run = self._run = LineCommand(
            child.command(),
            ["search"],
            lambda line: msgspec.json.decode(line, type=FoundPassages),
            tr("The search"),
            self,
            given,
        )
        run.heard(found.append, lambda end: self._take(place, chars, prepared, found, end))

    def _take(self, place: int, chars: int, prepared: Prepared, found: list[FoundPassages], end: End) -> None:
        self._run = None
        if self._over:
            return
        text, reason, model = self._documents[place].text, prepared.reason, prepared.model
        if found:
            passages, of = found[0].passages, found[0].of
            if found[0].unused:
                self._meaning.kept.drop(Path(prepared.path))
                reason, model = found[0].unused, ""
            note = "" if found[0].matched or model else SPREAD
            note = note if passages else NO_ROOM
            if reason:
                note = " ".join(filter(None, (note, BY_WORDS.format(reason=reason))))
        else:
            passages, of, note = [DocumentPassage(1, 0, min(chars, len(text)))], 0, FAILED.format(reason=end.sentence)
            model = ""
        before = sum(len(use.passages or ()) for use in self._uses[:place])
        passages = [msgspec.structs.replace(each, number=each.number + before) for each in passages]
        use = msgspec.structs.replace(self._uses[place], passages=passages, of=of, note=note, model=model)
        self._uses[place] = use
        self._search(place + 1)

    def _finish(self) -> None:
        parts = zip(self._message.documents, self._uses, strict=True)
        documents = tuple(each._replace(use=use) for each, use in parts)
        self.kept.emit(self._talk.set_uses(self._message.id, documents))
        self._next()


def first_undecided(talk: Conversation, leaf: str) -> StoredMessage | None:
    """The first message up to ``leaf`` that has a document of which it is not decided what is sent."""
    return next((each for each in talk.tree.path(leaf) if any(part.use is None for part in each.documents)), None)


def folder_room(plan: DocumentPlan, left: int, context: int, others: int) -> int:
    """Tokens for the passages of each of ``others`` documents of a folder; ``left`` are those of the context."""
    share = FOLDER_SHARE * max(0, left - answer_room(context))
    return min(plan.passages, max(ONE_PASSAGE, int(share) // max(1, others)))


def answers_with(document: MessageDocument, after: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The answers among the messages ``after`` its own that were given with the document: all, but for one in front
    those up to the question that was asked without it, or with it elsewhere."""
    if document.in_front:
        out = (at for at, each in enumerate(after) if each.role == "user" and document not in each.documents)
        after = after[: next(out, len(after))]
    return [each for each in after if each.role == "assistant"]


def came_from_cache(use: DocumentUse | None, answers: Sequence[StoredMessage]) -> str:
    """What the cache saved of reading a document that was sent whole, in the answers after its message; "" where there
    is nothing to say."""
    if use is None or use.passages is not None or not use.tokens:
        return ""
    usages = [answer.stats.usage for answer in answers if answer.stats.remote is None]
    shares = [min(use.tokens, max(0, usage.cached_tokens - use.before)) for usage in usages if usage is not None]
    if not shares:
        return ""
    saved, times = sum(shares), sum(map(bool, shares))
    if not saved:
        return read_whole(use)
    if times == 1:
        return tr("Read once, kept: {saved:,} of {tokens:,} tokens came from the cache", saved=saved, tokens=use.tokens)
    return tr("Read once, kept: {saved:,} tokens came from the cache in {times:,} answers", saved=saved, times=times)


def read_whole(use: DocumentUse) -> str:
    """Words on a document of which nothing came from the cache."""
    return tr("{tokens:,} tokens read by the model", tokens=use.tokens)
