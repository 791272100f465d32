"""Conversations with pictures, and the host that is asked in them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cache.offload.saved import SavedChats
from engine.loop.commands import AddRequest
from engine.protocol import ChatMessage, Sampling, Value
from engine.services.answers.pictures import PromptImages
from engine.services.answers.request import PromptTokens
from engine.text.prompt import rendered
from tests.conformance.seeing_models import photo, user
from tests.kit.hosts import Host

COUNT = 14
GREEDY = Sampling(temperature=0.0, max_tokens=COUNT, ignore_eos=True)
FIRST, SECOND = photo(100, 80), photo(61, 109)
QUESTION = "describe this picture"
SEEN = [user(QUESTION, FIRST), ChatMessage.of("assistant", "it is grey")]
CHATS: dict[str, list[ChatMessage]] = {
    "one": [user(QUESTION, FIRST)],
    "other": [user(QUESTION, SECOND)],
    "two at once": [user("compare these", SECOND, FIRST)],
    "later": [*SEEN, user("and this one?", SECOND)],
    "no longer": [*SEEN, user("what did it look like? " * 3)],
    "none": [user(QUESTION)],
}


class Seeing(Host):
    """A host that is asked in messages."""

    def __init__(self, folder: Path, saved: SavedChats | None = None) -> None:
        super().__init__(folder, saved=saved)
        assert self.engine.loaded is not None
        assert self.engine.loaded.card.pictures, self.engine.loaded.card.notices

    def tokens(self, chat: Sequence[ChatMessage]) -> PromptTokens:
        loaded = self.engine.loaded
        assert loaded is not None
        assert loaded.files is not None
        shown = PromptImages(loaded, chat)
        text = shown.around(rendered(loaded.files.template, chat))
        return shown.within(loaded.files.tokenizer.encode(text.text, special=text.special))

    def say(self, chats: Sequence[Sequence[ChatMessage]], n: int = 1, chat: str = "", **switches: Value) -> list[str]:
        ids = [f"{len(self.answers)}.{number}" for number in range(len(chats))]
        for id, messages in zip(ids, chats, strict=True):
            prompt = self.tokens(messages)
            self.engine.submit(AddRequest(id, prompt.ids, GREEDY, n, switches, chat=chat, pictures=prompt.pictures))
        return ids

    def reply(self, chat: Sequence[ChatMessage], budget: int = 512, **switches: Value) -> list[int]:
        ids = self.say([chat], **switches)
        self.run(budget)
        return self.of(ids)[0]


def link(file: bytes, kind: str = "jpeg") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"


def shows(text: str, *urls: str) -> Any:
    parts: list[Any] = [{"type": "text", "text": text}]
    return {"role": "user", "content": parts + [{"type": "image_url", "image_url": {"url": url}} for url in urls]}
