"""Text of a PDF, page by page."""

from __future__ import annotations

import pypdfium2 as pdfium

from app.documents.records import MOST_CHARS, DocumentFacts, ReadText, counted, lines_of

MOST_PAGES = 3000
ENCRYPTED = "{name} is encrypted. Save a copy without a password first."
DAMAGED = "{name} cannot be read as a PDF: the file is damaged or incomplete."
SCANNED = "{name} has no text: all its {pages} are pictures. Run a text recognition (OCR) over it first."
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
        mark = f"[page {number + 1}]\n" if pages > 1 else ""
        part = f"{mark}{words}\n\n" if words else ""
        starts.append(length)
        read += 1
        parts.append(part)
        length += len(part)
        if length > MOST_CHARS:
            break
    if pages and empty + broken == pages:
        sentence = SCANNED if not broken else DAMAGED
        raise ValueError(sentence.format(name=name, pages=counted(pages, "page")))
    text = "".join(parts).rstrip()
    if length > MOST_CHARS:
        text = text[:MOST_CHARS]
        notes.append(f"Cut after {MOST_CHARS:,} characters, on page {read:,} of {pages:,}.")
    elif read < pages:
        notes.append(f"Only the first {read:,} of {pages:,} pages were read.")
    if empty:
        have, are = ("has", "it is a picture") if empty == 1 else ("have", "they are pictures")
        notes.append(f"{empty:,} of {counted(pages, 'page')} {have} no text: {are}.")
    if broken:
        notes.append(f"{broken:,} of {pages:,} pages could not be read.")
    return ReadText(text, DocumentFacts("PDF", size, pages, lines_of(text), starts, notes))


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
