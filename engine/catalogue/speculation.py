"""Switches of speculative decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from engine.catalogue.metrics import HELD_TO_A_FORM, PER_STEP
from engine.catalogue.option import Choice, Option, Relevance
from engine.catalogue.technique import Technique
from engine.protocol import SPECULATION_GROUP, Measure, NumberRange, keys

MOST_NODES = 63
"""Draft tokens in one tree: with the token that they follow, as many rows as a batch has ancestor bits."""

_drafting = partial(Option, group=SPECULATION_GROUP, scope="request", applies="next request")
"""Fields that the switches of speculation share."""
_AUTO = (keys.SPECULATION, ("auto",))

_ROWS = (
    _drafting(
        key=keys.SPECULATION,
        title="Speculation",
        common=True,
        default="auto",
        explains="A cheap method drafts the next few tokens and the model checks them all in one pass, "
        "keeping exactly those it would have written itself. "
        "Auto uses whichever method has paid best so far, and none while drafts cost more than they save.",
        measure=Measure(
            "tokens per step, and the share of draft tokens accepted", PER_STEP, ("off", "auto"), "speculation"
        ),
        helps="One chat at a time on a model that waits for memory, and text that is easy to foresee: code, edits, "
        "quotations.",
        costs="Nothing in the text under the lossless acceptance rule. It is slower where drafts are often rejected or "
        "the drafter is slow, and with many answers at once.",
        source=("engine/decoding/speculation/control/controller.py", "engine/decoding/speculation/verify/verifier.py"),
        also=("speculative decoding", "drafting"),
        reference="Leviathan et al. 2023 (arXiv 2211.17192)",
        choices=(
            Choice("off", "off", explains="One token per forward pass."),
            Choice(
                "auto", "auto", explains="Whichever method pays best, by what was measured on this machine; or none."
            ),
        ),
    ),
    _drafting(
        key=keys.FORCED_TOKENS,
        title="Forced tokens at once",
        default=True,
        explains="Where a schema or grammar leaves only one text, such as the next key of a JSON object, its tokens "
        "are read in one pass. They are not guessed: the model could write no others.",
        measure=Measure("tokens per step of answers that are held to a form", HELD_TO_A_FORM, (False, True)),
        helps="Structured output, most where keys are long and values short.",
        costs="Nothing. Free answers have no such tokens.",
        source=("engine/text/grammar.py", "engine/decoding/speculation/control/controller.py"),
        also=("jump-forward decoding", "fast-forward tokens"),
        reference="Zheng et al. 2023, SGLang: compressed finite state machines (arXiv 2312.07104)",
    ),
    _drafting(
        key=keys.NGRAM_FIRST,
        title="N-gram lookup first",
        default=True,
        explains="Where the last few tokens occurred earlier in the chat, what followed them is drafted, "
        "which costs nothing. Elsewhere, and where such drafts held too seldom, the chosen method drafts.",
        measure=Measure("tokens per step on edits, quotations and code", PER_STEP, (False, True), "speculation"),
        helps="Answers that repeat parts of the chat.",
        costs="Nothing.",
        source=("engine/decoding/speculation/ngram/proposer.py",),
        also=("repeats first", "prompt lookup"),
        reference="Saxena 2023, prompt lookup decoding (https://github.com/apoorvumang/prompt-lookup-decoding)",
        relevant=Relevance(of=_AUTO),
    ),
    _drafting(
        key=keys.NGRAM_CHATS,
        title="N-gram lookup (other chats)",
        default=False,
        explains="N-gram lookup also searches your other chats, "
        "those answered with this switch on since the engine started; deleting any chat empties that memory. "
        "Only drafts come from there: the text stays the same.",
        measure=Measure("tokens per step where chats are alike", PER_STEP, (False, True), "speculation"),
        helps="Chats that resemble each other.",
        costs="Nothing in the text. The texts stay in memory until the engine ends or a chat is deleted.",
        source=("engine/decoding/speculation/ngram/chat_index.py",),
        also=("repeats of other chats", "REST"),
        reference="He et al. 2024, REST (arXiv 2311.08252)",
        relevant=Relevance(of=_AUTO),
    ),
    _drafting(
        key=keys.DRAFT_LENGTH,
        title="Draft length",
        default=0,
        range=NumberRange(0, 16, "auto"),
        explains="How many tokens are drafted ahead in each step. "
        "Auto follows the measured acceptance rate and the measured cost of checking.",
        measure=Measure("acceptance rate by draft position", PER_STEP, (4, 0), "speculation"),
        helps="Longer drafts pay where most of them are accepted.",
        costs="Nothing in the text. Rejected draft tokens are wasted work.",
        source=("engine/decoding/speculation/control/controller.py", "engine/decoding/speculation/control/cost.py"),
        also=("gamma",),
        reference="Leviathan et al. 2023 (arXiv 2211.17192)",
        relevant=Relevance(of=_AUTO),
    ),
    _drafting(
        key=keys.TREE_NODES,
        title="Draft tree size",
        default=0,
        range=NumberRange(0, MOST_NODES, "auto"),
        explains="How many tokens {nouns} draft in one step, many of them "
        "alternatives to each other. A size no larger than the draft length gives a single chain, as does QUEST.",
        measure=Measure("tokens per step against the rows checked", PER_STEP, (4, 0), "heads"),
        helps="{labels}, where a second choice is often the right one.",
        costs="Nothing in the text. Every node is one more row to check.",
        source=("engine/decoding/speculation/proposers/trees.py", "engine/decoding/speculation/proposers/growing.py"),
        also=("tree attention", "draft tree"),
        reference="Miao et al. 2024, SpecInfer (arXiv 2305.09781); Cai et al. 2024, Medusa (arXiv 2401.10774)",
        relevant=Relevance(of=_AUTO),
    ),
    _drafting(
        key=keys.ACCEPTANCE,
        title="Acceptance rule",
        default="keyed",
        explains="Decides which draft tokens are accepted. "
        "The lossless rule keeps a token only if it is the one that would have been drawn without speculation.",
        measure=Measure("share of draft tokens accepted", PER_STEP, ("keyed", "ratio"), "speculation"),
        helps="The other two rules accept more tokens where the temperature is above 0.",
        costs="Rejection sampling gives another sample of the same distribution, which also depends on the drafts; "
        "typical acceptance changes the distribution.",
        source=(
            "engine/decoding/speculation/verify/verifier.py",
            "engine/decoding/speculation/verify/ratio.py",
            "engine/decoding/speculation/verify/typical.py",
        ),
        also=("verification",),
        reference="Leviathan et al. 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318); Cai et al. 2024, "
        "Medusa (arXiv 2401.10774)",
        relevant=Relevance(of=_AUTO),
        choices=(
            Choice("keyed", "lossless", explains="The same text as without speculation."),
            Choice(
                "ratio",
                "lossless, other sample (rejection sampling)",
                exactness="same distribution",
                also=("rejection sampling",),
                explains="As many tokens as the probabilities allow: other words, equally likely.",
            ),
            Choice(
                "typical",
                "typical (lossy)",
                exactness="approximate",
                also=("typical acceptance",),
                explains="Any token that is not too unlikely (Medusa's rule): the model says other things.",
            ),
        ),
    ),
)


def speculation(techniques: Sequence[Technique]) -> tuple[Option, ...]:
    """The switches of speculation, which mean something with "auto" and with the techniques that use them."""
    users = {row.key: [each for each in techniques if row.key in each.uses] for row in _ROWS}
    return tuple(_with_users(row, users) for row in _ROWS)


def _with_users(row: Option, users: Mapping[str, Sequence[Technique]]) -> Option:
    match row.key:
        case keys.NGRAM_CHATS:
            alone = ((keys.SPECULATION, names(users[keys.NGRAM_FIRST])), (keys.NGRAM_FIRST, (False,)))
            return replace(row, relevant=row.relevant._replace(unless=alone))
        case keys.TREE_NODES:
            nouns = listed([each.noun for each in users[row.key]])
            labels = listed([each.label for each in users[row.key] if row.key in each.shows])
            return replace(row, explains=row.explains.format(nouns=nouns), helps=row.helps.format(labels=labels))
    return row


def names(techniques: Iterable[Technique]) -> tuple[str, ...]:
    return tuple(each.name for each in techniques)


def listed(words: Sequence[str]) -> str:
    """Words in a sentence: "one, another and a third"."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), *words[-1:]])
