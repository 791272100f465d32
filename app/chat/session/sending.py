"""Routing of what the person sends: it is asked, it waits for the model, or it stays in the composer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal

from app.chat.composer import READING, Composer
from app.chat.message_edit import MOST_CHARS
from app.chat.news import News
from app.chat.session.continuing import elsewhere
from app.chat.session.queued import WAITS, WAITS_FOR_LAB, QueuedBar
from app.chat.session.session import ChatSession
from app.chat.side_by_side.columns import AnswerColumn
from app.chat.welcome import CHOOSE
from app.documents.records import MessageDocument
from app.history.records import Draft
from app.language import tr
from app.link.link import EngineLink, LinkState
from app.models.state.loads import ModelLoads
from engine import protocol

UNDECIDED = tr("Press “Use this one” under the answer that the chat is to go on from; your text stays here.")


class Sending(QObject):
    """``waits`` shows while a question waits; ``changed`` tells that :attr:`reason` may be another."""

    changed = Signal()

    def __init__(
        self,
        link: EngineLink,
        session: ChatSession,
        loads: ModelLoads,
        composer: Composer,
        waits: QueuedBar,
        news: News,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._session, self._loads = link, session, loads
        self._composer, self.waits, self._news = composer, waits, news
        self.guard: Callable[[Callable[[], object], Callable[[], object] | None], object] = lambda ask, _: ask()
        """Calls the first of two where nothing is measured, else the one that the person chooses: ask now, or wait."""
        self.measures: Callable[[], bool] = bool
        """Returns True while something is measured that an answer would spoil."""
        self._said: tuple[str, Callable[[], bool]] = "", bool
        """Sentence that was said of the present state last, and a test that it still holds."""
        self._held = False
        """True if what waits does so for the end of a measurement."""
        composer.sent.connect(self.send)
        composer.written.connect(self.write)
        composer.stopped.connect(session.stop)
        composer.refused.connect(news.complain)
        waits.edit_asked.connect(lambda: self.take_back(True))
        waits.cancelled.connect(lambda: self.take_back(False))
        for signal in (session.opened, session.changed, link.welcomed, link.loaded, link.unloaded, link.state_changed):
            signal.connect(self.refresh)
        session.settings_changed.connect(self.refresh)
        loads.changed.connect(self.refresh)
        composer.documents.changed.connect(self.refresh)
        link.withheld.connect(self._send_queued)
        link.failed.connect(self._on_failed)

    @property
    def reason(self) -> str:
        """Reason nothing can be asked now; "" when something can."""
        return self.reason_for(self._session.talk.chat.remote is not None)

    def reason_for(self, far: bool) -> str:
        """The same for a question to this computer's model, or to one ``far`` from here, on another server."""
        if self._session.queued:
            return tr("One question waits already")
        return self._unready_engine if far else self._unready

    @property
    def queues(self) -> bool:
        """True if what is sent now waits for the model."""
        return self._starting and not self._session.queued and self._session.talk.chat.remote is None

    @property
    def _starting(self) -> bool:
        """True if the engine or its model will soon be there."""
        return self._link.state in (LinkState.STARTING, LinkState.RESTARTING) or self._loads.loading is not None

    @property
    def _unready_engine(self) -> str:
        """Reason the engine can be asked nothing now."""
        state = self._link.state
        if state is LinkState.DEAD:
            return tr("The engine is not running")
        return tr("The engine is starting") if state is not LinkState.CONNECTED else ""

    @property
    def _unready(self) -> str:
        """Reason this computer's model can be asked nothing now."""
        if reason := self._unready_engine:
            return reason
        if self._loads.loading is not None:
            return tr("The model is loading")
        return "" if self._link.card is not None else CHOOSE

    def send(self, text: str) -> None:
        """Append the person's message and ask for the answer; one that no model could read stays in the composer."""
        if not self._follows(text, not self._composer.editing):
            return
        if self.reason:
            self._send(text, False)
        else:
            self.guard(lambda: self._send(self._typed(text), not self.reason), lambda: self._hold(self._typed(text)))

    def apart(self, fresh: bool) -> tuple[str, bool]:
        """:attr:`reason` and :attr:`queues` for the chat on screen, or for a ``fresh`` one, which has this computer's
        model and in which nothing waits."""
        return (self._unready, self._starting) if fresh else (self.reason, self.queues)

    def send_apart(self, text: str, fresh: bool) -> bool:
        """Send a text that was written elsewhere, with ``fresh`` in a new chat; what the composer holds stays there.

        While something is measured it waits for the end of that. Returns False where it cannot be sent, which is said.
        """
        session, (reason, queues) = self._session, self.apart(fresh)
        if not self._follows(text, not fresh):
            return False
        if reason and not queues:
            self.say_while(f"{reason}.", lambda: self.apart(fresh)[0] == reason)
            return False
        self._news.dismiss()
        if fresh:
            session.new_apart()
        held = self.measures()
        if held:
            self._begin_hold()
        session.send(text, ready=not (reason or held))
        return True

    def send_several(self, columns: Sequence[AnswerColumn]) -> None:
        """Append the person's message and ask for an answer to it in each column."""
        text = self._composer.text.strip("\n")
        if self._fits(text) and (draft := self._take()) is not None:
            self._session.ask_several(text, columns, draft.edited, draft.pictures, _documents(draft))

    def write(self, draft: Draft, go_on: bool) -> None:
        """Keep an answer in the person's words; with ``go_on`` the model goes on from it."""
        if not self._fits(draft.text):
            return
        if go_on and self.reason:
            self.say_reason()
            return
        if go_on and (remote := self._session.writing_for(draft)) is not None:
            self._news.say(elsewhere(remote))
            return
        self._composer.clear()
        self._news.dismiss()
        if go_on:  # a model begins its next word with the space
            draft = draft._replace(text=draft.text.rstrip(" "))
        written = self._session.write_answer(draft, go_on)
        if go_on and written is not None:
            self.guard(lambda: self._session.go_on(written), None)

    def _follows(self, text: str, to_end: bool) -> bool:
        """True if the text can be sent, ``to_end`` of what is on screen; else it is said why not."""
        if not self._fits(text):
            return False
        if to_end and self._session.side_by_side:
            self.say_while(UNDECIDED, lambda: bool(self._session.side_by_side))
            return False
        return True

    def _fits(self, text: str) -> bool:
        if len(text) <= MOST_CHARS:
            return True
        words = tr(
            "The message has {chars:,} characters and {most:,} are the most. Send a part of it.",
            chars=len(text),
            most=MOST_CHARS,
        )
        self._news.complain(words)
        return False

    def say_reason(self) -> None:
        """Say why nothing can be asked now, until something can."""
        reason = self.reason
        self.say_while(f"{reason}.", lambda: self.reason == reason)

    def say_while(self, sentence: str, holds: Callable[[], bool]) -> None:
        """Say something that is over when ``holds`` is false."""
        self._said = sentence, holds
        self._news.say(sentence)

    def release(self) -> None:
        """Nothing is measured any more: ask what waited for that."""
        if self._held:
            self._held = False
            self.waits.say(WAITS)
            self._send_queued()

    def _typed(self, text: str) -> str:
        """Text in the composer by now, which began with ``text``; if it is empty, ``text``, which was only offered."""
        return self._composer.text.strip("\n") or text

    def _hold(self, text: str) -> None:
        self._begin_hold()
        self._send(text, False)

    def _begin_hold(self) -> None:
        """What is sent next waits for the end of a measurement."""
        self._held = True
        self.waits.say(WAITS_FOR_LAB)

    def _send(self, text: str, ready: bool) -> None:
        if (draft := self._take()) is not None:
            self._session.send(text, draft.edited, ready, draft.pictures, _documents(draft))

    def _take(self) -> Draft | None:
        """What stands in the composer is taken out of it; None while a document of it is being read."""
        draft = self._composer.draft
        if self._composer.documents.reading:
            self.say_while(READING, lambda: self._composer.documents.reading)
            return None
        self._composer.clear()
        self._news.dismiss()
        return draft

    def ask(self, question: str) -> None:
        """A question that was offered; what is in the composer already stays there."""
        if self.reason and not self.queues:
            self.say_reason()
        elif self._composer.text or self._composer.draft.pictures or self._composer.draft.documents:
            self._news.say(tr("Send what you wrote first, or delete it."))
        else:
            self.send(question)
        self._composer.setFocus()

    def take_back(self, edit: bool) -> None:
        """The question that waits: back into the composer, below what was typed meanwhile, or away."""
        typed = self._composer.text
        taken = self._session.take_back()  # if it was the first, this is a new chat, with what was typed for one
        draft = self._composer.draft
        parts = dict.fromkeys((typed, draft.text, taken.text if edit else ""))
        words = "\n".join(part for part in parts if part)
        pictures = (*draft.pictures, *(taken.pictures if edit else ()))
        documents = (*draft.documents, *(taken.documents if edit else ()))
        taken = Draft(words, taken.edited if edit else draft.edited, draft.before, pictures, documents)
        if taken != draft._replace(edited=taken.edited):
            self._composer.show_draft(taken)
        self._composer.setFocus()

    def refresh(self, *_: object) -> None:
        """Show what can be sent now, or why nothing can."""
        sentence, holds = self._said
        if sentence and not holds():
            self._said = "", bool
            self._news.forget(sentence)
        self._composer.set_streaming(self._session.streaming)
        self.waits.setVisible(bool(self._session.queued))
        self._composer.set_reason(self.reason, self.queues)
        self.changed.emit()

    def _send_queued(self, *_: object) -> None:
        if self._link.card is not None and self._loads.loading is None and not self._held:
            self._session.send_queued()

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self._send_queued()  # a load that failed may leave another model
        self.refresh()


def _documents(draft: Draft) -> tuple[MessageDocument, ...]:
    return tuple(MessageDocument(each.document) for each in draft.documents if each.document is not None)
