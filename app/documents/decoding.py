"""Bytes of a text file as text, whatever its encoding."""

from __future__ import annotations

import codecs

from app.language import plural, tr

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE = 200_000
"""Bytes that an encoding is guessed from."""
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\v\x1b\b")


class BinaryError(ValueError):
    """The bytes are no text."""


def decoded(data: bytes) -> tuple[str, list[str]]:
    r"""The text, with \n at the ends of lines, and sentences on what was guessed. Raises BinaryError."""
    text, notes = _decoded(data)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", ""), notes


def _decoded(data: bytes) -> tuple[str, list[str]]:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _lenient(data, encoding)
    controls = sum(byte in _CONTROLS for byte in data[:4096])
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and controls <= len(data[:4096]) // 50:
        return text, []
    wide = _wide(data)
    if wide:
        text, notes = _lenient(data, wide)
        return text, [_guessed(wide), *notes]
    if controls > len(data[:4096]) // 50:
        raise BinaryError
    if not data:
        return "", []
    from charset_normalizer import from_bytes  # slow to import, and seldom needed

    best = from_bytes(data[:_SAMPLE]).best()
    encoding = best.encoding if best is not None else "cp1252"
    text, notes = _lenient(data, encoding)
    return text, [_guessed(encoding), *notes]


def _guessed(encoding: str) -> str:
    return tr("Its encoding is not stated and was guessed: {encoding}.", encoding=encoding)


def _wide(data: bytes) -> str:
    """UTF-16 without a mark has a zero in every other byte of Latin text; "" for what is not that."""
    sample = data[:4096]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > len(sample) // 5 and not even:
        return "utf-16-le"
    return "utf-16-be" if even > len(sample) // 5 and not odd else ""


def _lenient(data: bytes, encoding: str) -> tuple[str, list[str]]:
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        wrong = text.count("\N{REPLACEMENT CHARACTER}")
        return text, [plural("1 sign could not be decoded.", "{n:,} signs could not be decoded.", wrong)]
