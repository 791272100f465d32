"""Switches of the cache of keys and values."""

from __future__ import annotations

from engine.catalogue.option import Choice, Conflict, Option

CACHE = (
    Option(
        key="kv_cache",
        title="KV cache",
        group="Cache",
        default=True,
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Keeps the keys and values of every token already read, so that each new token costs one row of work. "
        "Without it the whole text is computed again for every token.",
        shows="tokens per second, falling with length when off",
        compare=(False, True),
        conflicts=(
            Conflict(
                False,
                "speculation",
                ("ngram", "draft"),
                "Guessing ahead needs the KV cache: switch speculation off first.",
            ),
        ),
    ),
    Option(
        key="page_reservation",
        title="Page reservation",
        group="Cache",
        default="on_demand",
        scope="engine",
        applies="next request",
        exactness="lossless",
        explains="Hands out memory sixteen tokens at a time, as an answer grows. "
        "Reserving the whole context up front is what older servers did: most of it stays empty.",
        shows="share of the cache that holds no token",
        reference="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
        choices=(Choice("on_demand", "on demand"), Choice("whole_context", "whole context")),
        compare=("whole_context", "on_demand"),
    ),
    Option(
        key="prefix_cache",
        title="Prefix reuse",
        group="Cache",
        default=True,
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Keeps the pages of finished answers in a tree by their text, so that a conversation that goes on, "
        "a changed last question or a shared system prompt is read from memory. "
        "Without it every prompt is computed from its first token.",
        shows="time to first token, and share of prompt tokens found",
        reference="Zheng et al. 2023, SGLang: RadixAttention (arXiv 2312.07104)",
        compare=(False, True),
    ),
)
