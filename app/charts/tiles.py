"""Tiles of the page map: a cell's look by state and owner, as a square of palette indices."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from app.charts.hues import HUES, NO_OWNER
from app.charts.page_states import FILLS, RESERVED
from app.theme.theme import Theme, mix
from engine.protocol import PAGE_STATES

BLANK = (RESERVED + FILLS) * (HUES + 1)
"""The code of a cell that is no page."""
_GROUND, _FREE, _FAINT, _SHARED, _FIRST = range(5)
_SOFT, _SOFT_EDGED = 0.42, 0.75
_LINE, _LINE_EDGED = 1.0, 0.63
"""Shares of their colours in a soft cell and in a free one, and in high contrast."""
_OPAQUE = 0xFF << 24


def code(states: np.ndarray | int, hues: np.ndarray | int) -> np.ndarray:
    """The index into :func:`tiles` of cells in these states, of owners with these hues; uint8."""
    return np.asarray(states, dtype=np.uint8) * np.uint8(HUES + 1) + np.asarray(hues, dtype=np.uint8)


def empty_color(theme: Theme) -> str:
    """Colour of a page that holds nothing: one that was evicted, or that is only reserved."""
    return theme.shade("mute", 0.45, "raised")


def free_color(theme: Theme, ground: str = "panel") -> str:
    """Colour of a page that nothing was written to: a hairline's, which in high contrast is told from other pages by
    being darker than they are, and yet has three times the luminance of the ground."""
    return theme.tint("line", _LINE_EDGED if theme.edged else _LINE, ground)


def palette(theme: Theme, ground: str = "panel") -> list[int]:
    """The colours that tiles name, as QRgb: a hue is followed by its soft version."""
    t = theme.tokens
    under = getattr(t, ground)
    found = [under, free_color(theme, ground), empty_color(theme), t.violet]
    soft = _SOFT_EDGED if theme.edged else _SOFT
    for hue in (t.mute, *theme.chat_hues):
        found += [hue, mix(hue, under, soft)]
    return [_OPAQUE | int(value[1:], 16) for value in found]


@lru_cache
def tiles(size: int) -> np.ndarray:
    """uint8 [BLANK + 1, size, size]: what each code looks like; from 3 pixels on, the last row and column are a gap.

    Shared by all who ask: not to be written to.
    """
    inner = size - 1 if size > 2 else size
    found = np.full((BLANK + 1, size, size), _GROUND, dtype=np.uint8)
    for state, name in enumerate((*PAGE_STATES, "swapped")):
        for hue in range(HUES + 1):
            found[int(code(state, hue)), :inner, :inner] = _tile(name, hue, inner)
    for fill in range(FILLS):
        for hue in range(HUES + 1):
            tile = found[int(code(RESERVED + fill, hue)), :inner, :inner]
            tile[:] = _FAINT
            tile[inner - round(inner * fill / FILLS) :] = _FIRST + 2 * hue
    return found


def _tile(state: str, hue: int, size: int) -> np.ndarray:
    solid = _FIRST + 2 * hue
    soft = solid + 1
    match state:
        case "free":
            return _plain(size, _FREE)
        case "private":
            return _plain(size, solid)
        case "shared":
            return _core(_plain(size, _SHARED), solid) if hue != NO_OWNER else _plain(size, _SHARED)
        case "cached":
            return _plain(size, soft)
        case "locked":
            return _framed(size, solid, soft)
        case "quantised":
            across = np.add.outer(np.arange(size), np.arange(size))
            return np.where(across < size, solid, soft).astype(np.uint8)
        case "evicted":
            return _core(_plain(size, _FREE), _FAINT) if size > 2 else _plain(size, _FAINT)
        case _:
            return _framed(size, _FAINT, _GROUND)


def _plain(size: int, color: int) -> np.ndarray:
    return np.full((size, size), color, dtype=np.uint8)


def _framed(size: int, edge: int, inside: int) -> np.ndarray:
    tile = _plain(size, edge)
    tile[1:-1, 1:-1] = inside
    return tile


def _core(tile: np.ndarray, color: int) -> np.ndarray:
    """A square in the middle, a third of the width at least; a tile below 3 pixels has no middle."""
    size = len(tile)
    edge = (size + 1) // 3
    if size >= 3:
        tile[edge : size - edge, edge : size - edge] = color
    return tile
