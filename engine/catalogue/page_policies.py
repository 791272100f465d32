"""Switches of which pages a row sees."""

from __future__ import annotations

from functools import partial

from engine.catalogue.metrics import CACHE_BYTES
from engine.catalogue.option import Choice, Option
from engine.protocol import CACHE_GROUP, keys

_attention = partial(Option, group=CACHE_GROUP, scope="engine", exactness="approximate")
"""Fields that the switches of page policies (which pages attention sees) share."""

PAGE_POLICIES = (
    _attention(
        key=keys.PAGE_POLICY,
        title="Attention",
        default="keep_all",
        metric=CACHE_BYTES,
        applies="cache",
        explains="Decides which earlier tokens a new token may look at: all of them, the last ones and the first four "
        "(StreamingLLM), or the pages that matter most (QUEST). "
        "The window keeps memory constant; QUEST keeps everything and reads less of it.",
        shows="pages of a long answer, bytes read per token, and perplexity",
        helps="Very long texts: endless chats for the window, long documents for QUEST.",
        costs="The text may change. The window forgets what lies before it and shares no prefixes; QUEST needs the "
        "16-bit cache and sees only the pages it chooses.",
        source=("engine/cache/policies.py", "engine/cache/stores/quest.py", "engine/compute/attention/quest.py"),
        also=("page policy", "attention policy"),
        reference="Xiao et al. 2023, StreamingLLM (arXiv 2309.17453)",
        choices=(
            Choice("keep_all", "full", explains="Every earlier token. This is lossless."),
            Choice(
                "window_sinks",
                "sliding window + sinks (StreamingLLM)",
                needs=("sliding window",),
                explains="Keeps the last tokens and the first four, the attention sinks, without which a window breaks "
                "down. Memory stays constant, and what lies between is forgotten.",
                also=("StreamingLLM", "attention sinks", "sinks", "sliding window with sinks"),
            ),
        ),
        compare=("keep_all", "window_sinks"),
    ),
    _attention(
        key=keys.WINDOW_TOKENS,
        title="Window size (tokens)",
        default=1024,
        minimum=64,
        maximum=1_048_576,
        metric=CACHE_BYTES,
        applies="next request",
        explains="How many of the last tokens the sliding window keeps. "
        "Whole pages are kept, so it may be up to fifteen more.",
        of=(keys.PAGE_POLICY, ("window_sinks",)),
        shows="pages of a long answer",
        helps="A smaller window takes less memory.",
        costs="What lies before the window is forgotten.",
        source=("engine/cache/policies.py",),
        reference="Xiao et al. 2023, StreamingLLM (arXiv 2309.17453)",
    ),
)
