"""What the view of the cache says. Pure functions, no widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.plots.words import kv_kept, size, waste
from engine.protocol import CacheStats, PageDescribed, PageState, RadixTree, Telemetry, TreeNode

if TYPE_CHECKING:
    from app.cache.pages import Pages

STATE_WORDS: dict[PageState, str] = {
    "free": "free",
    "private": "one answer's own",
    "shared": "shared by several answers",
    "cached": "kept for reuse, not in use",
    "locked": "kept for reuse, and in use",
    "quantised": "in use, in fewer bits",
    "evicted": "given up for lack of room",
}
"""What each state of a page means, after "Page 12: "."""
STATE_TITLES: dict[PageState, str] = {
    "free": "free",
    "private": "own",
    "shared": "shared",
    "cached": "kept",
    "locked": "kept, in use",
    "quantised": "fewer bits",
    "evicted": "given up",
}
PLACES = {"device": "", "host": "in RAM", "disk": "on disk"}
UNKNOWN_CHAT = "no saved chat"
"""Of another program, of a measurement, or of a chat that is being deleted."""


def pages_by_state(pages: Pages) -> str:
    """For example "4,096 pages: 12 shared, 600 own, 3,484 free"."""
    counts = [(STATE_TITLES[state], count) for state, count in pages.counts().items() if count]
    return f"{pages.total:,} pages: " + ", ".join(f"{count:,} {name}" for name, count in reversed(counts))


def in_use(pages: Pages) -> str:
    """For example "12 used, 600 kept of 4,096"."""
    counts = pages.counts()
    kept = counts["cached"]
    used = pages.total - counts["free"] - counts["evicted"] - kept
    return f"{used:,} used, {kept:,} kept of {pages.total:,}"


def beside(pages: Pages) -> str:
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
    runs = "run" if message.total_nodes == 1 else "runs"
    return f"{message.total_nodes:,} {runs}, {message.total_tokens:,} tokens{more}"


def facts(node: TreeNode) -> list[str]:
    """What stands at the right of a run: where it is, who holds it, how often it served."""
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
    """(name, value, explanation) of every figure beside the tree."""
    cache, memory = frame.cache, frame.memory
    of = f"{cache.hit:,} of {cache.looked_up:,} prompt tokens since the model was loaded were in the cache"
    kind = cache.kind if cache.bits_per_element >= 16 else f"{cache.kind}, {cache.bits_per_element:.3g} bits"
    kept = kv_kept(frame)
    dense = memory.kv_used * 16 / max(cache.bits_per_element, 1e-9)
    smaller = f"; in 16 bits both would be {size(dense)}" if cache.bits_per_element < 16 and memory.kv_used else ""
    if cache.bits_with_recent > cache.bits_per_element:
        smaller += f"; with recent tokens, which are not packed, {cache.bits_with_recent:.3g} bits"
    return [
        ("Hit rate", hit_rate(cache), of if cache.looked_up else "No prompt has been looked up yet"),
        ("Prefill saved", f"{cache.hit:,} tokens", "Prompt tokens that did not have to be read again"),
        ("Waste", f"{100 * waste(frame.pages):.1f} %", "Slots of used pages that hold no token"),
        (
            f"KV, {kind}",
            size(memory.kv_used),
            f"Keys and values: {size(memory.kv_used - kept)} of answers that are being written, {size(kept)} kept for "
            f"reuse{smaller}",
        ),
        (
            "In RAM",
            size(cache.host_bytes),
            f"{cache.host_pages:,} pages there now; {size(cache.swapped_out)} went out and {size(cache.swapped_in)} came back",
        ),
        ("On disk", size(cache.disk_bytes), "Chats whose keys and values can be read back instead of computed"),
        (
            "Given up",
            f"{cache.evicted_pages:,} pages",
            "Kept pages that made room for others; what is in RAM or on disk can come back",
        ),
    ]
