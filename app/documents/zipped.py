"""Documents that are archives: DOCX and EPUB. Nothing of one is unpacked before its sizes are known to be sane."""

from __future__ import annotations

import io
import posixpath
import zipfile
from urllib.parse import unquote

from app.documents.records import MOST_CHARS, DocumentFacts, ReadText, lines_of
from app.language import plural, tr

MOST_BYTES = 256 << 20
"""All of an archive, unpacked."""
MOST_PARTS = 20_000
DAMAGED = tr("{name} cannot be read: the archive inside it is damaged or incomplete.")
ENCRYPTED = tr("{name} is encrypted. Save a copy without a password first.")
NO_DOCUMENT = tr("{name} is an archive, and not a document. Unpack it and add the files inside.")
NO_WORDS = tr("{name} has no text.")
PROTECTED = tr("{name} is protected against copying (DRM), so its text cannot be read.")
OTHERS = {
    "xl/workbook.xml": tr("{name} is an Excel workbook. Save the sheet as CSV first."),
    "ppt/presentation.xml": tr("{name} is a PowerPoint presentation. Save it as PDF first."),
    "content.xml": tr("{name} is an OpenDocument file. Save it as DOCX or PDF first."),
}


def read(data: bytes, name: str) -> ReadText:
    """Raises ValueError with a sentence for what is no DOCX or EPUB, or unpacks to too much."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            if len(parts) > MOST_PARTS or sum(part.file_size for part in parts) > MOST_BYTES:
                most = MOST_BYTES >> 20
                raise ValueError(
                    tr("{name} unpacks to more than {most:,} MB, so it was not opened.", name=name, most=most)
                )
            names = {part.filename for part in parts}
            if any(part.flag_bits & 1 for part in parts):
                raise ValueError(ENCRYPTED.format(name=name))
            if "META-INF/container.xml" in names:
                return _epub(archive, names, len(data), name)
    except (zipfile.BadZipFile, EOFError, KeyError, NotImplementedError, OSError):
        raise ValueError(DAMAGED.format(name=name)) from None
    if "word/document.xml" in names:
        return _docx(data, name)
    other = next((sentence for part, sentence in OTHERS.items() if part in names), NO_DOCUMENT)
    raise ValueError(other.format(name=name))


def _docx(data: bytes, name: str) -> ReadText:
    import mammoth  # slow to import

    from app.documents.markup import markdown

    pictures = 0

    def skip(_: object) -> dict[str, str]:
        nonlocal pictures
        pictures += 1
        return {}

    try:
        html = mammoth.convert_to_html(io.BytesIO(data), convert_image=mammoth.images.img_element(skip)).value
    except (MemoryError, RecursionError):
        raise
    except Exception:  # whatever a part that is not what it should be makes it raise
        raise ValueError(DAMAGED.format(name=name)) from None
    text, notes = markdown(html)
    if not text:
        raise ValueError(NO_WORDS.format(name=name))
    if pictures:
        notes.append(plural("1 picture in it cannot be read.", "{n:,} pictures in it cannot be read.", pictures))
    text, more = _cut(text)
    return ReadText(text, DocumentFacts("Word", len(data), 0, lines_of(text), [], notes + more))


def _epub(archive: zipfile.ZipFile, names: set[str], size: int, name: str) -> ReadText:
    """The chapters in the order of the book's spine."""
    from app.documents.markup import markdown, parsed

    if "META-INF/rights.xml" in names:
        raise ValueError(PROTECTED.format(name=name))
    root = parsed(archive.read("META-INF/container.xml")).find("rootfile")
    book = unquote(str(root.get("full-path", ""))) if root is not None else ""
    contents = parsed(archive.read(book))
    files = {
        str(item.get("id")): posixpath.normpath(posixpath.join(posixpath.dirname(book), unquote(str(item.get("href")))))
        for item in contents.find_all("item")
    }
    spine = [files.get(str(item.get("idref")), "") for item in contents.find_all("itemref")]
    parts, starts, notes = [], list[int](), list[str]()
    length = missing = 0
    for file in spine:
        if file not in names:
            missing += 1
            continue
        text, said = markdown(archive.read(file))
        notes += [note for note in said if note not in notes]
        if not text:
            continue
        starts.append(length)
        parts.append(f"{text}\n\n")
        length += len(text) + 2
        if length > MOST_CHARS:
            break
    if missing:
        notes.append(
            tr("{missing:,} of {count:,} chapters are missing from the file.", missing=missing, count=len(spine))
        )
    text, more = _cut("".join(parts).rstrip())
    if not text:
        raise ValueError(NO_WORDS.format(name=name))
    return ReadText(text, DocumentFacts("EPUB", size, len(starts), lines_of(text), starts, notes + more))


def _cut(text: str) -> tuple[str, list[str]]:
    if len(text) <= MOST_CHARS:
        return text, []
    return text[:MOST_CHARS], [tr("Cut after {most:,} characters.", most=MOST_CHARS)]
