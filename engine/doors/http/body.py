"""The body of a request: bounded, whatever it says of its length, and unpacked where a client compressed it."""

from __future__ import annotations

import asyncio
import zlib
from typing import Protocol

from starlette.requests import Request

from engine.doors.security import MAX_BODY
from engine.services.answers.refused import Refused, shortened

BODY_SECONDS = 30.0
"""How long the next part of a request's body may take."""
ENCODINGS = ("gzip", "x-gzip", "deflate")
_EITHER, _GZIP = 32 + zlib.MAX_WBITS, 16 + zlib.MAX_WBITS
"""For zlib: what it is, its own or gzip's format, is found out; gzip's alone."""


class _Decoder(Protocol):
    def add(self, part: bytes, most: int) -> bytes: ...

    def end(self) -> None: ...


async def read_body(request: Request) -> bytes:
    """The body, refused as soon as it is too large (its length may not have been declared) or stays away. Raises
    :class:`Refused`, and ClientDisconnect."""
    decoder = _decoder(request.headers.get("content-encoding", ""))
    parts: list[bytes] = []
    size = received = 0
    stream = request.stream()
    try:
        while (part := await asyncio.wait_for(anext(stream, None), BODY_SECONDS)) is not None:
            received += len(part)
            parts.append(decoder.add(part, MAX_BODY + 1 - size))
            size += len(parts[-1])
            if max(size, received) > MAX_BODY:
                raise Refused("too_large", f"The request is larger than {MAX_BODY >> 20} MiB. Send less.")
    except TimeoutError as error:
        raise Refused("body_timeout", f"No more of the request came for {BODY_SECONDS:g} seconds.") from error
    decoder.end()
    return b"".join(parts)


def _decoder(encoding: str) -> _Decoder:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in ENCODINGS:
        return _Compressed()
    text = f"A body compressed as {shortened(encoding)!r} is not read. Send it as gzip, or as it is."
    raise Refused("unsupported_encoding", text)


class _Plain:
    def add(self, part: bytes, most: int) -> bytes:
        return part

    def end(self) -> None:
        pass


class _Compressed:
    """No more is unpacked than may be read: a few bytes can stand for gigabytes. Gzip may have several members
    (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(_EITHER)

    def add(self, part: bytes, most: int) -> bytes:
        found: list[bytes] = []
        try:
            while part and most > 0:
                if self._unpacker.eof:
                    self._unpacker = zlib.decompressobj(_GZIP)
                found.append(self._unpacker.decompress(part, most))
                most -= len(found[-1])
                part = self._unpacker.unused_data
        except zlib.error as error:
            raise Refused("bad_encoding", f"The compressed body is damaged ({error}). Send it again.") from error
        return b"".join(found)

    def end(self) -> None:
        if not self._unpacker.eof:
            raise Refused("bad_encoding", "The compressed body has no end. Send all of it.")
