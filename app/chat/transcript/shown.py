"""Shows in a transcript the branch that a session has on screen, and how its answers grow."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.session.session import ChatSession
from app.chat.transcript.stats import loading_model, reading_prompt
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage
from app.models.state.loads import ModelLoads


class ShownBranch(QObject):
    """Lives as long as ``transcript``. One that is not :attr:`watched` is not kept up to date."""

    def __init__(self, session: ChatSession, loads: ModelLoads, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._session, self._loads, self._transcript = session, loads, transcript
        self._watched = True
        answers = session.answers
        session.opened.connect(self._on_opened)
        session.changed.connect(self._show)
        session.asked.connect(self._on_asked)
        session.updated.connect(self._on_updated)
        answers.grown.connect(self._on_grown)
        answers.waiting.connect(lambda message, done, total: self._wait(message, reading_prompt(done, total)))
        answers.preparing.connect(self._wait)
        loads.changed.connect(self._on_loading)
        transcript.decided.connect(session.decide)

    @property
    def watched(self) -> bool:
        """True if somebody sees the transcript."""
        return self._watched

    def watch(self, on: bool) -> None:
        """Keep the transcript up to date from now on; without it, it is empty."""
        self._watched = on
        if on:
            self._on_opened()
        else:
            self._transcript.show_path([], self._session.talk.branch)

    def _on_opened(self) -> None:
        if self._watched:
            self._transcript.show_path([], self._session.talk.branch)
            self._show()
            self._transcript.scroll_to_end()

    def _on_asked(self) -> None:
        if self._watched:
            self._transcript.scroll_to_end()

    def _show(self) -> None:
        """Show the branch: it, or where it ends, changed."""
        session = self._session
        if self._watched:
            beside, saved = len(session.side_by_side), session.cache_savings
            self._transcript.show_path(session.shown, session.talk.branch, session.queued, session.calls, saved, beside)

    def _on_updated(self, message: StoredMessage) -> None:
        if self._watched:
            self._transcript.update_message(message)

    def _on_grown(self, message_id: str) -> None:
        if self._watched and message_id in self._session.ends:
            self._transcript.stream(message_id, lambda: self._session.snapshot(message_id))

    def _wait(self, message_id: str, words: str) -> None:
        if self._watched:
            self._transcript.wait(message_id, words)

    def _on_loading(self) -> None:
        """An answer that was asked for while the model was unloaded waits for it."""
        loading = self._loads.loading
        for message_id in self._session.ends if self._session.streaming else ():
            self._wait(message_id, loading_model(loading) if loading is not None else "")
