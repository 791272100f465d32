"""A second chat with all that a chat has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from app.history.records import StoredMessage, new_id, now
from app.history.store import HistoryStore
from app.language import tr


def duplicate(history: HistoryStore, chat_id: str) -> str:
    """Copy a chat, its whole tree and its place in the list; the copy's id, "" where the chat is gone.

    An answer that is being written is copied as far as it goes, as interrupted.
    """
    chat = history.chat(chat_id)
    listed = next((one for one in history.listed() if one.id == chat_id), None)
    if chat is None or listed is None:
        return ""
    messages = [
        message._replace(state="interrupted") if message.state == "streaming" else message
        for message in history.messages(chat_id)
    ]
    copy, ids = new_id(), {message.id: new_id() for message in messages}
    with history.together():
        history.save_chat(
            chat._replace(
                id=copy, title=tr("{title} (copy)", title=chat.title), updated=now(), leaf=ids.get(chat.leaf, "")
            )
        )
        for digest in {message.stats.tools for message in messages} - {""}:
            with contextlib.suppress(LookupError):
                history.save_tools(copy, history.tools(chat_id, digest))
        for message in renumbered(messages, copy, ids):
            history.save_message(message)
        history.set_folder(copy, listed.folder)
        history.set_tags(copy, listed.tags)
    return copy


def renumbered(messages: Iterable[StoredMessage], chat: str, ids: dict[str, str]) -> Iterable[StoredMessage]:
    """The messages as those of ``chat``, under the ``ids`` that are given for theirs."""
    for message in messages:
        stats = message.stats
        if stats.repeat is not None:
            again = msgspec.structs.replace(stats.repeat, of=ids.get(stats.repeat.of, stats.repeat.of))
            stats = msgspec.structs.replace(stats, repeat=again)
        yield message._replace(
            id=ids[message.id], chat=chat, parent=ids.get(message.parent, message.parent), stats=stats
        )
