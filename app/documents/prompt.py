"""What a model is given of a message's documents: a fixed frame round each, before the person's words."""

from __future__ import annotations

from collections.abc import Sequence

from app.documents.records import Document, DocumentPassage, MessageDocument

WHOLE = '<document name="{name}">\n{text}\n</document>\n\n'
PART = '<passages of="{name}">\n{text}\n</passages>\n\n'
ONLY_PASSAGES = (
    "Of the documents above only the numbered passages were searched out. Name them by their numbers, such as [1].\n\n"
)


def with_documents(text: str, documents: Sequence[MessageDocument]) -> str:
    """The documents and then the text. A document whose use is not decided stands there whole."""
    if not documents:
        return text
    parts = [framed(each) for each in documents]
    if any(each.use is not None and each.use.passages is not None for each in documents):
        parts.append(ONLY_PASSAGES)
    return "".join(parts) + text


def framed(each: MessageDocument) -> str:
    document, use = each.document, each.use
    name = " ".join(document.name.replace('"', "'").split())
    if use is None or use.passages is None:
        return WHOLE.format(name=name, text=document.text)
    text = "\n\n".join(quoted(document, passage) for passage in use.passages)
    return PART.format(name=name, text=text)


def quoted(document: Document, passage: DocumentPassage) -> str:
    """A passage below its number and its place."""
    unit, number = document.position(passage.start)
    return f"[{passage.number}] {unit} {number}\n{document.text[passage.start : passage.end].strip()}"
