"""A prefix cache without keys and values for the fake engine: pages of sixteen tokens, shared by like beginnings."""

from __future__ import annotations

import heapq
import threading
import time
import zlib
from dataclasses import dataclass, field

from engine import protocol as p

PAGE = 16


@dataclass
class Page:
    number: int
    parent: int
    tokens: tuple[str, ...]
    chat: str
    chats: set[str] = field(default_factory=set)
    hits: int = 0


class FakeCache:
    """What the engine's cache would tell of the same texts. Safe to call from any thread."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._lock = threading.Lock()
        self._free = list(range(total))
        self._pages: dict[int, Page] = {}
        self._by_content: dict[tuple[int, tuple[str, ...]], int] = {}
        self._texts: dict[str, list[int]] = {}
        self._running: dict[str, str] = {}
        self._used: dict[str, float] = {}
        self.looked_up = self.hit = 0

    def begin(self, chat: str, request: str, prompt: list[str]) -> int:
        """Look a prompt up and hold it; returns how many of its tokens were there."""
        with self._lock:
            self._running[chat] = request
            known = set(self._pages)
            pages = self._hold(chat, prompt)
            cached = PAGE * sum(page in known for page in pages)
            for page in pages:
                self._pages[page].hits += page in known
            self.looked_up += len(prompt)
            self.hit += min(cached, len(prompt))
            return min(cached, len(prompt) - 1) if prompt else 0

    def kept(self, tokens: list[str]) -> int:
        """How many leading tokens of a prompt are there; nothing is held by asking."""
        with self._lock:
            parent = -1
            for start in range(0, len(tokens), PAGE):
                found = self._by_content.get((parent, tuple(tokens[start : start + PAGE])))
                if found is None:
                    return start
                parent = found
            return len(tokens)

    def grow(self, chat: str, text: list[str]) -> None:
        with self._lock:
            self._hold(chat, text)

    def end(self, chat: str) -> None:
        with self._lock:
            self._running.pop(chat, None)

    def forget(self, chat: str) -> None:
        with self._lock:
            self._release(chat)

    def page_map(self) -> p.PageMap:
        with self._lock:
            chats = list(self._texts)
            legend = [p.PageOwner(chat=chat, id=self._running.get(chat, "")) for chat in chats]
            states, owners = bytearray(self.total), bytearray(2 * self.total)
            for page in self._pages.values():
                states[page.number] = p.PAGE_STATES.index(self._state(page))
                owner = 1 + chats.index(page.chat) if page.chat in chats else 0
                owners[2 * page.number : 2 * page.number + 2] = owner.to_bytes(2, "little")
            return p.PageMap(
                total=self.total,
                states=zlib.compress(bytes(states)),
                owners=zlib.compress(bytes(owners)),
                legend=legend,
            )

    def tree(self) -> p.RadixTree:
        """Pages that follow each other with the same chats are one run."""
        with self._lock:
            children: dict[int, list[Page]] = {}
            for page in self._pages.values():
                children.setdefault(page.parent, []).append(page)
            nodes: list[p.TreeNode] = []
            waiting = [(page, -1) for page in reversed(children.get(-1, []))]
            while waiting:
                first, parent = waiting.pop()
                run = [first]
                while len(below := children.get(run[-1].number, [])) == 1 and below[0].chats == first.chats:
                    run.append(below[0])
                text = "".join("".join(page.tokens) for page in run)[:200]
                nodes.append(
                    p.TreeNode(
                        id=first.number,
                        parent=parent,
                        tokens=sum(len(page.tokens) for page in run),
                        locks=sum(chat in self._running for chat in first.chats),
                        hits=max(page.hits for page in run),
                        idle_seconds=time.monotonic() - max(self._used[chat] for chat in first.chats),
                        text=text,
                        chat=first.chat,
                    )
                )
                waiting += [(page, first.number) for page in reversed(children.get(run[-1].number, []))]
            return p.RadixTree(nodes=nodes, total_nodes=len(nodes), total_tokens=sum(node.tokens for node in nodes))

    def describe(self, message: p.DescribePage) -> p.PageDescribed:
        with self._lock:
            page = self._pages.get(message.page)
            if page is None:
                return p.PageDescribed(id=message.id, page=message.page, state="free")
            place = self._texts[page.chat].index(page.number) if page.number in self._texts.get(page.chat, []) else 0
            return p.PageDescribed(
                id=message.id,
                page=message.page,
                state=self._state(page),
                chats=sorted(page.chats, key=list(self._texts).index),
                first=PAGE * place,
                last=PAGE * place + len(page.tokens) - 1,
                text="".join(page.tokens),
            )

    def counts(self) -> p.PageCounts:
        with self._lock:
            live = sum(len(page.tokens) for page in self._pages.values())
            return p.PageCounts(total=self.total, used=len(self._pages), live_tokens=live)

    def stats(self) -> p.CacheStats:
        return p.CacheStats(looked_up=self.looked_up, hit=self.hit, host_pages=0, kind="16-bit", bits_per_element=16.0)

    # --- with the lock held ----------------------------------------------------------------------------------------

    def _hold(self, chat: str, text: list[str]) -> list[int]:
        """The pages of ``text``, shared ones found and the others taken; those of an earlier text go where unused."""
        self._used[chat] = time.monotonic()
        last = self._texts.get(chat, [])[-1:]
        if last and len(self._pages[last[0]].tokens) < PAGE:  # it grows on in the same page
            self._drop(self._texts[chat].pop(), chat)
        held, parent = [], -1
        for start in range(0, len(text), PAGE):
            tokens = tuple(text[start : start + PAGE])
            number = self._by_content.get((parent, tokens))
            if number is None and not self._free:
                break
            if number is None:
                number = heapq.heappop(self._free)
                self._pages[number] = Page(number, parent, tokens, chat)
                self._by_content[parent, tokens] = number
            self._pages[number].chats.add(chat)
            held.append(number)
            parent = number
        for number in set(self._texts.get(chat, [])) - set(held):
            self._drop(number, chat)
        self._texts[chat] = held
        return held

    def _release(self, chat: str) -> None:
        for number in self._texts.pop(chat, []):
            self._drop(number, chat)

    def _drop(self, number: int, chat: str) -> None:
        page = self._pages[number]
        page.chats.discard(chat)
        if not page.chats:
            del self._pages[number]
            heapq.heappush(self._free, number)
            del self._by_content[page.parent, page.tokens]
        elif page.chat == chat:
            page.chat = min(page.chats)

    def _state(self, page: Page) -> p.PageState:
        if not any(chat in self._running for chat in page.chats):
            return "cached"
        if len(page.chats) > 1:
            return "shared"
        return "locked" if page.hits else "private"
