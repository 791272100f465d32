"""Switches of the order of work."""

from __future__ import annotations

from functools import partial

from engine.catalogue.metrics import FIRST_TOKEN, MANY_CHATS, MORE_AT_ONCE, OTHERS_WAIT, QUEUED, SPEED
from engine.catalogue.option import Option, Relevance
from engine.protocol import Measure, NumberRange, keys

_scheduling = partial(Option, group="Scheduling", applies="live")
"""Fields that the switches of scheduling share."""

SCHEDULING = (
    _scheduling(
        key=keys.CHUNKED_PREFILL,
        title="Chunked prefill",
        default=True,
        explains="Computes a long prompt in chunks, between which running answers go on. "
        "Without it every answer waits until the whole prompt has been computed.",
        measure=Measure(
            "inter-token latency of other answers during a long prefill", OTHERS_WAIT, (False, True), "chunked"
        ),
        helps="A long prompt arrives while other answers stream.",
        costs="Nothing in the text. The long prompt itself starts a little later.",
        source=("engine/decoding/scheduling/scheduler.py",),
        also=("Sarathi",),
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
    ),
    _scheduling(
        key=keys.TOKEN_BUDGET,
        title="Max batched tokens",
        default=512,
        range=NumberRange(16, 8192),
        explains="The most tokens that one step computes, over all answers; by default a GPU computes up to 2,048 "
        "while no answer is being written. "
        "A larger number computes prompts faster; a smaller one keeps running answers smooth.",
        measure=Measure("time to first token against inter-token latency", FIRST_TOKEN, (64, 512), "chunked"),
        helps="Large for one chat with long prompts, small for many chats at once.",
        costs="Nothing in the text.",
        source=("engine/decoding/scheduling/scheduler.py",),
        also=("token budget",),
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
    ),
    _scheduling(
        key=keys.STEP_TARGETS,
        title="Step time targets",
        default=True,
        explains="Gives a long prompt only as many tokens of a step as keep the time between the tokens of running "
        "answers below their target, 50 ms for chats of the window and 200 ms for requests by HTTP, by what steps were "
        "measured to take. Where steps take longer anyway, a prompt gets 16 tokens of each.",
        measure=Measure(
            "inter-token latency of other answers during a long prefill", OTHERS_WAIT, (False, True), "chunked"
        ),
        helps="A long prompt arrives while other answers stream.",
        costs="Nothing in the text. The long prompt itself is read more slowly.",
        source=("engine/decoding/scheduling/policy.py", "engine/decoding/scheduling/costs.py"),
        also=("SLO-aware scheduling", "stall-free batching"),
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
        relevant=Relevance(unless=((keys.CHUNKED_PREFILL, (False,)),)),
    ),
    _scheduling(
        key=keys.ASYNC_SCHEDULING,
        title="Async scheduling",
        default=True,
        explains="Launches the next step on the GPU before the tokens of the last one have been read, so that the GPU "
        "does not wait for the processor between two steps. "
        "Prompts, drafts and settings that the GPU does not sample by are scheduled step by step.",
        measure=Measure("tokens per second", SPEED, (False, True)),
        helps="Decoding on a fast GPU while nothing is drafted.",
        costs="Nothing in the text. An answer that ends by itself wastes one row of one step.",
        source=("engine/loop/executor.py",),
        also=("asynchronous scheduling", "overlap scheduling", "overlapped scheduling"),
        reference="Zheng et al. 2023, SGLang (arXiv 2312.07104)",
        relevant=Relevance(capabilities=("async steps",)),
    ),
    _scheduling(
        key=keys.MAX_BATCH,
        title="Max batch size",
        default=256,
        range=NumberRange(1, 256),
        explains="The most answers that one step works for. A larger batch gives more tokens per second in all, and "
        "each answer fewer.",
        measure=Measure(
            "tokens per second over all answers against inter-token latency", MORE_AT_ONCE, (1, 256), "batch_size"
        ),
        helps="Small where answers have to be quick one after the other, large where all have to be done soon.",
        costs="Nothing in the text. Requests beyond it wait.",
        source=("engine/decoding/scheduling/scheduler.py",),
        also=("max_num_seqs", "batch size", "parallel slots"),
    ),
    _scheduling(
        key=keys.ADMISSION,
        title="Scheduling policy",
        default="first_come",
        explains="Decides which requests take part in a step when there are more than the batch or the memory holds. "
        "Those that do not wait, with their pages kept while there is room.",
        measure=Measure(
            "mean time to completion and to the first token, with many requests waiting",
            QUEUED,
            ("static", "first_come"),
            "mlfq",
        ),
        helps="Many requests of different lengths or urgency at once.",
        costs="Nothing in the text. Whoever goes later waits longer.",
        source=("engine/decoding/scheduling/policy.py", "engine/decoding/scheduling/policies/mlfq.py"),
        also=("scheduling order", "order of admission"),
    ),
    _scheduling(
        key=keys.PREFIX_FIRST,
        title="Cache-aware scheduling",
        default=True,
        explains="Among requests that the policy treats alike, the one with the longest beginning in the cache starts "
        "first. A request waits while another computes the same beginning, whatever this is set to.",
        measure=Measure(
            "share of prompt tokens found in the cache, with many requests waiting",
            MANY_CHATS,
            (False, True),
            "prefixes",
        ),
        helps="Many waiting requests that share beginnings.",
        costs="Nothing in the text. A request without a cached beginning may wait longer.",
        source=("engine/decoding/scheduling/policy.py",),
        also=("longest prefix match", "cache-aware order"),
        reference="Zheng et al. 2023, SGLang: RadixAttention (arXiv 2312.07104)",
    ),
)
