"""Cutting the tokens of a text that is too long."""

from __future__ import annotations

from typing import Literal

from engine.text.tokenizer import Tokenizer

Side = Literal["left", "right"]


def cut_ids(tokenizer: Tokenizer, text: str | None, ids: list[int], most: int, side: Side = "right") -> list[int]:
    """``most`` of the ``ids`` of a text, cut on that side; what the tokenizer puts around a text stays around it. None
    for a ``text`` that came as ids, around which there is nothing."""
    before = after = 0
    if text is not None:
        bare = tokenizer.encode(text, special=False)
        around = len(ids) - len(bare)
        before = next((place for place in range(around) if ids[place] == bare[0]), around)
        after = around - before
    if side == "right":
        return ids[: most - after] + ids[len(ids) - after :]
    return ids[:before] + ids[len(ids) - most + before :]
