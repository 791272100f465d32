"""What can go wrong with a checkpoint, said to a person: one sentence what happened, one what to do."""

from __future__ import annotations

import unicodedata

_MOST = 1000


class CheckpointError(Exception):
    """The checkpoint cannot be used; the message says why and what to do.

    What it quotes of a hostile file is made fit to be shown: not endless, and of characters that can be sent.
    """

    def __init__(self, text: str) -> None:
        shown = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
        super().__init__(shown if len(shown) <= _MOST else f"{shown[: _MOST // 2]} … {shown[-_MOST // 2 :]}")


class LoadCancelled(Exception):  # noqa: N818 - the user asked for it, it is no error
    """The load was cancelled; nothing of it is kept."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that the device or the host had no memory left."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text or "not enough memory" in text)
    )
