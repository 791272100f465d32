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
                ("auto", "ngram", "draft", "exit", "skip", "medusa", "eagle", "mtp"),
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
    Option(
        key="preemption",
        title="Preemption",
        group="Cache",
        default="auto",
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="When the cache is full, an answer gives up its memory and goes on later: its keys and values are "
        "copied to host memory and back, or computed again. "
        "Automatic takes what costs less time, by the measured speeds of the link and of reading.",
        shows="pages in host memory, and seconds that a preempted answer waits",
        reference="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
        choices=(Choice("auto", "automatic"), Choice("recompute", "recompute"), Choice("swap", "swap")),
        compare=("recompute", "swap"),
    ),
    Option(
        key="host_cache",
        title="Cache in RAM (GB)",
        group="Cache",
        default=1.0,
        minimum=0.0,
        maximum=1000.0,
        zero_means="off",
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Keeps in the machine's memory what the cache has no room for: texts that may come again, and answers "
        "that had to give way. "
        "Copying them back is faster than reading the text again.",
        shows="prompt tokens found instead of read, and bytes in host memory",
        compare=(0.0, 1.0),
    ),
    Option(
        key="disk_cache",
        title="Saved chats (GB)",
        group="Cache",
        default=0.0,
        minimum=0.0,
        maximum=1000.0,
        zero_means="off",
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Saves the keys and values of chats, and the tokens they belong to, in files of yours, so that a chat "
        "goes on after a restart without being read again. "
        "They take no more room than is set here, and a deleted chat's are deleted with it; chats over a KIVI cache "
        "are not saved.",
        shows="time to first token of a chat from an earlier day",
    ),
    Option(
        key="cascade",
        title="Cascade",
        group="Cache",
        default=True,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Reads keys and values that several answers share once for all of them, and merges the rest of each. "
        "It is left out where it gains nothing (few shared tokens, Kvasir's own kernel on a processor) "
        "and under batch-invariant arithmetic.",
        shows="tokens per second of many answers to one prompt",
        reference="Juravsky et al. 2024, Hydragen (arXiv 2402.05099)",
        compare=(False, True),
    ),
)
