"""The fake engine's speculation: its switches, who drafted which token, and how many drafts were kept."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable

from engine import protocol as p

STEP = 4
"""Tokens of each step with drafts: three that were kept, and the model's own."""
_DRAFTERS: dict[p.Value, tuple[str, ...]] = {"off": (), "auto": ("ngram", "medusa")}
_TREES = ("medusa", "eagle")
_EXACTNESS: dict[p.Value, p.Exactness] = {"ratio": "same distribution", "typical": "approximate"}
"""Of the ways of accepting that have one of their own."""


def switches(entry: Callable[..., p.OptionSpec]) -> list[p.OptionSpec]:
    return [
        entry(key="speculation", title="Speculation", group="Speculation", kind="choice", default="off", value="off", exactness="lossless", common=True,
              choices=["off", "auto", "ngram", "draft", "exit", "skip", "medusa", "eagle", "mtp"],
              choice_titles=["off", "auto", "n-gram lookup", "draft model", "early exit", "layer skipping", "Medusa heads", "EAGLE head",
                             "multi-token layers"],
              disabled_choices={"mtp": "Needs a model with multi-token layers."}, compare=["off", "auto"]),
        entry(key="ngram_first", title="N-gram lookup first", group="Speculation", kind="bool", default=True, value=True, exactness="lossless"),
        entry(key="ngram_chats", title="N-gram lookup (other chats)", group="Speculation", kind="bool", default=False, value=False,
              exactness="lossless"),
        entry(key="draft_length", title="Draft length", group="Speculation", kind="int", default=0, value=0, minimum=0, maximum=16,
              exactness="lossless", zero_means="auto"),
        entry(key="tree_nodes", title="Draft tree size", group="Speculation", kind="int", default=0, value=0, minimum=0, maximum=63,
              exactness="lossless", zero_means="auto"),
        entry(key="exit_layer", title="Exit after layer", group="Speculation", kind="int", default=0, value=0, minimum=0, maximum=200,
              exactness="lossless", zero_means="auto", of="speculation", of_values=["exit"]),
        entry(key="acceptance", title="Acceptance rule", group="Speculation", kind="choice", default="keyed", value="keyed",
              exactness="lossless", choices=["keyed", "ratio", "typical"], choice_titles=["lossless", "lossless, other sample (rejection sampling)", "typical (lossy)"],
              compare=["keyed", "ratio"]),
    ]  # fmt: skip


def exactness(spec: p.OptionSpec, value: p.Value) -> p.Exactness:
    """Of the option once it has this value."""
    return _EXACTNESS.get(value, "lossless") if spec.key == "acceptance" else spec.exactness


def drafters(value: p.Value) -> tuple[str, ...]:
    """Who drafts under a value of the option "speculation"."""
    return _DRAFTERS.get(value, (str(value),))


def source(names: tuple[str, ...], index: int) -> p.Source:
    """Where the token at ``index`` came from. Two drafters take turns, and every third step is without drafts."""
    step, place = divmod(index, STEP)
    if not names or (len(names) > 1 and step % 3 == 2):
        return "target"
    return "corrected" if place == STEP - 1 else names[step % len(names)]  # type: ignore[return-value]


def acceptance(names: tuple[str, ...]) -> list[p.Acceptance]:
    reasoning = "n-gram, as a checked row costs 0.3 of a step and 2.7 drafts are kept" if len(names) > 1 else ""
    return [
        p.Acceptance(
            proposer=name,
            proposed=400 // (index + 1),
            accepted=284 // (index + 1),
            by_depth=[0.9 - 0.1 * index, 0.75 - 0.1 * index, 0.6, 0.4 - 0.1 * index],
            draft_length=4,
            tree_nodes=16 if name in _TREES else 4,
            tokens_per_step=3.2 - 0.6 * index,
            reasoning=reasoning,
        )
        for index, name in enumerate(names)
    ]
