"""Messages about the cache: replies to what one client asks, and views of the cache sent while it changes."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeVar

from engine.compute.vision.placeholders import is_mark
from engine.loop.admission import NO_MODEL
from engine.loop.cache_view import PagesSnapshot, PageView, Reads, TreeSnapshot, page_described, page_map, radix_tree
from engine.protocol import Cost, DescribePage, MeasureCost, Message, PageMap, RadixTree
from engine.services.answers.answering import in_thread
from engine.services.answers.overflow import check_length
from engine.services.answers.refused import Refused
from engine.services.answers.turns import Turns
from engine.services.hub import EngineHub

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

_T = TypeVar("_T")
log = logging.getLogger(__name__)

BUSY = "The engine is in the middle of something long (a model is being loaded, or a step takes long). Try again later."
PICTURE = "[picture]"
"""What is shown where tokens stand for a picture."""
NO_PAGES = PageMap(total=0, states=zlib.compress(b""), owners=zlib.compress(b""))
NO_TREE = RadixTree(nodes=[], total_nodes=0, total_tokens=0)


class CacheMessages:
    """Used by one session; ``put`` sends to its client."""

    def __init__(self, hub: EngineHub, put: Callable[[Message], None]) -> None:
        self._hub, self._put = hub, put

    async def watch(self, topics: Collection[str], interval: float) -> None:
        """Send the map of pages and the prefix tree whenever they changed, at most once in ``interval`` seconds."""
        kinds: list[Literal["pages", "tree"]] = [kind for kind in ("pages", "tree") if kind in topics]
        sent: dict[str, int] = {}
        while True:
            # Read before looking: what changes in between is sent next time.
            version = self._hub.engine.cache_version()
            for kind in kinds:
                if sent.get(kind) != version:
                    try:
                        self._put(await self._shown(kind))
                        sent[kind] = version
                    except TimeoutError:
                        log.debug("the engine is too busy to show its cache")
            await self._hub.pause(interval)

    async def describe(self, message: DescribePage) -> None:
        """Raises :class:`Refused` for a page that does not exist."""
        reads = _reads(self._tokenizer())
        seen = await _in_time(self._hub.inspect("page", message.page + 1)) if message.page >= 0 else None
        if not isinstance(seen, PageView):
            raise Refused("bad_page", f"The cache has no page {message.page}. Choose one of the page map.")
        self._put(page_described(message.id, seen, reads))

    async def measure(self, message: MeasureCost, turns: Turns) -> None:
        """Raises :class:`Refused` where there is nothing to measure on."""
        tokenizer = self._tokenizer()
        scores = await _in_time(self._hub.measure(await self._text(message, turns, tokenizer)))
        if isinstance(scores, str):
            raise Refused("cost_failed", scores)
        self._put(Cost(id=message.id, **scores._asdict()))

    async def _text(self, message: MeasureCost, turns: Turns, tokenizer: Tokenizer) -> Sequence[int]:
        """Token ids of the text to measure on."""
        if message.prompt:
            loaded = self._hub.loaded
            special = loaded is None or loaded.files is None or not loaded.files.template.own

            def read() -> list[int]:
                check_length(message.prompt, tokenizer)
                return tokenizer.encode(message.prompt, special)

            return await in_thread(self._hub, message.prompt, read)
        turn = turns.last_of(message.chat, tokenizer)
        if turn is None:
            text = "This chat has no answer from the model since it was loaded. Ask something, then measure."
            raise Refused("unknown_chat", text)
        if any(message.pictures for message in turn.messages or ()):
            raise Refused("cost_failed", "This chat has pictures, and only text is measured. Choose another chat.")
        return turn.all_ids.tolist()

    async def _shown(self, kind: Literal["pages", "tree"]) -> Message:
        seen = await self._hub.inspect(kind)
        if isinstance(seen, PagesSnapshot):
            return await asyncio.to_thread(page_map, seen, self._hub.client_id)
        loaded = self._hub.loaded
        if isinstance(seen, TreeSnapshot) and loaded is not None and loaded.files is not None:
            return await asyncio.to_thread(radix_tree, seen, _reads(loaded.files.tokenizer))
        return NO_PAGES if kind == "pages" else NO_TREE

    def _tokenizer(self) -> Tokenizer:
        loaded = self._hub.loaded
        if loaded is None or loaded.files is None:
            raise Refused("no_model", NO_MODEL)
        return loaded.files.tokenizer


async def _in_time(reply: Awaitable[_T]) -> _T:
    """The reply, or that it took too long."""
    try:
        return await reply
    except TimeoutError as error:
        raise Refused("busy", BUSY) from error


def _reads(tokenizer: Tokenizer) -> Reads:
    def read(ids: Sequence[int]) -> str:
        return "".join(
            PICTURE if mark else tokenizer.decode(list(run), skip_special=False) for mark, run in groupby(ids, is_mark)
        )

    return read
