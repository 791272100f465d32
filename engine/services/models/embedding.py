"""Embeddings of texts, by a model next to the one that answers."""

from __future__ import annotations

from engine.protocol.embedding import EmbedTexts, TextEmbeddings
from engine.services.embedder import Embedder
from engine.services.operations import Context, Emit


def embed(context: Context, request: EmbedTexts, emit: Emit) -> TextEmbeddings:
    """By the embedder of the engine that serves; a terminal's goes with its process."""
    embedder = context.residency.embedder if context.residency is not None else Embedder()
    try:
        return embedder.embed(request.model, request.texts, request.kind, emit)
    finally:
        if context.residency is None:
            embedder.close()
