"""The present value of every optimisation, and what one request made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast, get_args

from engine import catalogue
from engine.cache.kinds import KVKind
from engine.cache.policies import KeepAll, PagePolicy, policy_of
from engine.catalogue import Capability
from engine.layers.numerics import Numerics
from engine.protocol import OptionSpec, Value
from engine.scheduling.preemption import Mode

Acceptance = Literal["keyed", "ratio", "typical"]
"""How guesses are judged: by the very tokens that would have been drawn, by the ratio test, by typical acceptance."""
_ALL: frozenset[Capability] = frozenset(get_args(Capability))


class RequestOptions(NamedTuple):
    """The switches that hold for one request from its arrival on.

    ``draft_length``, ``tree_nodes`` and ``exit_layer`` 0 are automatic.
    """

    kv_cache: bool = True
    speculation: str = "off"
    draft_length: int = 0
    prefix_cache: bool = True
    policy: PagePolicy = KeepAll()
    ngram_first: bool = True
    ngram_chats: bool = False
    tree_nodes: int = 0
    exit_layer: int = 0
    acceptance: Acceptance = "keyed"


class EngineOptions:
    """Values by catalogue key; changed only through the catalogue's own validation.

    ``capabilities`` is what the loaded model can do; without a model nothing that needs one can be switched on.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = catalogue.defaults()
        self.capabilities: frozenset[Capability] = frozenset()

    def set(self, key: str, value: Value) -> None:
        """Raises :class:`engine.catalogue.OptionError` with a sentence when the value cannot apply.

        Before a model is loaded nobody knows what it can do, so every value may be wished for.
        """
        self.values = catalogue.validated({key: value}, self.values, self.capabilities or _ALL)

    def adopt(self, capabilities: frozenset[Capability]) -> None:
        """Take over what the loaded model can do (nothing: there is none, and wishes are kept for the next one).

        A value that cannot apply to the model falls back to its default.
        """
        self.capabilities = capabilities
        if not capabilities:
            return
        for spec in catalogue.state(self.values, capabilities):
            if spec.value in spec.disabled_choices or (spec.disabled_reason and spec.value != spec.default):
                self.values[spec.key] = spec.default

    def for_request(self, overrides: Mapping[str, Value], prompt_length: int | None = None) -> RequestOptions:
        """The switches of one request, whose prompt has a length that only QUEST asks for.

        Raises :class:`engine.catalogue.OptionError` with a sentence.
        """
        for key in overrides:
            if catalogue.option(key).scope != "request":
                raise catalogue.OptionError(f"{key} holds for the whole engine: set it there, not in a request.")
        values = catalogue.validated(overrides, self.values, self.capabilities)
        return RequestOptions(
            kv_cache=bool(values["kv_cache"]),
            speculation=str(values["speculation"]),
            draft_length=int(values["draft_length"]),
            prefix_cache=bool(values["prefix_cache"]),
            ngram_first=bool(values["ngram_first"]),
            ngram_chats=bool(values["ngram_chats"]),
            tree_nodes=int(values["tree_nodes"]),
            exit_layer=int(values["exit_layer"]),
            acceptance=cast(Acceptance, values["acceptance"]),
            policy=policy_of(
                str(values["page_policy"]), int(values["window_tokens"]), int(values["quest_tokens"]), prompt_length
            ),
        )

    @property
    def whole_context(self) -> bool:
        """Whether admission reserves the pages of the longest possible answer."""
        return self.values["page_reservation"] == "whole_context"

    @property
    def chunked_prefill(self) -> bool:
        return bool(self.values["chunked_prefill"])

    @property
    def token_budget(self) -> int:
        """The most rows of one step."""
        return int(self.values["token_budget"])

    @property
    def admission(self) -> str:
        """The order of admission: "longest_prefix" or "first_come"."""
        return str(self.values["admission"])

    @property
    def preemption(self) -> Mode:
        """What becomes of a preempted answer's keys and values."""
        return cast(Mode, self.values["preemption"])

    @property
    def host_cache_bytes(self) -> int:
        """Bytes of host memory for what the cache has no room for."""
        return int(float(self.values["host_cache"]) * 1e9)

    @property
    def disk_cache_bytes(self) -> int:
        """Bytes of files for saved chats; 0: none are saved."""
        return int(float(self.values["disk_cache"]) * 1e9)

    @property
    def batch_invariant(self) -> bool:
        return bool(self.values["batch_invariant"])

    @property
    def cascade(self) -> bool:
        return bool(self.values["cascade"])

    def apply_to(self, numerics: Numerics) -> None:
        """Set the live modes of a model."""
        numerics.batch_invariant, numerics.cascade = self.batch_invariant, self.cascade

    @property
    def kv_kind(self) -> KVKind:
        """How keys and values are kept."""
        match self.values["kv_kind"]:
            case "int8":
                return KVKind("int8")
            case "int4":
                return KVKind("int4")
            case "kivi":
                return KVKind("kivi", int(self.values["kv_key_bits"]), int(self.values["kv_value_bits"]))
            case _:
                return KVKind(bounds=self.values["page_policy"] == "quest")

    @property
    def packing(self) -> str:
        """How packed weights are held, one of :data:`engine.checkpoints.source.Packing`."""
        if self.values["weights"] == "16bit":
            return "16bit"
        return "4bit" if self.values["packed_kernel"] == "native" else "4bit_torch"

    def state(self) -> list[OptionSpec]:
        """The catalogue as it stands."""
        return catalogue.state(self.values, self.capabilities)
