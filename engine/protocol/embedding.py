"""Embeddings of texts by a model that is made for them, next to the model that answers."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from engine.protocol.base import Part

TextKind = Literal["", "query", "document"]
"""Kind of a text, where a model's makers put other words before a question than before what is searched."""
MOST_TEXTS = 4096
"""Texts of one request."""


class EmbedTexts(Part, frozen=True):
    """Compute embeddings of texts, on the processor, with a model that is loaded next to the one that answers."""

    model: Annotated[str, Meta(description="An embedding model's name, or the path of its folder or GGUF file.")]
    texts: Annotated[list[str], Meta(max_length=MOST_TEXTS)]
    """A text that is longer than the model reads is cut."""
    kind: TextKind = ""


class EmbeddedTexts(Part, frozen=True):
    """Embeddings of some of the texts, ``first`` the number of the first one (from 0). ``vectors``: one after the
    other, float32, little-endian, each of length 1."""

    first: int
    vectors: bytes


class TextEmbeddings(Part, frozen=True):
    """``model``: its name. ``fingerprint``: 32 hexadecimal digits, others for a model with other weights or another
    configuration. ``dimensions``: numbers of each vector. ``tokens``: of all texts."""

    model: str
    fingerprint: str
    dimensions: int
    tokens: int
