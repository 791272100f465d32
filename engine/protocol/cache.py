"""Messages about the KV cache: its pages, its prefix tree, what it saved and what an approximation costs."""

from __future__ import annotations

from typing import Literal

from engine.protocol.base import Message, Part

PageState = Literal["free", "private", "shared", "cached", "locked", "quantised", "evicted"]
PAGE_STATES: tuple[PageState, ...] = ("free", "private", "shared", "cached", "locked", "quantised", "evicted")
"""Meaning of a byte of :attr:`PageMap.states`, by value.

private: one answer's own. shared: several answers read it. cached: in the prefix tree and unused, so it may be evicted.
locked: in the tree and in use. quantised: in use, its keys and values packed. evicted: free, and what it held was given
up for lack of room.
"""


class PageOwner(Part, frozen=True):
    """``chat`` is :attr:`Generate.chat` of who fills the pages or read them last, "" where the client gave none;
    ``id`` its request."""

    chat: str
    id: str


class PageMap(Message, tag="page_map", frozen=True):
    """Every page of the pool, in order. ``states`` and ``owners`` are compressed with zlib.

    ``states`` holds one byte a page, an index of PAGE_STATES. ``owners`` holds two bytes a page, little-endian: 0 for
    nobody, else 1 + the place in ``legend``. ``swapped`` pages are in host memory and ``saved`` ones in files, besides.
    """

    total: int
    states: bytes
    owners: bytes
    legend: list[PageOwner] = []
    page_tokens: int = 16
    swapped: int = 0
    saved: int = 0


class DescribePage(Message, tag="describe_page", frozen=True):
    """Ask what a cell of the page map holds; ``page`` counts from 0."""

    id: str
    page: int


class PageDescribed(Message, tag="page_described", frozen=True):
    """``first`` to ``last`` are the indices of its tokens in their sequence; ``text`` is what they read."""

    id: str
    page: int
    state: PageState
    chats: list[str] = []
    first: int = 0
    last: int = 0
    text: str = ""


class TreeNode(Part, frozen=True):
    """A run of pages that were read one after the other. ``parent`` -1 is the root, ``chat`` who read it last.

    ``locks`` answers read it now, and ``hits`` prompts found it so far.
    """

    id: int
    parent: int
    tokens: int
    place: Literal["device", "host", "disk"] = "device"
    locks: int = 0
    hits: int = 0
    idle_seconds: float = 0.0
    text: str = ""
    chat: str = ""


class RadixTree(Message, tag="radix_tree", frozen=True):
    """The prefix tree, parents before children; at most a few hundred nodes, those used last."""

    nodes: list[TreeNode]
    total_nodes: int
    total_tokens: int


class CacheStats(Part, frozen=True):
    """Counters since the model was loaded. ``looked_up`` are prompt tokens, ``hit`` those found; ``swapped_out`` and
    ``swapped_in`` are bytes that went to host memory and came back."""

    looked_up: int = 0
    hit: int = 0
    evicted_pages: int = 0
    host_pages: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0
    swapped_out: int = 0
    swapped_in: int = 0
    kind: str = "16-bit"
    bits_per_element: float = 16.0
    bits_with_recent: float = 16.0
    """Bits of a number by the bytes allocated for keys and values, with the tokens that are not packed yet."""
    recent_pages: int = 0
    """Pages of such tokens, or of layers with a window, that are kept for texts which go on from others."""
    state_bytes: int = 0
    """Bytes of one state, of all layers that carry one; 0: the model has none."""
    states: int = 0
    """States in memory now, those of answers and those kept of texts..."""
    states_kept: int = 0
    """... and how many are kept of texts, there and in host memory."""


class ContextCut(Message, tag="context_cut", frozen=True):
    """The part of a conversation that the model does not see: the messages [first, last), counted from 0.

    For policy "window" there is no such range: the model sees the first ``sinks`` tokens and the last ``window``.
    """

    id: str
    policy: Literal["drop_middle", "window"]
    first: int = 0
    last: int = 0
    tokens: int = 0
    sinks: int = 0
    window: int = 0


class MeasureCost(Message, tag="measure_cost", frozen=True):
    """Ask what the present approximation of keys and values costs on a text, compared with 16 bits and all pages."""

    id: str
    prompt: str
    """Rendered text, or "" for the conversation of ``chat`` that the cache knows."""
    chat: str = ""


class Cost(Message, tag="cost", frozen=True):
    """Perplexities over ``tokens`` tokens; ``divergence`` is the mean KL between the next-token distributions, nats.

    ``error`` is the standard error of ln(present / exact), from its differences token by token.
    """

    id: str
    tokens: int
    exact: float
    present: float
    divergence: float
    setting: str
    error: float = 0.0
    same_top: float = 1.0
    """Share of the tokens at which both think the same one the likeliest."""


class ForgetChat(Message, tag="forget_chat", frozen=True):
    """A chat was deleted: what the engine keeps of it in the cache, in host memory and on disk goes too."""

    chat: str
