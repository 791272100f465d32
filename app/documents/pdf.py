"""Text of a PDF, page by page."""

from __future__ import annotations

import pypdfium2 as pdfium

from app.documents.records import MOST_CHARS, DocumentFacts, ReadText, lines_of
from app.language import plural, tr

MOST_PAGES = 3000
ENCRYPTED = tr("{name} is encrypted. Save a copy without a password first.")
DAMAGED = tr("{name} cannot be read as a PDF: the file is damaged or incomplete.")
_ENCRYPTED = 4
"""PDFium's error for a missing password."""


def read(data: bytes, name: str) -> ReadText:
    """Raises ValueError with a sentence for a file that is encrypted, damaged or without text."""
    try:
        file = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        code = getattr(error, "err_code", None)
        raise ValueError((ENCRYPTED if code == _ENCRYPTED else DAMAGED).format(name=name)) from None
    with file:
        return _read(file, len(data), name)


def _read(file: pdfium.PdfDocument, size: int, name: str) -> ReadText:
    pages, parts, starts, notes = len(file), [], [], []
    empty = broken = length = read = 0
    for number in range(min(pages, MOST_PAGES)):
        try:
            words = _page(file, number)
        except pdfium.PdfiumError:
            words, broken = "", broken + 1
        else:
            empty += not words
        mark = f"[page {number + 1}]\n" if pages > 1 else ""  # the model reads it
        part = f"{mark}{words}\n\n" if words else ""
        starts.append(length)
        read += 1
        parts.append(part)
        length += len(part)
        if length > MOST_CHARS:
            break
    if pages and empty + broken == pages:
        raise ValueError(DAMAGED.format(name=name) if broken else _scanned(name, pages))
    text = "".join(parts).rstrip()
    if length > MOST_CHARS:
        text = text[:MOST_CHARS]
        cut = tr(
            "Cut after {most:,} characters, on page {page:,} of {pages:,}.", most=MOST_CHARS, page=read, pages=pages
        )
        notes.append(cut)
    elif read < pages:
        notes.append(tr("Only the first {read:,} of {pages:,} pages were read.", read=read, pages=pages))
    if empty:
        without = plural(
            "1 of {pages:,} pages has no text: it is a picture.",
            "{n:,} of {pages:,} pages have no text: they are pictures.",
            empty,
            pages=pages,
        )
        notes.append(without)
    if broken:
        notes.append(tr("{broken:,} of {pages:,} pages could not be read.", broken=broken, pages=pages))
    return ReadText(text, DocumentFacts("PDF", size, pages, lines_of(text), starts, notes))


def _scanned(name: str, pages: int) -> str:
    return plural(
        "{name} has no text: all its {n} page are pictures. Run a text recognition (OCR) over it first.",
        "{name} has no text: all its {n:,} pages are pictures. Run a text recognition (OCR) over it first.",
        pages,
        name=name,
    )


def _page(file: pdfium.PdfDocument, number: int) -> str:
    page = file[number]
    try:
        words = page.get_textpage()
        try:
            return str(words.get_text_bounded()).replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "").strip()
        finally:
            words.close()
    finally:
        page.close()
