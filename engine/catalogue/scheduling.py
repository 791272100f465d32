"""Switches of the order of work."""

from __future__ import annotations

from engine.catalogue.option import Option

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
)
