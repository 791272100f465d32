"""What the next question of the chat on screen would be asked with, for those who count it before it is asked."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.session.conversation import Conversation
from app.chat.session.folder import ChatFolder
from app.documents.records import MessageDocument
from app.history.records import Draft
from app.history.sent import in_front
from engine.protocol import ChatMessage


class NextQuestion:
    """``talk`` returns the chat on screen, ``folder`` is its folder."""

    def __init__(self, talk: Callable[[], Conversation], folder: ChatFolder) -> None:
        self._talk, self._folder = talk, folder

    def writes_answer(self, draft: Draft) -> bool:
        """True if the draft is the text of an answer, and no message to be answered."""
        tree = self._talk().tree
        return bool(draft.begins) or (draft.edited in tree and tree.get(draft.edited).role == "assistant")

    def prompt(self, draft: Draft) -> list[ChatMessage]:
        """Messages that would be sent now, with ``draft`` in the composer but for its documents, and of those of the
        folder with what :meth:`stays_in_front`."""
        talk = self._talk()
        edited = talk.tree.get(draft.edited) if draft.edited else None
        parent = draft.begins or (edited.parent if edited is not None else talk.leaf)
        some = draft.text.strip() or draft.pictures
        if self.writes_answer(draft):
            asked = [ChatMessage.of("assistant", draft.text)] if some else []
        else:
            asked = [ChatMessage.of("user", draft.text, pictures=list(draft.pictures))] if some else []
        return talk.prompt(parent, front=self.stays_in_front(draft)) + asked

    def stays_in_front(self, draft: Draft) -> list[MessageDocument]:
        """Documents of the folder that the question before ``draft`` had whole, and that it will be asked with, too."""
        talk = self._talk()
        begins, edited = (each if each in talk.tree else "" for each in (draft.begins, draft.edited))
        if self.writes_answer(draft):  # no question: all stays
            return list(in_front(talk.tree.path(begins or edited)))
        parent = talk.tree.get(edited).parent if edited else talk.leaf
        next_ones = {each.document.digest for each in self._folder.used}
        return [each for each in in_front(talk.tree.path(parent)) if each.document.digest in next_ones]
