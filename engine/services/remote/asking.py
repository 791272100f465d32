"""Requests to a server elsewhere: its errors as sentences with its own words, and a stop that closes the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from engine.base import stopping
from engine.base.errors import plain
from engine.base.fetching import trust
from engine.base.fetching.client import certificate_error, streamed, way_to
from engine.base.fetching.errors import unreachable
from engine.services.operations import OperationFailed

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
CONNECT_S = 20.0
SILENT_S = 600.0
"""Seconds without a byte: a long prompt is read in silence by most servers."""
MOST_WORDS, MOST_ERROR_BYTES = 300, 1 << 16
"""Characters of a server's words in a sentence, and what is read of an answer to find them."""


class RemotePlace(NamedTuple):
    """A server with its key."""

    name: str
    url: str
    key: str = ""

    def words(self, text: str) -> str:
        """What the server said, in one line without its key, and not endless."""
        text = text.replace(self.key, "…") if self.key else text
        return plain(" ".join(text.split()).rstrip("."), most=MOST_WORDS) or "without a word"


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, in this thread. A request to stop cancels it, which closes its connection.

    Raises :class:`engine.base.stopping.Stopped`, and what it raises.
    """
    stop = stopping.current()

    async def stoppable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)

        with stop.waking(wake):
            return await work

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        stop.check()
        raise


@contextlib.asynccontextmanager
async def asked(place: RemotePlace, path: str, posted: bytes | None = None) -> AsyncIterator[httpx2.Response]:
    """The server's answer, which is not an error. Raises :class:`OperationFailed` and
    :class:`engine.base.fetching.errors.FetchFailed`."""
    import httpx2

    timeout = httpx2.Timeout(CONNECT_S, read=SILENT_S)
    try:
        async with streamed(place.url + path, timeout, place.key, posted) as response:
            if response.status_code != httpx2.codes.OK:
                raise OperationFailed(_refusal(place, response, await start(response)))
            yield response
    except httpx2.HTTPError as error:
        raise OperationFailed(_failure(place, error)) from error


async def start(response: httpx2.Response, most: int = MOST_ERROR_BYTES) -> bytes:
    """The content, or its first ``most`` bytes."""
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) >= most:
            break
    return bytes(content[:most])


def said(content: bytes) -> str:
    """The words in a server's error, in any of the shapes that OpenAI, vLLM, SGLang, FastAPI and llama.cpp give it."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return content.decode(errors="replace")
    return error_words(found) or content.decode(errors="replace")


def error_words(found: Any) -> str:
    """The message in a decoded error; "" where there is none."""
    for name in ("error", "message", "detail"):
        inner = found.get(name) if isinstance(found, dict) else None
        if words := inner if isinstance(inner, str) else error_words(inner) if isinstance(inner, dict) else "":
            return words
    return ""


def _refusal(place: RemotePlace, response: httpx2.Response, content: bytes) -> str:
    status, words = response.status_code, place.words(said(content))
    if status in (401, 403):
        return f"{place.name} does not accept the key: {words}. Remove the server, and add it with another key."
    if 300 <= status < 400:
        onwards = place.words(response.headers.get("Location", ""))
        return f"{place.name} sends on to another address ({onwards}), which is not told the key. Add that one instead."
    if status == 404:
        return f"{place.name} does not know what it was asked for: {words}. Check its address and the model's name."
    return f"{place.name} refused the request (HTTP {status}): {words}. Change what it names, or try again later."


def _failure(place: RemotePlace, error: httpx2.HTTPError) -> str:
    import httpx2

    if (certificate := certificate_error(error)) is not None:
        return trust.refusal(place.name, certificate)
    if isinstance(error, httpx2.ReadTimeout):
        return f"{place.name} has said nothing for {SILENT_S:.0f} seconds. Try again, or ask another server."
    if isinstance(error, httpx2.TransportError) and not isinstance(
        error, httpx2.ConnectError | httpx2.TimeoutException
    ):
        return f"{place.name} ended the connection early ({place.words(str(error))}). Try again."
    return unreachable(way_to(place.url), error, "Check that the server runs and that its address is right.")
