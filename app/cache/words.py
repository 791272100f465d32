"""Texts of the view of the cache. Pure functions, no widgets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from app.words import kv_cached, size, waste
from engine.protocol import CacheStats, PageDescribed, PageState, RadixTree, Telemetry, TreeNode

if TYPE_CHECKING:
    from app.charts.page_states import PageStates

STATE_WORDS: dict[PageState, str] = {
    "free": "free",
    "private": "private, one answer alone reads and writes it",
    "shared": "shared, several answers read it",
    "cached": "cached for texts that begin alike, and not in use",
    "locked": "cached and in use by an answer",
    "quantised": "quantised, it holds its tokens in fewer bits",
    "evicted": "evicted, what it held made room",
}
"""Meaning of each state of a page, after "Page 12: "."""
STATE_TITLES: dict[PageState, str] = {
    "free": "free",
    "private": "private",
    "shared": "shared",
    "cached": "cached",
    "locked": "cached and in use",
    "quantised": "quantised",
    "evicted": "evicted",
}
_ROLE = re.compile(r"(?:<\|(?:im_start|start_header_id)\|>|<start_of_turn>)(\w+)(?:<\|end_header_id\|>)?\n")
_MARK = re.compile(r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:bos|eos|(?:start|end)_of_turn)>|\[/?INST\]")
PLACES = {"device": "", "host": "in RAM", "disk": "on disk"}
UNKNOWN_CHAT = "no saved chat"
"""The title of a chat of another program, of a measurement, or of one that is being deleted."""


def pages_by_state(pages: PageStates) -> str:
    """Describe all pages by state, such as "4,096 pages: 12 shared, 600 private, 3,484 free"."""
    counts = [(STATE_TITLES[state], count) for state, count in pages.counts().items() if count]
    return f"{pages.total:,} pages: " + ", ".join(f"{count:,} {name}" for name, count in reversed(counts))


def in_use(pages: PageStates) -> str:
    """Describe the use of the pages, such as "12 in use · 600 cached of 4,096"."""
    counts = pages.counts()
    kept = counts["cached"]
    used = pages.total - counts["free"] - counts["evicted"] - kept
    return f"{used:,} in use · {kept:,} cached of {pages.total:,}"


def elsewhere(pages: PageStates) -> str:
    """Pages that are not in the pool; "" for none."""
    parts = [f"{pages.swapped:,} more in RAM"] if pages.swapped else []
    parts += [f"{pages.saved:,} saved on disk"] if pages.saved else []
    return ", ".join(parts)


def page(message: PageDescribed) -> str:
    """The second line of a page's card."""
    held = f", tokens {message.first:,} to {message.last:,}" if message.chats or message.text else ""
    return f"Page {message.page:,}: {STATE_WORDS[message.state]}{held}"


def tree(message: RadixTree) -> str:
    left_out = message.total_nodes - len(message.nodes)
    more = f", {left_out:,} not shown" if left_out > 0 else ""
    nodes = "node" if message.total_nodes == 1 else "nodes"
    return f"{message.total_nodes:,} {nodes}, {message.total_tokens:,} tokens{more}"


def readable(text: str) -> str:
    """A node's text on one line, without the marks that a chat template puts between messages."""
    named = _ROLE.sub(r" \1: ", text)
    return " ".join(_MARK.sub(" ", named).split())


def facts(node: TreeNode) -> list[str]:
    """Facts at the right of a run: its tier, its locks, its hits, and the time an unlocked one has been idle."""
    parts = [PLACES[node.place]] if PLACES[node.place] else []
    if node.locks:
        parts.append("in use" if node.locks == 1 else f"in use ×{node.locks}")
    if node.hits:
        parts.append(f"{node.hits:,} {'hit' if node.hits == 1 else 'hits'}")
    if not node.locks:
        parts.append(f"idle {span(node.idle_seconds)}")
    return parts


def span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def hit_rate(cache: CacheStats) -> str:
    return f"{100 * cache.hit / cache.looked_up:.0f} %" if cache.looked_up else "–"


def figures(frame: Telemetry) -> list[tuple[str, str, str]]:
    """(name, value, explanation) of every figure next to the tree."""
    cache, memory = frame.cache, frame.memory
    of = f"{cache.hit:,} of {cache.looked_up:,} prompt tokens since the model was loaded were in the cache"
    kind = cache.kind if cache.bits_per_element >= 16 else f"{cache.kind}, {cache.bits_per_element:.3g} bits"
    kept = kv_cached(frame)
    dense = memory.kv_used * 16 / max(cache.bits_per_element, 1e-9)
    smaller = f"; in 16 bits both would be {size(dense)}" if cache.bits_per_element < 16 and memory.kv_used else ""
    if cache.bits_with_recent > cache.bits_per_element:
        smaller += f"; with recent tokens, which are not packed, {cache.bits_with_recent:.3g} bits"
    states = []
    if cache.state_bytes:
        meaning = f"States of recurrent layers, {size(cache.state_bytes)} each: {cache.states_kept:,} kept of texts"
        states.append(("States", size(cache.states * cache.state_bytes), f"{meaning}, from which later ones go on"))
    return [
        ("Hit rate", hit_rate(cache), of if cache.looked_up else "No prompt has been looked up yet"),
        ("Prompt tokens not recomputed", f"{cache.hit:,}", "Tokens of prompts that were found in the cache"),
        (
            "Unused slots (fragmentation)",
            f"{100 * waste(frame.pages):.1f} %",
            "Slots of pages in use that hold no token",
        ),
        (
            f"KV, {kind}",
            size(memory.kv_used),
            f"Keys and values: {size(memory.kv_used - kept)} of answers that are being written, {size(kept)} cached"
            f" for reuse{smaller}",
        ),
        *states,
        (
            "In RAM",
            size(cache.host_bytes),
            f"{cache.host_pages:,} pages there now; {size(cache.swapped_out)} went out and "
            f"{size(cache.swapped_in)} came back",
        ),
        ("On disk", size(cache.disk_bytes), "Chats whose keys and values can be read back instead of computed"),
        (
            "Evicted",
            f"{cache.evicted_pages:,} pages",
            "Cached pages that made room; those in RAM or on disk can come back",
        ),
    ]
