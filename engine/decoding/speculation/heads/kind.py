"""The interface of heads: how a kind is found, recognised, checked, read, sized, and made into a proposer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.cache.stores.store import KVStore
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.runner.runner import Runner
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.decoding.speculation.base import Proposer
from engine.formats.load import Checkpoint
from engine.formats.safetensors import TensorFiles
from engine.formats.source import CheckpointSource, LoadSettings, Packing

CPU = torch.device("cpu")
OTHER_HEADS = "Choose heads that were made for this model."


class HeadTarget(NamedTuple):
    """The loaded model that heads are attached to. ``pages`` counts page 0 of its cache."""

    model: CausalLM
    runner: Runner
    eos_ids: list[int]
    pages: int

    def no_state(self) -> Tensor:
        """A hidden state ``[1, hidden_size]`` of zeros."""
        model = self.model
        return torch.zeros(1, model.config.hidden_size, dtype=model.dtype, device=model.device)


class AttachedHead(NamedTuple):
    """The proposer that heads became, and the arenas of their own, which use the target's page numbers."""

    proposer: Proposer
    store: KVStore | None = None


class HeadKind(ABC):
    """Heads of one technique, in files of their own or in those of their model (``own``)."""

    name: str
    """The name of their proposer."""
    title: str
    """What a file holds, in a sentence."""
    short: str
    """The same after "The"."""
    own = False
    """They are the model's own: :meth:`of_checkpoint` finds them, and no file is looked for."""
    stem = ""
    """Name, without its suffix, that the file of the weights has where it tells the kind."""
    called = "The heads"
    """Beginning of a sentence about heads that cannot be opened."""
    goes_on = False
    """They go on from their own states. A model's own that do so give way to those in files."""

    def of_checkpoint(self, checkpoint: Checkpoint) -> HeadFiles | None:
        """The model's ``own`` heads; None: it has none."""
        return None

    def in_config(self, config: RawConfig) -> bool:
        """Return True if config.json says that it is this kind."""
        return False

    def in_names(self, names: Collection[str]) -> bool:
        """Return True if the names of the tensors say so, where config.json does not."""
        return False

    def neighbour(self, model: Path) -> Path | None:
        """A folder next to that of a model, where the kind is kept by its name."""
        return None

    def layout(
        self, files: TensorFiles, config: RawConfig, target: ModelConfig, where: str
    ) -> tuple[Any, tuple[str, ...]]:
        """Facts of the files that the kind needs, and notices for people.

        ``where`` names the files. Raises :class:`CheckpointError` for heads that are not the ``target``'s.
        """
        return None, ()

    @abstractmethod
    def read(self, files: HeadFiles, target: CausalLM) -> Any:
        """The heads, planned where the target is. Raises :class:`CheckpointError`."""

    def sizes(self, files: HeadFiles, planned: Callable[[], CausalLM]) -> tuple[int, float]:
        """Bytes of weights, and of keys and values for each token, for a target that is ``planned()``.

        Raises :class:`CheckpointError`.
        """
        return self.read(files, planned()).storage_size(), 0.0

    def cost(self, files: HeadFiles, target: CausalLM) -> int:
        """Bytes read for a draft token, for a planned ``target``. Raises :class:`CheckpointError`."""
        cost: int = self.read(files, target).bytes_read_per_step()
        return cost

    @abstractmethod
    def attach(self, head: Any, target: HeadTarget) -> AttachedHead:
        """Make a proposer of heads that were read. A first pass takes its buffers, because the controller measures
        costs and the first draft should cost as much as the later ones."""

    def described(self, head: Any, files: HeadFiles) -> tuple[str, str]:
        """The drafter and a description of it, for display."""
        return head.title, "the checkpoint's own" if self.own else str(files.path)


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """Heads that were opened and fit their model. ``path`` is their folder, ``config`` its config.json.

    ``layout`` is what :meth:`HeadKind.layout` found, ``notices`` are for people. A model's own are packed as it is:
    ``packing``, to compute on ``device``.
    """

    of: HeadKind
    path: Path
    config: RawConfig
    files: TensorFiles
    layout: Any = None
    notices: tuple[str, ...] = ()
    packing: Packing = "4bit"
    device: torch.device = CPU

    @property
    def kind(self) -> str:
        return self.of.name

    def read(self, target: CausalLM) -> Any:
        """The heads, for the model that they draft for. Raises :class:`CheckpointError`."""
        return self.of.read(self, target)

    def resident_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the tensors in a model of that dtype; whole numbers stay as they are."""
        return sum(
            entry.numel * (dtype if entry.dtype.is_floating_point else entry.dtype).itemsize
            for entry in self.files.entries.values()
        )


def check_width(where: str, width: int, target: ModelConfig, instead: str = OTHER_HEADS) -> None:
    """Raises :class:`CheckpointError` for heads that read states of another ``width`` than the target's."""
    if width != target.hidden_size:
        raise CheckpointError(
            f"{where} is for a model with states of {width:,} numbers, and this one's have {target.hidden_size:,}. "
            f"{instead}"
        )


def check_vocabulary(where: str, words: int, target: ModelConfig, instead: str = OTHER_HEADS) -> None:
    """Raises :class:`CheckpointError` for heads of another vocabulary than the target's."""
    if words != target.vocab_size:
        raise CheckpointError(
            f"{where} is for a vocabulary of {words:,} tokens, and this model's has {target.vocab_size:,}. {instead}"
        )


def source_of(files: TensorFiles, target: CausalLM) -> CheckpointSource:
    """The head runs as its target does, but for the batch-invariant arithmetic: draft tokens change no text."""
    numerics = Numerics(quantises=target.numerics.quantises)
    return CheckpointSource(files, None, LoadSettings(target.device, target.dtype, "4bit", numerics))
