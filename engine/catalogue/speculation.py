"""Switches of guessing ahead."""

from __future__ import annotations

from engine.catalogue.option import Choice, Option

SPECULATION = (
    Option(
        key="speculation",
        title="Speculation",
        group="Speculation",
        default="off",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Something cheap guesses the next few tokens and the model checks them all in one pass, "
        "keeping exactly those it would have written itself. "
        "It switches itself off while guesses cost more than they save, and says so.",
        shows="tokens per step and share of guesses accepted",
        reference="Leviathan et al. 2023 (arXiv 2211.17192); Saxena 2023, prompt lookup decoding",
        choices=(
            Choice("off", "off"),
            Choice("ngram", "n-gram"),
            Choice("draft", "draft model", needs=("draft model",)),
        ),
        compare=("off", "ngram"),
    ),
    Option(
        key="draft_length",
        title="Draft length",
        group="Speculation",
        default=0,
        minimum=0,
        maximum=16,
        zero_means="automatic",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="How many tokens are guessed ahead in each step. "
        "Automatic follows the share of guesses that was accepted and the measured cost of checking.",
        shows="accepted guesses by depth",
        reference="Leviathan et al. 2023 (arXiv 2211.17192)",
        compare=(4, 0),
    ),
)
