"""Messages about what makes answers as fast as they are: the window's request, and the engine's answer."""

from __future__ import annotations

from typing import Literal

from engine.protocol.base import Message, Part, Value


class Why(Message, tag="why", frozen=True):
    """Request for what makes answers as fast as they are now -> :class:`Reasons`."""

    id: str


class Reason(Part, frozen=True):
    """One thing that makes answers slower, a sentence, and what mends it.

    ``keys`` are switches to set; else ``action`` is a sentence that says what to do, in ``place`` if that is a page of
    the window's. Neither: nothing is to be mended.
    """

    sentence: str
    detail: str = ""
    """Cost of mending it, or how it is known."""
    keys: dict[str, Value] = {}
    action: str = ""
    place: Literal["", "models", "settings"] = ""


class Reasons(Message, tag="reasons", frozen=True):
    """``reasons`` that answers are not faster: those first whose mending is likely to gain most; none where nothing
    stands out."""

    id: str
    reasons: list[Reason]
    limit: str = ""
    """Sentence on what all answers together could reach at most here, by memory alone, and what they reached lately; ""
    while nothing is known."""
    parts: list[str] = []
    """What the speed is made of, a sentence each, from what was measured lately."""
