"""Switches of the order of work."""

from __future__ import annotations

from engine.catalogue.option import Choice, Option

SCHEDULING = (
    Option(
        key="chunked_prefill",
        title="Chunked prefill",
        group="Scheduling",
        default=True,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Reads a long prompt in pieces, between which running answers go on. "
        "Without it everyone waits until the whole prompt has been read.",
        shows="inter-token latency of other answers while a long prompt is read",
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
        compare=(False, True),
    ),
    Option(
        key="token_budget",
        title="Tokens per step",
        group="Scheduling",
        default=512,
        minimum=16,
        maximum=8192,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="The most tokens that one step computes, over all answers. "
        "Larger reads prompts faster; smaller keeps running answers smooth.",
        shows="time to first token against inter-token latency",
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
        compare=(64, 512),
    ),
    Option(
        key="admission",
        title="Order of admission",
        group="Scheduling",
        default="longest_prefix",
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Of those that wait, takes in first whose beginning the cache holds, and lets one wait while a "
        "neighbour reads the same beginning. "
        "First come, first served takes them in order of arrival.",
        shows="share of prompt tokens found, with many answers waiting",
        reference="Zheng et al. 2023, SGLang: RadixAttention (arXiv 2312.07104)",
        choices=(Choice("longest_prefix", "longest prefix"), Choice("first_come", "first come")),
        compare=("first_come", "longest_prefix"),
    ),
)
