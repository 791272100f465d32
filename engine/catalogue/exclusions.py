"""Rules for settings that exclude each other, each with its reason for people.

Two settings may be refused together (``EXCLUSIONS``), one may have no effect while another is set (``IDLE``), a model's
shape may refuse one (``SHAPES``), and the model or the machine may lack what one needs (``MISSING``). Whoever decides
any of this asks here; docs/together.md is made from it. Rules of one technique stand in its record
(:mod:`engine.catalogue.technique`) and are added to these tables when it is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.catalogue.option import Capability
from engine.protocol import Value, keys

if TYPE_CHECKING:
    from engine.config.model import ModelConfig


class Setting(NamedTuple):
    """A switch at any of these values."""

    key: str
    values: tuple[Value, ...]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return True if the setting is in force; a switch that ``values`` does not name is not."""
        return self.key in values and values[self.key] in self.values


class Exclusion(NamedTuple):
    """Two settings that are refused together. ``one`` is the one whose help says so."""

    one: Setting
    other: Setting
    reason: str


class Idle(NamedTuple):
    """A switch that may be on together with a setting, and then has no effect."""

    key: str
    under: Setting
    reason: str


class ShapeExclusion(NamedTuple):
    """A setting that models of some shape cannot be served with."""

    setting: Setting
    excludes: Callable[[ModelConfig], bool]
    reason: str


_NO_CACHE = Setting(keys.KV_CACHE, (False,))
LATENTS = "This model caches latents, which its heads share: they are kept in 16 bits."
_NO_DRAFTS = "Speculation needs the KV cache: switch speculation off first."
_NOTHING_KEPT = "Without the KV cache nothing is kept from one step to the next."
_NOT_CAPTURED = "Kernels start early in captured steps alone, and no step is captured."
NOT_IN_TREE = "Only what prefix caching keeps is saved."
_IDLE = (
    Idle(keys.PAGE_RESERVATION, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.PREFIX_CACHE, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.PREEMPTION, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.HOST_CACHE, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.DISK_CACHE, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.CASCADE, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.TREE_NODES, _NO_CACHE, _NOTHING_KEPT),
    Idle(keys.SPECULATION, _NO_CACHE, "Without the KV cache every step reads the whole text, and nothing is drafted."),
    Idle(keys.DISK_CACHE, Setting(keys.PREFIX_CACHE, (False,)), NOT_IN_TREE),
    Idle(keys.WINDOW_PAGES, _NO_CACHE, _NOTHING_KEPT),
    Idle(
        keys.CASCADE,
        Setting(keys.BATCH_INVARIANT, (True,)),
        "Batch-invariant arithmetic reads every answer's keys and values by themselves.",
    ),
    Idle(keys.ASYNC_SCHEDULING, _NO_CACHE, "Without the KV cache every step reads the whole text."),
    Idle(
        keys.CUDA_GRAPHS,
        Setting(keys.BATCH_INVARIANT, (True,)),
        "Batch-invariant arithmetic plans every row on the host, which cannot be captured.",
    ),
    Idle(keys.CUDA_GRAPHS, _NO_CACHE, "Without the KV cache every step has another size."),
    Idle(keys.EARLY_LAUNCH, Setting(keys.CUDA_GRAPHS, (False,)), _NOT_CAPTURED),
    Idle(keys.EARLY_LAUNCH, Setting(keys.BATCH_INVARIANT, (True,)), _NOT_CAPTURED),
    Idle(keys.EARLY_LAUNCH, _NO_CACHE, _NOT_CAPTURED),
    Idle(
        keys.RESIDENT,
        Setting(keys.BATCH_INVARIANT, (True,)),
        "Batch-invariant arithmetic multiplies any number of rows by one kernel.",
    ),
    Idle(keys.RESIDENT, _NO_CACHE, "Without the KV cache every step reads the whole text, which is too many rows."),
    Idle(
        keys.PACKED_KERNEL,
        Setting(keys.WEIGHTS, ("16bit",)),
        "The kernel multiplies with packed weights, and 16-bit ones are unpacked.",
    ),
    Idle(
        keys.OUTPUT_HEAD,
        Setting(keys.PACKED_KERNEL, ("torch",)),
        "PyTorch has no operator for 8-bit rows, so the head stays as in the file.",
    ),
)

ODD_WIDTH = "{kind} packs {channels} channels into a byte, and this model's heads have {width}."
NO_WINDOW_OVER_KIND = "No window slides over a {kind} cache. Choose another kind of KV cache."
NO_WINDOW = "{reason} Choose what else is to happen when the chat outgrows the context."
"""The last two refuse the window of a single chat, which is chosen in the chat's own settings."""

_MISSING: Mapping[Capability, str] = {
    "model": "Load a model first.",
    "dense head": "This model's output head is quantised in its file already.",
    "table apart": "A token table stays in its file only on a processor, not on Windows, and not where it is also the "
    "output head, which is read whole for every token.",
    "packed weights": "This model's weights are not quantised: each has 16 or 32 bits.",
    "layer windows": "No layer of this model has a sliding window shorter than its context.",
    "native kernel": "Kvasir's own kernel does not support this device: kvasir doctor says why.",
    "quantised activations": "Only Kvasir's own kernel for processors quantises activations, and not where float32 was "
    "asked for.",
    "shared reads": "Shared keys and values are not read faster together on this device.",
    "async steps": "Only a GPU that samples by Kvasir's own kernels can be given steps ahead: kvasir doctor says what "
    "runs here.",
    "graphs": "Only steps with Kvasir's own kernels for attention can be captured: kvasir doctor says what runs here.",
    "early launch": "Only NVIDIA GPUs of compute capability 9.0 or newer start a kernel before the one before it has "
    "ended.",
    "resident products": "Only 4-bit weights on an NVIDIA GPU from compute capability 8.0 on have such products: "
    "kvasir doctor says what runs here.",
}

EXCLUSIONS: list[Exclusion] = []
IDLE: list[Idle] = []
SHAPES: list[ShapeExclusion] = []
MISSING: dict[Capability, str] = {}


class Rules(Protocol):
    """Rules in the record of a technique: what it does not go with, and what it needs."""

    @property
    def name(self) -> str: ...
    @property
    def switch(self) -> str: ...
    @property
    def exclusions(self) -> Sequence[Exclusion]: ...
    @property
    def idle(self) -> Sequence[Idle]: ...
    @property
    def shapes(self) -> Sequence[ShapeExclusion]: ...
    @property
    def missing(self) -> Mapping[Capability, str]: ...


def fill(techniques: Sequence[Rules]) -> None:
    """Make the tables anew: the rules above, and those of the techniques."""
    proposers = tuple(each.name for each in techniques if each.switch == keys.SPECULATION)
    drafting = Exclusion(_NO_CACHE, Setting(keys.SPECULATION, proposers), _NO_DRAFTS)
    EXCLUSIONS[:] = [drafting, *(rule for each in techniques for rule in each.exclusions)]
    IDLE[:] = [*_IDLE, *(rule for each in techniques for rule in each.idle)]
    SHAPES[:] = [rule for each in techniques for rule in each.shapes]
    MISSING.clear()
    MISSING.update(_MISSING)
    for each in techniques:
        MISSING.update(each.missing)


def conflict(values: Mapping[str, Value]) -> str:
    """Reason that the values exclude each other, or an empty string; they need not be those of all switches."""
    return next((rule.reason for rule in EXCLUSIONS if rule.one.holds(values) and rule.other.holds(values)), "")


def idle(key: str, values: Mapping[str, Value]) -> str:
    """Reason that a switch has no effect with the other values, or ""; they need not be those of all switches."""
    return next((rule.reason for rule in IDLE if rule.key == key and rule.under.holds(values)), "")


def excluded(shape: ModelConfig, key: str, value: Value) -> str:
    """Reason that a model of this shape cannot be served with a switch at a value, or an empty string."""
    chosen = {key: value}
    return next((rule.reason for rule in SHAPES if rule.setting.holds(chosen) and rule.excludes(shape)), "")


def missing(needs: Iterable[Capability], capabilities: Collection[Capability]) -> str:
    """Sentence for the first capability that the model or the machine lacks, or an empty string."""
    return next((MISSING[need] for need in needs if need not in capabilities), "")
