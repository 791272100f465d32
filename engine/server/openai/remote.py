"""Pictures that a request names by their addresses: fetched only where the user of the server allows it, because an
address may lie in this machine's own network."""

from __future__ import annotations

import asyncio
import base64
import time
import urllib.request
from http.client import HTTPException
from urllib.error import HTTPError

from engine.server.openai.fields import BadField
from engine.server.openai.types import ChatIn, ImageUrl

MOST_BYTES = 20_000_000
MOST = 16
"""Addresses in one request."""
PATIENCE_S = 20.0
"""For one picture; and half of it for a server that says nothing."""
_CHUNK = 1 << 16


async def fetch_pictures(wanted: ChatIn) -> None:
    """Put what lies at web addresses in their places, as data URLs. Raises BadField with a sentence."""
    urls = list(_addresses(wanted))
    if len(urls) > MOST:
        text = f"{MOST} pictures of a request are fetched from addresses, and this one has {len(urls)}. Send files."
        raise BadField("messages", text)
    for where, url in urls:
        try:
            data = await asyncio.to_thread(_read, url.url)
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise BadField(where, f"The picture at {url.url[:200]} cannot be fetched ({reason}).") from error
        url.url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"


def _addresses(wanted: ChatIn) -> list[tuple[str, ImageUrl]]:
    found = []
    for number, turn in enumerate(wanted.messages):
        for place, part in enumerate(turn.content if isinstance(turn.content, list) else ()):
            if isinstance(part.image_url, str):
                part.image_url = ImageUrl(part.image_url)
            if part.image_url is not None and part.image_url.url.startswith(("http://", "https://")):
                found.append((f"messages[{number}].content[{place}].image_url", part.image_url))
    return found


def _read(url: str) -> bytes:
    """The file at a web address, redirections to others followed. Raises OSError, ValueError, HTTPException."""
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
    end, data = time.monotonic() + PATIENCE_S, bytearray()
    request = urllib.request.Request(url, headers={"User-Agent": "Kvasir"})
    try:
        answer = opener.open(request, timeout=PATIENCE_S / 2)
    except HTTPError as error:
        error.close()
        raise
    with answer:
        while part := answer.read1(_CHUNK):
            data += part
            if len(data) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            if time.monotonic() > end:
                raise ValueError(f"it took more than {PATIENCE_S:.0f} seconds")
    return bytes(data)
