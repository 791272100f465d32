"""Switches of speculative decoding."""

from __future__ import annotations

from functools import partial

from engine.catalogue.metrics import PER_STEP
from engine.catalogue.option import Choice, Option
from engine.protocol import SPECULATION_GROUP, keys

_MODELS = ("draft", "exit", "skip", "medusa", "eagle", "mtp", "assistant")
"""Kinds of speculation that run a model, or a part of one."""
METHODS = ("auto", "ngram", *_MODELS)
"""Every value but off."""
MOST_NODES = 63
"""Draft tokens in one tree: with the token that they follow, as many rows as a batch has ancestor bits."""

_drafting = partial(
    Option, group=SPECULATION_GROUP, scope="request", metric=PER_STEP, applies="next request", exactness="lossless"
)
"""Fields that the switches of speculation share."""

SPECULATION = (
    _drafting(
        key=keys.SPECULATION,
        title="Speculation",
        default="auto",
        explains="A cheap method drafts the next few tokens and the model checks them all in one pass, "
        "keeping exactly those it would have written itself. "
        "Auto uses whichever method has paid best so far, and none while drafts cost more than they save.",
        shows="tokens per step, and the share of draft tokens accepted",
        helps="One chat at a time on a model that waits for memory, and text that is easy to foresee: code, edits, "
        "quotations.",
        costs="Nothing in the text under the lossless acceptance rule. It is slower where drafts are often rejected or "
        "the drafter is slow, and with many answers at once.",
        source=("engine/decoding/speculation/control/controller.py", "engine/decoding/speculation/verify/verifier.py"),
        also=("speculative decoding", "drafting"),
        reference="Leviathan et al. 2023 (arXiv 2211.17192); Saxena 2023, prompt lookup decoding "
        "(https://github.com/apoorvumang/prompt-lookup-decoding); "
        "Elhoushi et al. 2024, LayerSkip (arXiv 2404.16710); Zhang et al. 2024, Draft & Verify (arXiv 2309.08168); "
        "Cai et al. 2024, Medusa (arXiv 2401.10774); Li et al. 2024 and 2025, EAGLE 1 to 3 "
        "(arXiv 2401.15077, arXiv 2406.16858, arXiv 2503.01840)",
        choices=(
            Choice("off", "off", explains="One token per forward pass."),
            Choice(
                "auto", "auto", explains="Whichever method pays best, by what was measured on this machine; or none."
            ),
            Choice(
                "ngram",
                "n-gram lookup",
                explains="Finds the last few tokens earlier in the text and drafts what followed them there. It needs "
                "no second model.",
                also=("n-gram lookup", "prompt lookup decoding"),
            ),
            Choice(
                "draft",
                "draft model",
                needs=("draft model",),
                explains="A much smaller model with the same tokenizer drafts.",
                also=("draft model",),
            ),
            Choice(
                "exit",
                "early exit",
                needs=("several layers",),
                explains="The model's own first layers draft (LayerSkip); the check goes on from where they stopped.",
                also=("early exit", "LayerSkip"),
            ),
            Choice(
                "skip",
                "layer skipping",
                needs=("several layers",),
                explains="The model drafts with some of its layers left out (Draft & Verify).",
                also=("layer skipping", "Draft & Verify"),
            ),
            Choice(
                "medusa",
                "Medusa heads",
                needs=("medusa heads",),
                explains="Small heads next to the output layer each predict one further token from the same hidden "
                "state.",
                also=("Medusa", "Medusa heads"),
            ),
            Choice(
                "eagle",
                "EAGLE head",
                needs=("eagle head",),
                explains="One extra layer goes on from the model's hidden states, token by token.",
                also=("EAGLE", "EAGLE head"),
            ),
            Choice(
                "mtp",
                "MTP layers",
                needs=("mtp layers",),
                explains="Layers for multi-token prediction that the checkpoint itself brings, as MiMo's and "
                "Qwen3.5's do.",
                also=("MTP", "multi-token prediction"),
            ),
            Choice(
                "assistant",
                "Gemma 4 assistant",
                needs=("assistant",),
                explains="Gemma 4's small drafter, which reads the model's own keys and values and needs no cache.",
                also=("Gemma 4 assistant", "Gemma 4 MTP"),
            ),
        ),
        compare=("off", "auto"),
    ),
    _drafting(
        key=keys.NGRAM_FIRST,
        title="Try n-gram lookup first",
        default=True,
        explains="Where the last few tokens occurred earlier in the chat, what followed them is drafted, "
        "which costs nothing. Elsewhere, and where such drafts held too seldom, the chosen method drafts.",
        shows="tokens per step on edits, quotations and code",
        helps="Answers that repeat parts of the chat.",
        costs="Nothing.",
        source=("engine/decoding/speculation/proposers/ngram.py",),
        also=("repeats first", "prompt lookup"),
        reference="Saxena 2023, prompt lookup decoding (https://github.com/apoorvumang/prompt-lookup-decoding)",
        of=(keys.SPECULATION, ("auto", *_MODELS)),
        compare=(False, True),
    ),
    _drafting(
        key=keys.NGRAM_CHATS,
        title="N-gram lookup in other chats",
        default=False,
        explains="N-gram lookup also searches your other chats, "
        "those answered with this switch on since the engine started; deleting any chat empties that memory. "
        "Only drafts come from there: the text stays the same.",
        shows="tokens per step where chats are alike",
        helps="Chats that resemble each other.",
        costs="Nothing in the text. The texts stay in memory until the engine ends or a chat is deleted.",
        source=("engine/decoding/speculation/proposers/chat_index.py",),
        also=("repeats of other chats", "REST"),
        reference="He et al. 2024, REST (arXiv 2311.08252)",
        of=(keys.SPECULATION, METHODS),
        pointless_with=((keys.SPECULATION, _MODELS), (keys.NGRAM_FIRST, (False,))),
        compare=(False, True),
    ),
    _drafting(
        key=keys.DRAFT_LENGTH,
        title="Draft length",
        default=0,
        minimum=0,
        maximum=16,
        zero_means="auto",
        explains="How many tokens are drafted ahead in each step. "
        "Auto follows the measured acceptance rate and the measured cost of checking.",
        shows="acceptance rate by draft position",
        helps="Longer drafts pay where most of them are accepted.",
        costs="Nothing in the text. Rejected draft tokens are wasted work.",
        source=("engine/decoding/speculation/control/controller.py", "engine/decoding/speculation/control/cost.py"),
        also=("gamma",),
        reference="Leviathan et al. 2023 (arXiv 2211.17192)",
        of=(keys.SPECULATION, METHODS),
        compare=(4, 0),
    ),
    _drafting(
        key=keys.TREE_NODES,
        title="Draft tree size",
        default=0,
        minimum=0,
        maximum=MOST_NODES,
        zero_means="auto",
        explains="How many tokens Medusa heads, an EAGLE head and MTP layers draft in one step, many of them "
        "alternatives to each other. A size no larger than the draft length gives a single chain, as does QUEST.",
        shows="tokens per step against the rows checked",
        helps="Medusa and EAGLE, where a second choice is often the right one.",
        costs="Nothing in the text. Every node is one more row to check.",
        source=("engine/decoding/speculation/proposers/trees.py", "engine/decoding/speculation/proposers/growing.py"),
        also=("tree attention", "draft tree"),
        reference="Miao et al. 2024, SpecInfer (arXiv 2305.09781); Cai et al. 2024, Medusa (arXiv 2401.10774)",
        of=(keys.SPECULATION, ("auto", "medusa", "eagle", "mtp")),
        compare=(4, 0),
    ),
    _drafting(
        key=keys.EXIT_LAYER,
        title="Exit after layer",
        default=0,
        minimum=0,
        maximum=200,
        zero_means="auto",
        explains="How many of the model's layers draft under early exit. "
        "More layers draft better and cost more; auto takes what was found for this model, or a quarter of them.",
        shows="acceptance rate by draft position",
        helps="Models trained for early exit, such as LayerSkip's and the bundled guide.",
        costs="Nothing in the text.",
        source=(
            "engine/decoding/speculation/proposers/self_drafting.py",
            "engine/decoding/speculation/proposers/layer_choice.py",
        ),
        reference="Elhoushi et al. 2024, LayerSkip (arXiv 2404.16710)",
        of=(keys.SPECULATION, ("exit",)),
        compare=(1, 0),
    ),
    _drafting(
        key=keys.ACCEPTANCE,
        title="Acceptance rule",
        default="keyed",
        explains="Decides which draft tokens are accepted. "
        "The lossless rule keeps a token only if it is the one that would have been drawn without speculation.",
        shows="share of draft tokens accepted",
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
        of=(keys.SPECULATION, METHODS),
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
        compare=("keyed", "ratio"),
    ),
)
