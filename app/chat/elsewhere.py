"""Words about a model that answers from another server."""

from __future__ import annotations

from engine.protocol import RemoteModel


def reason(remote: RemoteModel | None) -> str:
    """Why a part of the window shows nothing of these answers, as a sentence; "" for a model of this machine."""
    if remote is None:
        return ""
    return f"This model runs on another server ({remote.server}): Kvasir sees only its text and its counts of tokens."
