"""Switches of arithmetic."""

from __future__ import annotations

from engine.catalogue.option import Option

NUMERICS = (
    Option(
        key="batch_invariant",
        title="Batch-invariant arithmetic",
        group="Numerics",
        default=False,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Computes every row in the same order whatever else is in the batch, "
        "so that equal settings give equal text to the last token. "
        "It is slower; it is how lossless switches are proved to change nothing.",
        shows="tokens per second; first differing token in a comparison",
        reference="He et al. 2025, Defeating nondeterminism in LLM inference",
        compare=(True, False),
    ),
)
