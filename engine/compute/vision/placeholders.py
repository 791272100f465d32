"""Places of a prompt's pictures among its tokens, and what follows from them: rows, positions, identity.

A prompt's token ids stay those that the model knows: where a picture is, its tower's placeholder stands once for each
embedding. So sampling, drafts and counts need not know of pictures. Two things do: the prefix cache, for which
:meth:`PlaceholderSpans.marks` tells the placeholders of two pictures apart, and the rotary embedding
(:meth:`PlaceholderSpans.axes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from engine.compute.vision.interface import Picture, PictureError, Tower

MOST_PICTURES = 128
"""Limit of one prompt: each is decoded, held as numbers and computed."""


class PictureRun(NamedTuple):
    """Tokens that follow each other, from token ``first`` of a sequence on, and stand for the embeddings
    [``begin``, ``end``) of a picture."""

    picture: Picture
    first: int
    begin: int
    end: int


class PlaceholderSpans:
    """The pictures of one prompt, in order. Nothing of it changes, so that answers and threads may share it."""

    def __init__(self, pictures: Sequence[Picture], at: Sequence[Sequence[int]], grids: bool) -> None:
        """``at[i]`` are the indices of picture i's placeholders in the prompt, ascending. ``grids``: positions go by
        its rows and columns, and the placeholders follow each other."""
        self.pictures, self.grids = tuple(pictures), grids
        self._at = [np.asarray(places, dtype=np.int64) for places in at]
        self._first = np.array([places[0] for places in self._at], dtype=np.int64)
        self._tokens = np.array([len(places) for places in self._at], dtype=np.int64)
        self._columns = np.array([picture.grid[1] for picture in pictures], dtype=np.int64)
        # Text after a picture goes on at the largest of its positions + 1: this many less than by its index.
        longest = np.array([max(picture.grid) for picture in pictures], dtype=np.int64)
        self._less = np.concatenate(([0], np.cumsum(self._tokens - longest)))

    def runs(self, start: int, stop: int) -> Iterator[PictureRun]:
        """Runs of picture tokens among the tokens [start, stop) of the sequence."""
        for picture, at in zip(self.pictures, self._at, strict=True):
            begin, end = np.searchsorted(at, (start, stop))
            cuts = begin + 1 + np.flatnonzero(np.diff(at[begin:end]) != 1)
            bounds = [int(begin), *cuts.tolist(), int(end)] if end > begin else []
            for first, last in pairwise(bounds):
                yield PictureRun(picture, int(at[first]), first, last)

    def spans(self) -> list[tuple[int, int]]:
        """The tokens [first, stop) of each picture, from its first placeholder to its last."""
        return [(int(at[0]), int(at[-1]) + 1) for at in self._at]

    def axes(self, index: np.ndarray) -> np.ndarray:
        """Implements :class:`engine.compute.batch.Axes`; Qwen2-VL (Wang et al. 2024, arXiv 2409.12191, section 2.1)."""
        before = np.searchsorted(self._first, index, side="right")  # pictures that have begun
        found = np.broadcast_to(index - self._less[before], (3, len(index))).copy()
        last = np.maximum(before - 1, 0)
        place = index - self._first[last]
        inside = (before > 0) & (place < self._tokens[last])
        last, place = last[inside], place[inside]
        base = self._first[last] - self._less[last]
        found[:, inside] = base, base + place // self._columns[last], base + place % self._columns[last]
        return found

    def marks(self, prompt: Sequence[int]) -> list[int]:
        """The prompt's tokens, with numbers below 0 for placeholders: 31 bits of the picture's digest for each, the
        same wherever and whenever the picture is shown."""
        found = np.array(prompt, dtype=np.int64)
        for picture, at in zip(self.pictures, self._at, strict=True):
            digest = hashlib.shake_128(picture.key).digest(4 * len(at))
            found[at] = -1 - (np.frombuffer(digest, dtype="<u4") >> 1).astype(np.int64)
        return found.tolist()


def is_mark(token: int) -> bool:
    """Return True if a number of :meth:`PlaceholderSpans.marks` stands for a part of a picture."""
    return token < 0


def placed(
    ids: Sequence[int], marker: int, pictures: Sequence[Picture], tower: Tower
) -> tuple[list[int], PlaceholderSpans]:
    """A prompt with each ``marker`` replaced by the layout of a picture, and where these are.

    Raises :class:`PictureError` where there are not as many markers as pictures.
    """
    markers = list(ids).count(marker)
    if markers < len(pictures):
        raise PictureError(
            f"The chat template of this model left {len(pictures) - markers} of {len(pictures)} pictures out. "
            "Ask without pictures, or load a version of the model whose template shows them."
        )
    if markers > len(pictures):
        raise PictureError(
            f"The text of the conversation has {tower.marker}, which stands for a picture in this model. Take it out."
        )
    tokens: list[int] = []
    at: list[list[int]] = []
    left = iter(pictures)
    for token in ids:
        if token != marker:
            tokens.append(token)
            continue
        layout = tower.layout(next(left))
        at.append([len(tokens) + place for place, each in enumerate(layout) if each == tower.placeholder])
        tokens += layout
    return tokens, PlaceholderSpans(pictures, at, tower.positions == "mrope")
