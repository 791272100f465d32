"""Pictures as they were sent, prepared for the tower of the loaded model."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from engine.compute.vision.interface import Picture, PictureError, Tower
from engine.compute.vision.pictures import open_picture
from engine.compute.vision.placeholders import MOST_PICTURES

KEPT_BYTES = 256 << 20
"""Prepared pictures that are kept, since clients send those of a conversation again with each message."""


class ImageProcessor:
    """Prepares the pictures of conversations, and keeps the last ones. Safe to use from several threads."""

    most_bytes = 2 << 30
    """Limit of the bytes of all pictures of one conversation, prepared: about 80,000 tokens of Qwen's."""

    def __init__(self, tower: Tower, marker: int, most_tokens: int | None = None, budget: int = KEPT_BYTES) -> None:
        """``marker`` is the token of the text by which chat templates stand for a picture (:attr:`Tower.marker`). A
        picture is made smaller where it would take more than ``most_tokens``, if the tower can do that."""
        self.tower, self.marker, self._most_tokens, self._budget = tower, marker, most_tokens, budget
        self._kept: OrderedDict[bytes, Picture] = OrderedDict()
        self._lock = threading.Lock()

    def kept_bytes(self) -> int:
        """Memory of the host that the kept pictures take."""
        with self._lock:
            return sum(each.pixels.nbytes for each in self._kept.values())

    def prepared(self, files: Sequence[bytes]) -> list[Picture]:
        """One for each file. Raises :class:`PictureError`, for too many before any is opened."""
        if len(files) > MOST_PICTURES:
            raise PictureError(
                f"The conversation has {len(files):,} pictures, and at most {MOST_PICTURES} are read. Send fewer."
            )
        found: list[Picture] = []
        left = self.most_bytes
        for number, file in enumerate(files, 1):
            found.append(self._prepared(file, number, len(files)))
            left -= found[-1].pixels.nbytes
            if left < 0:
                raise PictureError(
                    f"The first {number} pictures of the conversation take more than {self.most_bytes >> 30} GiB of "
                    "memory once they are prepared. Send fewer, or smaller ones."
                )
        return found

    def _prepared(self, file: bytes, number: int, of: int) -> Picture:
        name = hashlib.sha256(file).digest()
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        try:
            found = self.tower.prepare(open_picture(file, self.tower.most_ratio), self._most_tokens)
        except PictureError as error:
            raise PictureError(f"Picture {number} of {of}: {error}" if of > 1 else str(error)) from error
        with self._lock:
            self._kept[name] = found
            while len(self._kept) > 1 and sum(each.pixels.nbytes for each in self._kept.values()) > self._budget:
                self._kept.popitem(last=False)
        return found
