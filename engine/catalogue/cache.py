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
        key="page_policy",
        title="Page policy",
        group="Cache",
        default="keep_all",
        scope="engine",
        applies="next request",
        exactness="approximate",
        explains="A window with sinks keeps the last tokens and the first four: memory stays constant however long "
        "an answer gets. What lies between is forgotten, and the model cannot quote it.",
        shows="pages of a long answer, and the tokens it no longer sees",
        reference="Xiao et al. 2023, StreamingLLM (arXiv 2309.17453)",
        choices=(Choice("keep_all", "keep all"), Choice("window_sinks", "window + sinks")),
        compare=("keep_all", "window_sinks"),
    ),
    Option(
        key="window_tokens",
        title="Window",
        group="Cache",
        default=1024,
        minimum=64,
        maximum=1_048_576,
        scope="engine",
        applies="next request",
        exactness="approximate",
        explains="How many of the last tokens a window with sinks keeps; pages go whole, so it is up to fifteen more. "
        "Other page policies have no window.",
        shows="pages of a long answer",
        reference="Xiao et al. 2023, StreamingLLM (arXiv 2309.17453)",
    ),
    Option(
        key="quest_tokens",
        title="QUEST budget",
        group="Cache",
        default=1024,
        minimum=16,
        maximum=1_048_576,
        scope="engine",
        applies="next request",
        exactness="approximate",
        explains="How many tokens each head of a new token reads under QUEST, in whole pages of sixteen. The page that "
        "is being written counts, the first two layers read everything, and so do the tokens of the prompt.",
        shows="bytes read for a token",
        reference="Tang et al. 2024, QUEST (arXiv 2406.10774)",
    ),
    Option(
        key="cascade",
        title="Shared prefixes once",
        group="Cache",
        default=True,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Reads keys and values that several answers share once for all of them, and merges the rest of each. "
        "It is left out where it gains nothing (few shared tokens, Kvasir's own kernel on a processor) "
        "and under batch-invariant arithmetic.",
        shows="readings of keys saved, and tokens per second of many answers to one prompt",
        reference="Juravsky et al. 2024, Hydragen (arXiv 2402.05099)",
        compare=(False, True),
    ),
)
