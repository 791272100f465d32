"""Files of documents, made here: nothing of them is downloaded."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"


_SPACES = base64.b85decode(
    "c-pJD_4bao-<(8=wug#70vvoz3I-8n0nSDeCQK%Yj7zrhaU8tf<NBarhTa0c&c_QP7`Pgnd`{~;-oM_v_SaPZeRuZ9"
    "-TN2U^UwPJyt=nJ_w@Q17#JEFt?T#2#QdnsIWPB}zYip`&^j_!^1OTF`NwN*pMwMr?!NVRquGDO4|Qc$Wqd#pi9Nmj"
    "*H6}P@0kBL(!PWrETVo8NHKT_@_=-RfjJovjs!AiRAy9WRAy9WRAy9WRAy9WRAy9WRAy9WkjTue+w<?=JSH{%&BvF{"
    "U%YMi#jj^i{jz_zZ2dt1q&q8>"
)
"""Two gigabytes of spaces, deflated three times."""


def pdf(pages: Sequence[str | None], encrypted: bool = False) -> bytes:
    """A PDF with a line of text on each page; None is a page that is a picture."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects: list[str | bytes] = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, words in enumerate(pages):
        drawn = "0 0 600 800 re f" if words is None else f"BT /F1 12 Tf 50 750 Td ({words}) Tj ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * at} 0 R >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    keys = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{'41' * 32}> /U <{'42' * 32}> /P -4 >> /ID [<41><41>]"
    return _file(objects, keys if encrypted else "")


def pdf_bomb() -> bytes:
    """A page whose drawing takes two gigabytes once it is unpacked."""
    filters = "/FlateDecode " * 3
    return _file(
        [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R >>",
            f"<< /Length {len(_SPACES)} /Filter [{filters}] >>\nstream\n".encode() + _SPACES + b"\nendstream",
        ]
    )


def _file(objects: Sequence[str | bytes], keys: str = "") -> bytes:
    data, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(data))
        content = each if isinstance(each, bytes) else each.encode()
        data += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(f"{at:010} 00000 n \n" for at in places)
    end = f"trailer << /Size {len(objects) + 1} /Root 1 0 R {keys} >>"
    return data + f"{table}{end}\nstartxref\n{len(data)}\n%%EOF".encode()


def archive(path: Path, parts: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return path


def docx(path: Path, body: str, head: str = "") -> Path:
    """A Word file; ``body`` is WordprocessingML, in which w: is bound, ``head`` comes before the root."""
    types = "http://schemas.openxmlformats.org/package/2006/"
    return archive(
        path,
        {
            "[Content_Types].xml": f'<Types xmlns="{types}content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{types}relationships">'
            f'<Relationship Id="r" Type="{_OFFICE}" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'{head}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        },
    )


def paragraph(words: str, style: str = "") -> str:
    looks = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{looks}<w:r><w:t>{words}</w:t></w:r></w:p>"


def epub(path: Path, chapters: Mapping[str, str], more: Mapping[str, str] | None = None) -> Path:
    """A book; ``chapters``: its files in their order, and ``more`` is in the archive besides."""
    items = "".join(f'<item id="c{at}" href="{name}"/>' for at, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{at}"/>' for at in range(len(chapters)))
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfile full-path="OPS/book.opf"/></container>',
        "OPS/book.opf": f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>",
    }
    return archive(path, parts | {f"OPS/{name}": text for name, text in chapters.items() if text} | dict(more or {}))
