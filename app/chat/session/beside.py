"""Answers side by side in the chat on screen: begun together, renewed, and left for one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from app.chat.session.answers import Answers
from app.chat.session.asker import Asker
from app.chat.session.conversation import Conversation
from app.chat.side_by_side.columns import AnswerColumn, standing
from app.history.records import Beside, StoredMessage, new_id
from app.history.store import HistoryStore


class AnswersBeside:
    """``talk`` returns the chat on screen."""

    def __init__(self, history: HistoryStore, answers: Answers, asker: Asker, talk: Callable[[], Conversation]) -> None:
        self._history, self._answers, self._asker, self._talk = history, answers, asker, talk

    @property
    def standing(self) -> list[StoredMessage]:
        """Those at the end of the branch, as none was chosen yet; usually none."""
        return standing(self._talk().tree)

    @property
    def ends(self) -> list[str]:
        """The ids of the last messages on screen."""
        return [message.id for message in self.standing] or [self._talk().leaf]

    def begin(self, parent: str, columns: Sequence[AnswerColumn]) -> None:
        """Ask for one answer to ``parent`` in each column, all at once."""
        group = new_id()
        for place, column in enumerate(columns):
            self._ask(parent, column, Beside(group, place, column.heading))
        self._show_first()

    def renew(self, messages: Sequence[StoredMessage]) -> None:
        """Put another answer, with a new seed, into the columns of these; they stay as versions."""
        for message in messages:
            stats = message.stats
            assert stats.beside is not None
            self._settle(message, None)
            sampling = msgspec.structs.replace(stats.sampling, seed=None)
            self._ask(
                message.parent, AnswerColumn(stats.beside.heading, sampling, stats.system, stats.remote), stats.beside
            )
        self._show_first()

    def choose(self, message_id: str) -> None:
        """Go on from one of them; the others stay as versions, and are written no further."""
        with self._history.together():
            for message in self.standing:
                assert message.stats.beside is not None
                self._settle(message, msgspec.structs.replace(message.stats.beside, chosen=True))
                if message.id != message_id:
                    self._answers.stop(message.id)
            self._talk().go_to(message_id)

    def _ask(self, parent: str, column: AnswerColumn, beside: Beside) -> None:
        """No tools: an answer with calls would go on below itself, and not in its column."""
        talk = self._talk()
        like = msgspec.structs.replace(
            talk.chat.settings,
            sampling=column.sampling,
            servers=[],
            remote=column.remote,
            system=column.system,
            beside=beside,
        )
        self._asker.ask(talk, parent, like)

    def _show_first(self) -> None:
        """Make the first of them the end of the branch."""
        self._talk().go_to(self.ends[0])

    def _settle(self, message: StoredMessage, beside: Beside | None) -> None:
        """Keep another column of an answer, running or not, None for no column at all."""
        tree = self._talk().tree
        if self._answers.running(message.id):
            self._answers.note(message.id, beside=beside)
            tree.put(self._answers.current(message))
        else:
            message = message._replace(stats=msgspec.structs.replace(message.stats, beside=beside))
            self._history.save_message(message)
            tree.put(message)
