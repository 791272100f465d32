"""Pictures of a request: in base64, in data URLs, or at addresses. Those are fetched only where the user of the server
allows it, because an address may lie in this machine's own network."""

from __future__ import annotations

import asyncio
import base64
import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, Protocol
from urllib.error import HTTPError

import msgspec

from engine.doors.http.fields import BadField

MOST_BYTES = 20_000_000
MOST = 16
"""Addresses in one request."""
PATIENCE_S = 20.0
"""For one picture; and half of it for a server that says nothing."""
REQUEST_S = 45.0
"""For all pictures of a request, with its wait for others' to be read."""
_CHUNK = 1 << 16
_READERS = ThreadPoolExecutor(16, "pictures")
"""Threads of their own: whoever sends slow addresses holds up those who send addresses, and nobody else."""


def picture(data: str, where: str) -> bytes:
    """A file in base64. Raises BadField."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise BadField(where, "The base64 of the picture is damaged. Send the whole file again.") from error


def picture_at(url: str, where: str) -> bytes:
    """The file in a data URL (RFC 2397); those of the web were fetched before, where that is allowed. Raises
    BadField."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:"):
        text = (
            "Pictures are not fetched from addresses. Send the file itself, data:image/jpeg;base64,…, or start the "
            "server with --fetch-pictures."
        )
        raise BadField(where, text)
    if not comma or not head.endswith(";base64"):
        raise BadField(where, "The data URL of the picture is not in base64. Send data:image/jpeg;base64,…")
    return picture(data, where)


class ImageUrl(msgspec.Struct):
    """Address of a picture; a model's tower decides in which detail it is seen."""

    url: str


class ContentPart(msgspec.Struct):
    """A part of a message. What belongs to other kinds of part is refused by its type; the rest is ignored, as hints to
    a cache are."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None

    @property
    def url(self) -> str:
        """The address of its picture, "" without one."""
        return self.image_url.url if isinstance(self.image_url, ImageUrl) else self.image_url or ""


class PictureAt(Protocol):
    """A part of a request that is a picture, with its address."""

    @property
    def url(self) -> str: ...

    image_url: Any


async def fetch_pictures(pictured: Iterable[tuple[str, PictureAt]]) -> None:
    """Put what lies at web addresses in their places, as data URLs; each comes with its field. Raises BadField with a
    sentence."""
    parts = [(where, part) for where, part in pictured if part.url.startswith(("http://", "https://"))]
    if len(parts) > MOST:
        text = f"{MOST} pictures of a request are fetched from addresses, and this one has {len(parts)}. Send files."
        raise BadField(parts[0][0].partition("[")[0], text)
    end = time.monotonic() + REQUEST_S
    for where, part in parts:
        try:
            data = await asyncio.get_running_loop().run_in_executor(_READERS, _read, part.url, end)
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise BadField(where, f"The picture at {part.url[:200]} cannot be downloaded ({reason}).") from error
        part.image_url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"


def _read(url: str, end: float) -> bytes:
    """The file at a web address, redirections to others followed; by ``end`` of the monotonic clock.

    Raises OSError, ValueError, HTTPException.
    """
    patience = min(PATIENCE_S, end - time.monotonic())
    if patience <= 0:
        raise ValueError(f"all pictures of the request took more than {REQUEST_S:.0f} seconds")
    opener = urllib.request.OpenerDirector()  # without the handlers of files and FTP
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    end, data = time.monotonic() + patience, bytearray()
    request = urllib.request.Request(url, headers={"User-Agent": "Kvasir"})
    try:
        answer = opener.open(request, timeout=min(PATIENCE_S / 2, patience))
    except HTTPError as error:
        error.close()
        raise
    with answer:
        while part := answer.read1(_CHUNK):
            data += part
            if len(data) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            if time.monotonic() > end:
                raise ValueError(f"it took more than {patience:.0f} seconds")
    return bytes(data)
