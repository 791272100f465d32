"""Models that Kvasir recommends, judged for this machine, and what can draft for a model.

`kvasir models recommended` and `kvasir models drafts` print them with ``--json``, one object a line.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from engine.protocol.base import Message, Part

Purpose = Literal["chat", "code", "reasoning", "vision", "small"]
PURPOSES: tuple[Purpose, ...] = ("chat", "code", "reasoning", "vision", "small")
DraftKind = str
"""A drafter for a model: "model" is a smaller one of the same vocabulary, and others have the names of their proposers:
heads made for the model, or multi-token layers of its own file ("mtp")."""
SizeVerdict = Literal["", "fits", "tight", "too large"]
"""Same as in :class:`FitReport`, estimated from bytes; ``tight``, too: only once other programs are closed, or too slow
to read along. "": the size is not known."""
_Name = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+/[\w.-]+$")]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class CuratedDraft(Part, frozen=True):
    """Drafter for a model of the list: ``repository`` and ``variant`` unless the model's own file holds it."""

    kind: DraftKind
    repository: _Name | Literal[""] = ""
    variant: str = ""
    bytes: _Count = 0


class CuratedModel(Part, frozen=True):
    """An entry of assets/models.json. Zeros and empty words: not known.

    ``variant``: its name or kind, as `kvasir models get` takes it. ``family``: the architecture, as docs/families.md
    lists it. ``active``: parameters that compute a token, where not all do. ``bytes``: of all its files.
    ``kv_bytes``: of the 16-bit keys and values of a further token. ``taken``, ``source``: from what, and on which day.
    """

    repository: _Name
    variant: str
    format: Literal["safetensors", "gguf"]
    family: str
    parameters: _Count
    purposes: Annotated[list[Purpose], msgspec.Meta(min_length=1)]
    about: str
    taken: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d$")]
    source: str
    active: _Count = 0
    bytes: _Count = 0
    licence: str = ""
    gated: bool = False
    context: _Count = 0
    kv_bytes: _Count = 0
    draft: CuratedDraft | None = None


class CuratedList(msgspec.Struct, forbid_unknown_fields=True):
    """assets/models.json. ``sources``: what the names in ``CuratedModel.source`` stand for."""

    sources: dict[str, str]
    models: list[CuratedModel]

    def __post_init__(self) -> None:
        seen: set[tuple[str, str]] = set()
        for model in self.models:
            if (what := (model.repository, model.variant)) in seen:
                raise ValueError(f"{' '.join(what)} stands there twice")
            seen.add(what)
            if model.source not in self.sources:
                raise ValueError(
                    f"{model.repository} is taken from {model.source!r}, which is not a source of the list"
                )
            draft = model.draft
            if draft is not None and (draft.kind == "mtp") == bool(draft.repository and draft.variant):
                raise ValueError(f"the draft of {model.repository} needs a repository and a variant, unless it is mtp")


class SizeFit(Part, frozen=True):
    """Verdict on whether a model runs here, as far as its size tells."""

    verdict: SizeVerdict
    sentence: str = ""
    """Reason that it is no better; "" where it fits."""


class Recommendation(Message, frozen=True):
    """A model of the list, judged by its size against this machine's memory."""

    model: CuratedModel
    verdict: SizeVerdict
    sentence: str = ""
    """Reason that it is no better; "" where it fits."""
    need: int = 0
    """Bytes that it takes with a chat of the usual length, about."""
    fastest: float = 0.0
    """Tokens a second that memory allows without speculation, about; 0: not known."""
    here: bool = False
    """True if it is on this machine."""
    draft_here: bool = False
    reason: str = ""
    """Reason that it is one of the few to begin with here; "" for the others."""


class Recommended(Message, frozen=True):
    """Recommendations for the memory that is free once the loaded model is dropped."""

    models: list[Recommendation]
    """Best first."""
    stored: dict[str, SizeFit] = {}
    """Fits of the models of this machine, by path."""


class DraftOffer(Message, frozen=True):
    """Drafter that a model can use."""

    name: str
    kind: DraftKind
    path: str = ""
    """Path of the drafter; "" where it has to be downloaded, or is in the model's own file."""
    repository: str = ""
    variant: str = ""
    bytes: int = 0
    cost: float = 0.0
    """Bytes that it reads for a draft token, as a share of those that the model reads for one: the share of accepted
    draft tokens from which on it pays, while memory sets the pace. 0: not known."""
