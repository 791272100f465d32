"""Switches of the cache of keys and values."""

from __future__ import annotations

from functools import partial

from engine.catalogue.metrics import FIRST_TOKEN, KV_BYTES, MANY_CHATS, PAUSED, RESTART, SPEED, UNUSED_SLOTS
from engine.catalogue.option import Choice, Option, Relevance
from engine.protocol import CACHE_GROUP, Measure, NumberRange, keys

_cache = partial(Option, group=CACHE_GROUP)
"""Fields that the switches of the cache share."""

CACHE = (
    _cache(
        key=keys.KV_CACHE,
        title="KV cache",
        default=True,
        scope="request",
        applies="next request",
        explains="Keeps the keys and values of every token already read, so that each new token costs one row of work. "
        "Without it the whole text is computed again for every token.",
        measure=Measure(
            "tokens per second (without it, they fall as the text grows)", SPEED, (False, True), "kv_cache"
        ),
        helps="Always. Switch it off only to see what it is for.",
        costs="Memory that grows with the text: 2 x layers x KV heads x head size numbers for each token.",
        source=("engine/cache/stores/store.py", "engine/cache/pool.py"),
        also=("keys and values", "key-value cache"),
    ),
    _cache(
        key=keys.PAGE_RESERVATION,
        title="KV allocation",
        default="on_demand",
        applies="next request",
        explains="Decides when a chat gets memory for its keys and values. "
        "Paged allocation (PagedAttention) hands out pages of sixteen tokens as the text grows, so that memory is not "
        "held for tokens that never come.",
        measure=Measure(
            "chats that fit at once, and the share of slots that hold no token",
            UNUSED_SLOTS,
            ("whole_context", "on_demand"),
            "paging",
        ),
        helps="Many chats at once, or long contexts: more of them fit into the same memory.",
        costs="Nothing in the text. At most fifteen slots of a chat's last page stay empty.",
        source=("engine/cache/pool.py", "engine/cache/sequences.py"),
        also=("PagedAttention", "page reservation", "paging"),
        reference="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
        choices=(
            Choice("on_demand", "paged (PagedAttention)", explains="A page is taken when the text reaches it."),
            Choice(
                "whole_context",
                "contiguous, whole context",
                explains="Pages for the whole context are taken at the start, as servers did before PagedAttention: "
                "most of them stay empty.",
            ),
        ),
    ),
    _cache(
        key=keys.PREFIX_CACHE,
        title="Prefix caching (RadixAttention)",
        common=True,
        default=True,
        scope="request",
        applies="next request",
        explains="Keeps the pages of finished answers in a radix tree by their text, so that the beginning that a "
        "prompt shares with an earlier one is not computed again. "
        "The next turn of a chat, an edited last question and a shared system prompt then cost only what is new.",
        measure=Measure(
            "time to first token, and the share of prompt tokens found in the cache",
            FIRST_TOKEN,
            (False, True),
            "prefixes",
        ),
        helps="Every chat from its second message on, and chats that share a system prompt or a document.",
        costs="Nothing in the text. Cached pages fill memory that is free and make way for answers. It brings nothing "
        "to a prompt with a new beginning, and is not used under sliding window + sinks.",
        source=("engine/cache/prefix/radix.py",),
        also=("RadixAttention", "prefix reuse", "prompt caching", "radix tree"),
        reference="Zheng et al. 2023, SGLang: RadixAttention (arXiv 2312.07104)",
    ),
    _cache(
        key=keys.WINDOW_PAGES,
        title="Free unused pages (sliding windows)",
        default=True,
        applies="cache",
        explains="Gives up the keys and values that layers with a sliding window will not look at again, so that only "
        "the layers that look at everything grow with the text. "
        "Without it every layer keeps the whole text.",
        measure=Measure("tokens that fit into the cache, and bytes of keys and values", KV_BYTES, (False, True)),
        helps="Long contexts on models most of whose layers have a window: Gemma 2, 3 and 4, gpt-oss.",
        costs="Nothing in the text. One that leaves an earlier text in its middle may find less of it in the prefix "
        "cache. A draft model keeps all of its own.",
        source=("engine/cache/slots.py", "engine/cache/groups/window.py", "engine/cache/stores/windowed.py"),
        also=("sliding window attention", "SWA", "hybrid KV cache", "interleaved attention"),
        reference="Gemma Team 2025, Gemma 3 (arXiv 2503.19786)",
        relevant=Relevance(capabilities=("layer windows",)),
    ),
    _cache(
        key=keys.PREEMPTION,
        title="When memory is full",
        default="auto",
        applies="live",
        explains="When the KV cache is full, the newest answer is paused (preempted) so that older ones can go on. "
        "This says what becomes of its keys and values until it continues.",
        measure=Measure("seconds that a paused answer waits, and pages in RAM", PAUSED, ("recompute", "swap")),
        helps="More chats at once than the cache has room for.",
        costs="Nothing in the text: a paused answer continues at the same token. Recomputing costs time, swapping "
        "costs RAM.",
        source=("engine/decoding/scheduling/preemption.py", "engine/cache/offload/swap.py"),
        also=("preemption", "swap", "swapping", "recompute"),
        reference="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
        choices=(
            Choice(
                "auto", "auto", explains="Whichever takes less time, by the measured speeds of copying and of prefill."
            ),
            Choice("recompute", "recompute", explains="They are dropped and computed again, like a prompt."),
            Choice("swap", "swap to RAM", explains="They are copied to the machine's memory and back."),
        ),
    ),
    _cache(
        key=keys.HOST_CACHE,
        title="KV offload to RAM (GB)",
        default=1.0,
        range=NumberRange(0.0, 1000.0, "off"),
        applies="live",
        explains="Moves keys and values that the cache has no room for to the machine's memory: texts that may come "
        "again, and answers that were paused. "
        "Copying them back is faster than computing the text again.",
        measure=Measure(
            "prompt tokens found instead of computed, and bytes in RAM", MANY_CHATS, (0.0, 1.0), "prefixes"
        ),
        helps="Many or long chats on a GPU with little memory of its own.",
        costs="Up to the RAM that is set here. Nothing in the text.",
        source=("engine/cache/offload/swap.py", "engine/cache/tiers.py"),
        also=("cache in RAM", "host cache", "host memory", "CPU offload"),
    ),
    _cache(
        key=keys.DISK_CACHE,
        title="KV cache on disk (GB)",
        common=True,
        default=0.0,
        range=NumberRange(0.0, 1000.0, "off"),
        applies="live",
        on_change="resize saved chats",
        explains="Instant resume: saves the keys and values of chats, with their tokens, in files that only your user "
        "can read, so that a chat continues after a restart without a new prefill. "
        "The files take no more room than is set here, and those of a deleted chat are deleted with it.",
        measure=Measure("time to first token of a chat from an earlier day", RESTART, lab="prefixes"),
        helps="Long chats that you return to after a restart.",
        costs="Room on the disk, and files that tell what was said: they are not encrypted. Nothing in the text. "
        "Over a KIVI cache the recent tokens are written again after each answer.",
        source=("engine/cache/offload/saved.py", "engine/cache/offload/saved_files.py"),
        also=("saved chats", "disk cache", "instant resume"),
    ),
    _cache(
        key=keys.CASCADE,
        title="Shared-prefix attention (cascade)",
        default=True,
        applies="live",
        explains="Reads the keys and values that several running answers share once for all of them, and merges the "
        "result with each answer's own part. "
        "It leaves itself out where it gains nothing: few shared tokens, Kvasir's own kernel on a processor, or "
        "batch-invariant arithmetic.",
        measure=Measure("tokens per second of many answers to one prompt", MANY_CHATS, (False, True), "prefixes"),
        helps="Many answers at once to one long shared beginning.",
        costs="Nothing in the text; like any other kernel it may round the last bits differently.",
        source=("engine/compute/attention/cascade.py",),
        also=("cascade", "cascade attention", "Hydragen"),
        reference="Juravsky et al. 2024, Hydragen (arXiv 2402.05099)",
        relevant=Relevance(capabilities=("shared reads",)),
    ),
)
