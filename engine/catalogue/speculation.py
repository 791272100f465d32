"""Switches of guessing ahead."""

from __future__ import annotations

from engine.catalogue.option import Choice, Option

MOST_NODES = 63
"""Guesses in one tree: with the token that they follow, as many rows as a batch has ancestor bits."""

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
        "Automatic takes whatever has paid best so far, and nothing while guesses cost more than they save.",
        shows="tokens per step and share of guesses accepted",
        reference="Leviathan et al. 2023 (arXiv 2211.17192); Saxena 2023, prompt lookup decoding; "
        "Elhoushi et al. 2024, LayerSkip (arXiv 2404.16710); Zhang et al. 2024, Draft & Verify (arXiv 2309.08168); "
        "Cai et al. 2024, Medusa (arXiv 2401.10774); Li et al. 2024 and 2025, EAGLE 1 to 3 "
        "(arXiv 2401.15077, 2406.16858, 2503.01840)",
        choices=(
            Choice("off", "off"),
            Choice("auto", "automatic"),
            Choice("ngram", "n-gram"),
            Choice("draft", "draft model", needs=("draft model",)),
            Choice("exit", "early exit", needs=("several layers",)),
            Choice("skip", "layer skipping", needs=("several layers",)),
            Choice("medusa", "Medusa heads", needs=("medusa heads",)),
            Choice("eagle", "EAGLE head", needs=("eagle head",)),
            Choice("mtp", "multi-token layers", needs=("mtp layers",)),
        ),
        compare=("off", "auto"),
    ),
    Option(
        key="ngram_first",
        title="Repeats first",
        group="Speculation",
        default=True,
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Where the last few tokens occurred earlier in the conversation, what followed them is guessed, "
        "which costs nothing. Elsewhere, and where that held too seldom, the chosen kind of guessing runs.",
        shows="tokens per step on edits, quotations and code",
        reference="Saxena 2023, prompt lookup decoding",
        compare=(False, True),
    ),
    Option(
        key="ngram_chats",
        title="Repeats of other chats",
        group="Speculation",
        default=False,
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Guesses by repetition look for the last few tokens in your other conversations too, "
        "those answered with this switch on since the engine started; deleting any chat forgets them all. "
        "Only guesses come from there: the text stays the same.",
        shows="tokens per step where chats are alike",
        reference="He et al. 2024, REST (arXiv 2311.08252)",
        compare=(False, True),
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
    Option(
        key="tree_nodes",
        title="Tree size",
        group="Speculation",
        default=0,
        minimum=0,
        maximum=MOST_NODES,
        zero_means="automatic",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="How many guesses Medusa heads, an EAGLE head and multi-token layers make in one step, of which many "
        "are alternatives to each other. No more than the draft length gives a single chain, as does QUEST.",
        shows="tokens per step against the rows checked",
        reference="Miao et al. 2024, SpecInfer (arXiv 2305.09781); Cai et al. 2024, Medusa (arXiv 2401.10774)",
        compare=(4, 0),
    ),
    Option(
        key="exit_layer",
        title="Exit after layer",
        group="Speculation",
        default=0,
        minimum=0,
        maximum=200,
        zero_means="automatic",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="How many of the model's layers guess when it leaves early. "
        "More layers guess better and cost more; automatic takes what was found for this model, or a quarter of them.",
        shows="accepted guesses by depth",
        reference="Elhoushi et al. 2024, LayerSkip (arXiv 2404.16710)",
        of=("speculation", "exit"),
        compare=(1, 0),
    ),
    Option(
        key="acceptance",
        title="Acceptance",
        group="Speculation",
        default="keyed",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Same text keeps a guess only if it is the very token that would have been drawn without guessing. "
        "Highest keeps as many as the model's probabilities allow, which gives other words, equally likely, that "
        "depend on the guesses; typical keeps whatever is not too unlikely, which changes what the model says.",
        shows="share of guesses accepted",
        reference="Leviathan et al. 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318); Cai et al. 2024, "
        "Medusa (arXiv 2401.10774)",
        choices=(
            Choice("keyed", "same text"),
            Choice("ratio", "highest", exactness="same distribution"),
            Choice("typical", "typical", exactness="approximate"),
        ),
        compare=("keyed", "ratio"),
    ),
)
