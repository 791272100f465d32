"""Pictures that a request names by their addresses: fetched only where the user of the server allows it, because an
address may lie in this machine's own network."""

from __future__ import annotations

import asyncio
import base64
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from urllib.error import HTTPError

from engine.doors.http.fields import BadField
from engine.doors.http.openai.types import ImageUrl, OpenAIChat

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


async def fetch_pictures(wanted: OpenAIChat) -> None:
    """Put what lies at web addresses in their places, as data URLs. Raises BadField with a sentence."""
    urls = list(_addresses(wanted))
    if len(urls) > MOST:
        text = f"{MOST} pictures of a request are fetched from addresses, and this one has {len(urls)}. Send files."
        raise BadField("messages", text)
    end = time.monotonic() + REQUEST_S
    for where, url in urls:
        try:
            data = await asyncio.get_running_loop().run_in_executor(_READERS, _read, url.url, end)
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise BadField(where, f"The picture at {url.url[:200]} cannot be downloaded ({reason}).") from error
        url.url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"


def _addresses(wanted: OpenAIChat) -> list[tuple[str, ImageUrl]]:
    found = []
    for number, turn in enumerate(wanted.messages):
        for place, part in enumerate(turn.content if isinstance(turn.content, list) else ()):
            if isinstance(part.image_url, str):
                part.image_url = ImageUrl(part.image_url)
            if part.image_url is not None and part.image_url.url.startswith(("http://", "https://")):
                found.append((f"messages[{number}].content[{place}].image_url", part.image_url))
    return found


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
