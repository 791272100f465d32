"""Texts of the view of the cache. Pure functions, no widgets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from app.language import figure, known, plural, tr
from app.words import kv_cached, size, waste
from engine.protocol import CacheStats, PageDescribed, PageState, RadixTree, Telemetry, TreeNode

if TYPE_CHECKING:
    from app.charts.page_states import PageStates

STATE_WORDS: dict[PageState, str] = {
    "free": tr("free"),
    "private": tr("private, one answer alone reads and writes it"),
    "shared": tr("shared, several answers read it"),
    "cached": tr("cached for texts that begin alike, and not in use"),
    "locked": tr("cached and in use by an answer"),
    "quantised": tr("quantised, it holds its tokens in fewer bits"),
    "evicted": tr("evicted, what it held made room"),
}
"""Meaning of each state of a page, after "Page 12: "."""
STATE_TITLES: dict[PageState, str] = {
    "free": tr("free"),
    "private": tr("private"),
    "shared": tr("shared"),
    "cached": tr("cached"),
    "locked": tr("cached and in use"),
    "quantised": tr("quantised"),
    "evicted": tr("evicted"),
}
MEANINGS: dict[PageState, str] = {
    "free": tr("holds nothing"),
    "private": tr("one answer alone reads and writes it"),
    "shared": tr("several answers read it"),
    "cached": tr("for texts that begin alike, and not in use"),
    "locked": tr("by an answer"),
    "quantised": tr("it holds its tokens in fewer bits"),
    "evicted": tr("what it held made room"),
}
"""Meaning of each state after its title."""
_ROLE = re.compile(r"(?:<\|(?:im_start|start_header_id)\|>|<start_of_turn>)(\w+)(?:<\|end_header_id\|>)?\n")
_MARK = re.compile(r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:bos|eos|(?:start|end)_of_turn)>|\[/?INST\]")
PLACES = {"device": "", "host": tr("in RAM"), "disk": tr("on disk")}
UNKNOWN_CHAT = tr("no saved chat")
"""The title of a chat of another program, of a measurement, or of one that is being deleted."""


def pages_by_state(pages: PageStates) -> str:
    """Describe all pages by state, such as "4,096 pages: 12 shared, 600 private, 3,484 free"."""
    counts = [(STATE_TITLES[state], count) for state, count in pages.counts().items() if count]
    listed = ", ".join(f"{figure(count)} {name}" for name, count in reversed(counts))
    return tr("{n:,} pages: {states}", n=pages.total, states=listed)


def in_use(pages: PageStates) -> str:
    """Describe the use of the pages, such as "12 in use · 600 cached of 4,096"."""
    of = tr("{cached:,} cached of {total:,}", cached=pages.counts()["cached"], total=pages.total)
    return f"{used(pages)} · {of}"


def used(pages: PageStates) -> str:
    """The same in short, such as "12 in use"."""
    counts = pages.counts()
    return tr("{used:,} in use", used=pages.total - counts["free"] - counts["evicted"] - counts["cached"])


def elsewhere(pages: PageStates) -> str:
    """Pages that are not in the pool; "" for none."""
    parts = [tr("{n:,} more in RAM", n=pages.swapped)] if pages.swapped else []
    parts += [tr("{n:,} saved on disk", n=pages.saved)] if pages.saved else []
    return ", ".join(parts)


def page(message: PageDescribed) -> str:
    """The second line of a page's card."""
    said = tr("Page {n:,}: {state}", n=message.page, state=STATE_WORDS[message.state])
    if not (message.chats or message.text):
        return said
    return f"{said}, {tr('tokens {first:,} to {last:,}', first=message.first, last=message.last)}"


def tree(message: RadixTree) -> str:
    left_out = message.total_nodes - len(message.nodes)
    parts = [plural("1 node", "{n:,} nodes", message.total_nodes), token_count(message.total_tokens)]
    parts += [tr("{n:,} not shown", n=left_out)] if left_out > 0 else []
    return ", ".join(parts)


def token_count(number: int) -> str:
    return plural("1 token", "{n:,} tokens", number)


def readable(text: str) -> str:
    """A node's text on one line, without the marks that a chat template puts between messages."""
    named = _ROLE.sub(r" \1: ", text)
    return " ".join(_MARK.sub(" ", named).split())


def facts(node: TreeNode) -> list[str]:
    """Facts at the right of a run: its tier, its locks, its hits, and the time an unlocked one has been idle."""
    parts = [PLACES[node.place]] if PLACES[node.place] else []
    if node.locks:
        parts.append(tr("in use") if node.locks == 1 else tr("in use ×{n}", n=node.locks))
    if node.hits:
        parts.append(plural("1 hit", "{n:,} hits", node.hits))
    if not node.locks:
        parts.append(tr("idle {time}", time=span(node.idle_seconds)))
    return parts


def span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"  # not shown


def hit_rate(cache: CacheStats) -> str:
    return f"{100 * cache.hit / cache.looked_up:.0f} %" if cache.looked_up else "–"


def figures(frame: Telemetry) -> list[tuple[str, str, str]]:
    """(name, value, explanation) of every figure next to the tree."""
    cache, memory = frame.cache, frame.memory
    of = tr(
        "{hit:,} of {all:,} prompt tokens since the model was loaded were in the cache",
        hit=cache.hit,
        all=cache.looked_up,
    )
    states = []
    if cache.state_bytes:
        meaning = tr(
            "States of recurrent layers, {size} each: {kept:,} kept of texts, from which later ones go on",
            size=size(cache.state_bytes),
            kept=cache.states_kept,
        )
        states.append((tr("States"), size(cache.states * cache.state_bytes), meaning))
    packed = cache.bits_per_element < 16
    kind = known(cache.kind)
    kind = tr("{kind}, {bits:.3g} bits", kind=kind, bits=cache.bits_per_element) if packed else kind
    moved = tr(
        "{pages:,} pages there now; {out} went out and {back} came back",
        pages=cache.host_pages,
        out=size(cache.swapped_out),
        back=size(cache.swapped_in),
    )
    return [
        (tr("Hit rate"), hit_rate(cache), of if cache.looked_up else tr("No prompt has been looked up yet")),
        (tr("Prompt tokens not recomputed"), figure(cache.hit), tr("Tokens of prompts that were found in the cache")),
        (
            tr("Unused slots (fragmentation)"),
            f"{figure(100 * waste(frame.pages), '.1f')} %",
            tr("Slots of pages in use that hold no token"),
        ),
        (f"KV, {kind}", size(memory.kv_used), _keys_and_values(frame)),
        *states,
        (tr("In RAM"), size(cache.host_bytes), moved),
        (
            tr("On disk"),
            size(cache.disk_bytes),
            tr("Chats whose keys and values can be read back instead of computed"),
        ),
        (
            tr("Evicted"),
            plural("1 page", "{n:,} pages", cache.evicted_pages),
            tr("Cached pages that made room; those in RAM or on disk can come back"),
        ),
    ]


def _keys_and_values(frame: Telemetry) -> str:
    """Who holds them, and what their kind saves."""
    cache, memory, kept = frame.cache, frame.memory, kv_cached(frame)
    parts = [
        tr(
            "Keys and values: {used} of answers that are being written, {kept} cached for reuse",
            used=size(memory.kv_used - kept),
            kept=size(kept),
        )
    ]
    if cache.bits_per_element < 16 and memory.kv_used:
        dense = memory.kv_used * 16 / max(cache.bits_per_element, 1e-9)
        parts.append(tr("in 16 bits both would be {size}", size=size(dense)))
    if cache.bits_with_recent > cache.bits_per_element:
        recent = cache.bits_with_recent
        parts.append(tr("with recent tokens, which are not packed, {bits:.3g} bits", bits=recent))
    return "; ".join(parts)
