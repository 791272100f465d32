"""Switches of which pages a row sees."""

from __future__ import annotations

from engine.catalogue.option import Choice, Conflict, Option

PAGE_POLICIES = (
    Option(
        key="page_policy",
        title="Page policy",
        group="Cache",
        default="keep_all",
        scope="engine",
        applies="cache",
        exactness="approximate",
        explains="A window with sinks keeps the last tokens and the first four: memory stays constant, what lies "
        "between is forgotten, and no text is shared between prompts. "
        "QUEST keeps everything, and each head of a new token reads the pages that matter most.",
        shows="pages of a long answer, bytes read for a token, and perplexity",
        reference="Xiao et al. 2023, StreamingLLM (arXiv 2309.17453); Tang et al. 2024, QUEST (arXiv 2406.10774)",
        choices=(
            Choice("keep_all", "keep all"),
            Choice("window_sinks", "window + sinks", needs=("sliding window",)),
            Choice("quest", "QUEST", needs=("page bounds",)),
        ),
        compare=("keep_all", "window_sinks"),
        conflicts=(
            Conflict(
                "quest",
                "kv_kind",
                ("int8", "int4", "kivi"),
                "QUEST ranks pages by keys of 16 bits: set the kind of KV cache to 16-bit first.",
            ),
            Conflict(
                "window_sinks",
                "kv_kind",
                ("kivi",),
                "No window slides over a KIVI cache: choose another kind of KV cache first.",
            ),
        ),
    ),
    Option(
        key="window_tokens",
        title="Window (tokens)",
        group="Cache",
        default=1024,
        minimum=64,
        maximum=1_048_576,
        scope="engine",
        applies="next request",
        exactness="approximate",
        explains="How many of the last tokens a window with sinks keeps. Pages go whole, so it is up to fifteen more.",
        of=("page_policy", "window_sinks"),
        shows="pages of a long answer",
        reference="Xiao et al. 2023, StreamingLLM (arXiv 2309.17453)",
    ),
    Option(
        key="quest_tokens",
        title="QUEST budget (tokens)",
        group="Cache",
        default=1024,
        minimum=16,
        maximum=1_048_576,
        scope="engine",
        applies="next request",
        exactness="approximate",
        explains="How many tokens each head of a new token reads, in whole pages of sixteen, of which one is the page "
        "that is being written. The first two layers read everything, and so do the tokens of the prompt.",
        of=("page_policy", "quest"),
        shows="bytes read for a token",
        reference="Tang et al. 2024, QUEST (arXiv 2406.10774)",
    ),
)
