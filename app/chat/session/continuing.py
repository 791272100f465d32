"""Answers that can go on where their text ends, and the reason one cannot."""

from __future__ import annotations

from app.history.records import StoredMessage
from app.language import tr
from engine.protocol import RemoteModel

NOTHING = tr("There is no text to go on from. Regenerate asks again.")


def declined(message: StoredMessage) -> str:
    """The reason an answer cannot go on, as a sentence; "" if it can."""
    if message.stats.remote is not None:
        return elsewhere(message.stats.remote)
    return "" if message.content.strip() or message.thinking else NOTHING


def elsewhere(remote: RemoteModel) -> str:
    """Why an answer of another server's model cannot go on."""
    return tr(
        "An answer of {model} cannot go on: {server} may begin a new one instead. Choose a model of this computer to "
        "continue.",
        model=remote.model,
        server=remote.server,
    )
