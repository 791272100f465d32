"""Answers that can go on where their text ends, and the reason one cannot."""

from __future__ import annotations

from app.history.records import StoredMessage
from engine.protocol import RemoteModel

NOTHING = "There is no text to go on from. Regenerate asks again."


def declined(message: StoredMessage) -> str:
    """The reason an answer cannot go on, as a sentence; "" if it can."""
    if message.stats.remote is not None:
        return elsewhere(message.stats.remote)
    return "" if message.content.strip() or message.thinking else NOTHING


def elsewhere(remote: RemoteModel) -> str:
    """Why an answer of another server's model cannot go on."""
    return (
        f"An answer of {remote.model} cannot go on: {remote.server} may begin a new one instead. "
        "Choose a model of this computer to continue."
    )
