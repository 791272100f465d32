"""The record of a technique that drafts: what the catalogue says of it, how its tokens are shown, how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from engine import catalogue
from engine.catalogue.technique import Technique
from engine.protocol import DrafterStyle, keys

if TYPE_CHECKING:
    from engine.compute.models.base import CausalLM
    from engine.compute.runner.runner import Runner
    from engine.decoding.speculation.base import Proposer
    from engine.decoding.speculation.proposers.layer_choice import LayerChoice

DRAFTING = (keys.NGRAM_FIRST, keys.NGRAM_CHATS, keys.DRAFT_LENGTH, keys.ACCEPTANCE)
"""Switches that mean something with whatever drafts."""


class ProposerInputs(NamedTuple):
    """Inputs of a proposer that needs nothing but the model."""

    model: CausalLM
    runner: Runner
    eos_ids: list[int]
    layers: LayerChoice
    kv_bytes_per_token: float


class Made(NamedTuple):
    """A proposer, and what it drafts from, for display."""

    proposer: Proposer
    about: str


class HeadTraining(NamedTuple):
    """Description of a kind of heads in ``kvasir train-heads``; ``several``: their number can be chosen."""

    about: str
    several: bool = False


@dataclass(frozen=True, kw_only=True)
class DraftTechnique(Technique):
    """A value of the switch "speculation", which is also its proposer's name and the source of its tokens.

    ``by`` stands after "Drafted"; the colour is the theme's ``color``, mixed with the panel by ``share``. Those that
    work alike share a colour: two that draft with parts of the model itself, two with heads on top of it.
    ``heads``: it has heads, "trained" for the model and kept in a file, or "own", of the model's file.
    ``offer`` is its name where it is offered for a model, and ``make`` makes a proposer that needs nothing but the
    model, None where the model does not allow it; ``files`` is the module whose ``HEADS`` say how heads are found, read
    and attached. The others are parts of a load.
    """

    by: str
    color: str
    share: float = 1.0
    offer: str = ""
    heads: Literal["", "trained", "own"] = ""
    training: HeadTraining | None = None
    make: Callable[[ProposerInputs], Made | None] | None = None
    files: str = ""
    switch: str = keys.SPECULATION
    uses: tuple[str, ...] = DRAFTING

    @property
    def style(self) -> DrafterStyle:
        return DrafterStyle(
            key=self.name,
            name=self.label,
            by=self.by,
            color=self.color,
            share=self.share,
            offer=self.offer or self.choice.title,
            heads=self.heads,
        )


def drafting() -> list[DraftTechnique]:
    """The registered techniques that draft, in the order in which they are shown."""
    return catalogue.records(DraftTechnique)
