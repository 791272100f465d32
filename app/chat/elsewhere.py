"""Words about a model that answers from another server."""

from __future__ import annotations

from app.language import tr
from engine.protocol import RemoteModel


def reason(remote: RemoteModel | None) -> str:
    """Why a part of the window shows nothing of these answers, as a sentence; "" for a model of this machine."""
    if remote is None:
        return ""
    return tr(
        "This model runs on another server ({server}): Kvasir sees only its text and its counts of tokens.",
        server=remote.server,
    )
