"""The present values of all options, and those that hold for one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar, cast

import torch

from engine import catalogue
from engine.base.devices import traits
from engine.cache.policies import KeepAll, PagePolicy
from engine.cache.stores.kinds import KVKind, KVTechnique
from engine.cache.technique import PolicyTechnique, policy_of
from engine.catalogue import Capability
from engine.catalogue.exclusions import MISSING
from engine.compute.layers.numerics import Numerics
from engine.decoding.scheduling.service import ServiceClass, classes_of
from engine.protocol import OptionMeasurement, OptionSpec, Value, keys

Acceptance = Literal["keyed", "ratio", "typical"]
"""Tests that verify draft tokens: against the tokens that would have been drawn, by the ratio test, or by typical
acceptance."""
Mode = Literal["auto", "recompute", "swap"]
READING_ROWS = 2048
"""Rows of a step on a GPU while nothing decodes: products of more are hardly faster. Memory is reserved for them."""


class RequestOptions(NamedTuple):
    """The switches that hold for one request from its arrival on.

    ``draft_length``, ``tree_nodes`` and ``exit_layer`` 0 are automatic.
    """

    kv_cache: bool = True
    speculation: str = "off"
    draft_length: int = 0
    prefix_cache: bool = True
    policy: PagePolicy = KeepAll()
    forced_tokens: bool = True
    ngram_first: bool = True
    ngram_chats: bool = False
    tree_nodes: int = 0
    exit_layer: int = 0
    acceptance: Acceptance = "keyed"


T = TypeVar("T")


class _Switch(Generic[T]):
    """The value of a switch, read as a ``kind``."""

    def __init__(self, key: str, kind: Callable[[Value], T]) -> None:
        self._key, self._kind = key, kind

    def __get__(self, options: EngineOptions, owner: type[EngineOptions]) -> T:
        return self._kind(options.values[self._key])


class EngineOptions:
    """Values by catalogue key; changed only through the catalogue's own validation, and then the dictionary is new.

    ``capabilities`` is what the loaded model can do; without a model nothing that needs one can be switched on.
    """

    chunked_prefill = _Switch(keys.CHUNKED_PREFILL, bool)
    token_budget = _Switch(keys.TOKEN_BUDGET, int)
    """The most rows of one step."""
    max_batch = _Switch(keys.MAX_BATCH, int)
    """The most sequences of one step."""
    async_scheduling = _Switch(keys.ASYNC_SCHEDULING, bool)
    """True if a decoding step may be launched before the last one's tokens are read."""
    admission = _Switch(keys.ADMISSION, str)
    """The scheduling policy, the name of a `SchedulingTechnique`."""
    prefix_first = _Switch(keys.PREFIX_FIRST, bool)
    """True if requests that the policy treats alike start in the order of what the cache has of them."""
    step_targets = _Switch(keys.STEP_TARGETS, bool)
    """True if steps with running answers are kept below the targets of their classes."""
    preemption = _Switch(keys.PREEMPTION, lambda value: cast(Mode, value))
    """Treatment of a preempted sequence's keys and values: "swap", "recompute", or "auto"."""
    batch_invariant = _Switch(keys.BATCH_INVARIANT, bool)
    cascade = _Switch(keys.CASCADE, bool)

    def __init__(self) -> None:
        self.values: dict[str, Value] = catalogue.defaults()
        self.capabilities: frozenset[Capability] = frozenset()
        self._found: Mapping[str, OptionMeasurement] = {}

    def set(self, key: str, value: Value) -> None:
        """Raises :class:`engine.catalogue.OptionError` with a sentence when the value cannot apply.

        Before a model is loaded its capabilities are unknown, so every value may be set.
        """
        self.values = catalogue.validated({key: value}, self.values, self.capabilities or MISSING)

    def adopt(self, capabilities: frozenset[Capability], found: Mapping[str, OptionMeasurement] = {}) -> None:
        """Take over the loaded model's capabilities (empty: no model is loaded, and values are kept for the next one).

        A value that cannot apply to the model falls back to its default. ``found``: what the load measured about
        switches, by their keys.
        """
        self.capabilities, self._found = capabilities, found
        if not capabilities:
            return
        for spec in catalogue.state(self.values, capabilities):
            if spec.value in spec.disabled_choices or (spec.disabled_reason and spec.value != spec.default):
                self.values = {**self.values, spec.key: spec.default}

    def for_request(self, overrides: Mapping[str, Value], prompt_length: int | None = None) -> RequestOptions:
        """The options of one request; some page policies need ``prompt_length``, in tokens.

        Raises :class:`engine.catalogue.OptionError` with a sentence.
        """
        for key in overrides:
            if catalogue.option(key).scope != "request":
                raise catalogue.OptionError(f"{key} holds for the whole engine: set it there, not in a request.")
        values = catalogue.validated(overrides, self.values, self.capabilities)
        return RequestOptions(
            kv_cache=bool(values[keys.KV_CACHE]),
            speculation=str(values[keys.SPECULATION]),
            draft_length=int(values[keys.DRAFT_LENGTH]),
            prefix_cache=bool(values[keys.PREFIX_CACHE]) and not catalogue.idle(keys.PREFIX_CACHE, values),
            forced_tokens=bool(values[keys.FORCED_TOKENS]),
            ngram_first=bool(values[keys.NGRAM_FIRST]),
            ngram_chats=bool(values[keys.NGRAM_CHATS]),
            tree_nodes=int(values[keys.TREE_NODES]),
            exit_layer=int(values[keys.EXIT_LAYER]),
            acceptance=cast(Acceptance, values[keys.ACCEPTANCE]),
            policy=policy_of(values, prompt_length),
        )

    @property
    def whole_context(self) -> bool:
        """True if admission reserves the pages of the longest possible answer."""
        return self.values[keys.PAGE_RESERVATION] == "whole_context"

    def reading_budget(self, device: torch.device) -> int:
        """The most rows of a step in which nothing decodes: a GPU has more, unless the budget was set to another."""
        chosen = self.token_budget
        return (
            READING_ROWS if traits(device).kernels and chosen == catalogue.option(keys.TOKEN_BUDGET).default else chosen
        )

    @property
    def classes(self) -> Mapping[str, ServiceClass]:
        """Service classes with the targets that are set."""
        return classes_of(self.values)

    @property
    def host_cache_bytes(self) -> int:
        """Bytes of host memory for pages that do not fit into the cache on the device."""
        return int(float(self.values[keys.HOST_CACHE]) * 1e9)

    @property
    def disk_cache_bytes(self) -> int:
        """Bytes of files for saved chats; 0: none are saved."""
        return int(float(self.values[keys.DISK_CACHE]) * 1e9)

    @property
    def automatic_activations(self) -> bool:
        """True if the bits of activations are those that the model was found to need."""
        return self.values[keys.ACTIVATIONS] == "auto"

    def apply_to(self, numerics: Numerics) -> None:
        """Set the live modes of a model."""
        numerics.batch_invariant, numerics.cascade = self.batch_invariant, self.cascade
        numerics.graphs = bool(self.values[keys.CUDA_GRAPHS])
        numerics.early = bool(self.values[keys.EARLY_LAUNCH])
        numerics.ahead = int(self.values[keys.FETCHED_AHEAD]) << 20
        numerics.resident = bool(self.values[keys.RESIDENT])
        chosen = str(self.values[keys.ACTIVATIONS]).removesuffix("bit")
        numerics.activations = numerics.automatic if self.automatic_activations else int(chosen)
        numerics.refines = self.automatic_activations

    @property
    def kv_kind(self) -> KVKind:
        """Kind of the KV cache: the format of keys and values."""
        values, name = self.values, str(self.values[keys.KV_KIND])
        ranks = catalogue.record(PolicyTechnique, values[keys.PAGE_POLICY]).store is not None
        return KVKind(
            name,
            int(values[keys.KV_KEY_BITS]),
            int(values[keys.KV_VALUE_BITS]),
            bounds=ranks and name == "16bit",
            windowed=bool(values[keys.WINDOW_PAGES]),
            hadamard=catalogue.record(KVTechnique, name).mixes and bool(values[keys.KV_HADAMARD]),
        )

    @property
    def int8_head(self) -> bool:
        """True if a 16- or 32-bit output head is quantised to 8 bits when a model is loaded."""
        return self.values[keys.OUTPUT_HEAD] == "int8" and not catalogue.idle(keys.OUTPUT_HEAD, self.values)

    @property
    def tables_in_file(self) -> bool:
        """True if token tables that are only looked up stay in the model's file, on a processor."""
        return self.values[keys.TOKEN_TABLE] == "file"

    @property
    def packing(self) -> str:
        """Format of packed weights in memory, one of :data:`engine.formats.source.Packing`."""
        if self.values[keys.WEIGHTS] == "16bit":
            return "16bit"
        return "4bit" if self.values[keys.PACKED_KERNEL] == "native" else "4bit_torch"

    def state(self) -> list[OptionSpec]:
        """All options with their present values."""
        return catalogue.state(self.values, self.capabilities, self._found)
