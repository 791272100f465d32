"""An answer that one engine began and another goes on with: its tokens, and what the cache holds of them, as bytes.

That is how prompts are read on one machine and answers written on another (Zhong et al. 2024, arXiv 2401.09670). As
with the connectors of vLLM and SGLang, whoever asks sends the same request to both engines, and with it what the first
one handed over. All goes along that a preempted answer takes to host memory, a page that is not full and the state
after the last token too, so that the second engine computes nothing again and not a bit differs; drafts begin anew.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

VERSION = 1
"""To be raised with every change of these bytes or of what a kind of store exports."""
MAGIC = b"KVASIRH1"
CONTRADICTS = "What was handed over contradicts itself. Send it again."
NOTHING = torch.empty(0, dtype=torch.uint8)
_DIGEST = 16
_HEAD = len(MAGIC) + _DIGEST


class HandOverRefused(Exception):  # noqa: N818 - an outcome that a person is told about
    """An answer cannot be handed over or taken; the message is a sentence for a person."""


class Begun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer. ``model`` and ``cache`` say what it was computed with, ``prompt`` are the ids that tell its prompt
    from others, ``drawn`` its tokens so far. The first ``computed`` tokens of both together are in parts of ``sizes``
    bytes: of the pages of the pool, then of each cache group."""

    version: int
    model: str
    cache: str
    seed: int
    prompt: list[int]
    drawn: list[int]
    computed: int
    sizes: list[int]


class BegunAnswer(NamedTuple):
    """``parts``: uint8, empty where a group has nothing."""

    begun: Begun
    parts: Sequence[Tensor]

    def to_bytes(self) -> bytes:
        """A magic number, a digest of what follows, the length of the record, the record in MessagePack, the parts."""
        record = msgspec.msgpack.encode(self.begun)
        body = b"".join([len(record).to_bytes(8, "little"), record, *(part.numpy().tobytes() for part in self.parts)])
        return MAGIC + _digest(body) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> BegunAnswer:
        """Raises :class:`HandOverRefused` for what is not whole."""
        body = memoryview(data)[_HEAD:]
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : _HEAD] != _digest(body):
            raise HandOverRefused("What was handed over is cut off or changed. Send it again.")
        length = 8 + int.from_bytes(body[:8], "little")
        try:
            begun = msgspec.msgpack.decode(body[8:length], type=Begun)
        except msgspec.MsgspecError:
            begun = None
        if begun is None or begun.version != VERSION:
            raise HandOverRefused(
                "This answer was handed over by another version of Kvasir. Use the same for both engines."
            )
        if min(begun.sizes, default=0) < 0 or length + sum(begun.sizes) != len(body):
            raise HandOverRefused(CONTRADICTS)
        ends = list(itertools.accumulate(begun.sizes, initial=length))
        return cls(begun, [_tensor(body[first:stop]) for first, stop in itertools.pairwise(ends)])


def _tensor(data: memoryview) -> Tensor:
    """uint8, in memory of its own."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if len(data) else NOTHING


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()
