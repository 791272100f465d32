"""Interface of the parts of a load, what they take, and the model in the making that they are attached to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from engine.cache.stores.store import KVStore
from engine.compute.models.base import CausalLM
from engine.compute.runner.graphs import Graphs
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.base import Proposer
from engine.loading.files import ModelFiles
from engine.loading.memory.estimate import MemoryPlan
from engine.loading.model import Pictures
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading


class Need(NamedTuple):
    """Bytes that a part takes: of weights, counted with the model's or with those that draft; of keys and values for
    each token; and to work with. ``at_once``: the most rows that it cannot read in several steps."""

    weights: int = 0
    draft_weights: int = 0
    kv: float = 0.0
    working: int = 0
    at_once: int = 0

    @classmethod
    def total(cls, needs: Iterable[Need]) -> Need:
        """Needs of several parts together."""
        return cls(*map(sum, zip(*needs, strict=True)))


@dataclass
class ModelAssembly:
    """A loaded model in the making, which parts attach to what they bring: proposers, arenas that use the target's
    page numbers, graphs of steps. ``compiled``: models whose kernels are compiled ahead, with what runs them."""

    place: DevicePlacement
    memory: MemoryPlan
    files: ModelFiles
    model: CausalLM
    runner: Runner
    proposers: list[Proposer] = field(default_factory=list)
    methods: list[tuple[str, str]] = field(default_factory=list)
    """The proposers and a description of each, for display."""
    stores: list[KVStore] = field(default_factory=list)
    graphs: list[Graphs] = field(default_factory=list)
    compiled: list[tuple[CausalLM, Runner]] = field(default_factory=list)
    pictures: Pictures = field(default_factory=Pictures)

    def run(self, model: CausalLM, runner: Runner) -> None:
        """Take in a model with arenas, whose steps may be captured."""
        self.stores.append(runner.kv)
        self.compiled.append((model, runner))
        if runner.graphs is not None:
            self.graphs.append(runner.graphs)


class LoadPart(Protocol):
    """A part that a load brings besides the target: found from headers alone, immutable. What cannot serve is left out,
    with a sentence that says why."""

    def size(self, target: ModelFiles, place: DevicePlacement, limit: int) -> Need:
        """Bytes that it takes, for texts of up to ``limit`` tokens."""

    def read(self, target: ModelFiles, model: CausalLM, reading: WeightReading) -> Self:
        """Read the weights; ``model`` is the target's. Raises :class:`engine.base.errors.LoadCancelled`."""

    def storage_size(self) -> int:
        """Bytes of weights that were read."""

    def attach(self, made: ModelAssembly) -> None:
        """Make what serves out of the weights that were read; a first pass takes its buffers, because the controller
        measures costs and the first draft should cost as much as the later ones."""
