"""Bringing a model into memory, in three stages so that the model before it can be kept until the new one is read."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch

from engine.base import devices
from engine.base.host_memory import trim_heap
from engine.cache.policies import SparseReads
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.store import KVStore
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.runner.graphs import Graphs
from engine.compute.runner.runner import Runner
from engine.config.pooling import Pooling
from engine.decoding.options import EngineOptions
from engine.decoding.speculation.base import Proposer
from engine.protocol import ChatMessage, Fit, LoadOptions, ModelCard, OptionMeasurement, ToolConfig
from engine.text.channels import ChannelParser
from engine.text.prompt import prompt_ids
from engine.text.stream import TextStream

if TYPE_CHECKING:
    from engine.compute.models.base import CausalLM
    from engine.compute.runner.perplexity import ReadersFactory
    from engine.compute.vision.embeddings import PictureEmbeddings
    from engine.compute.vision.processor import ImageProcessor
    from engine.loading.files import ModelFiles

Progress = Callable[[str, float], None]


class LoadFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """The model could not be loaded. ``code`` is for programs; the message says what happened and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OpenedModel(Protocol):
    """A model whose files were checked and whose memory was estimated; nothing large was read."""

    @property
    def fit(self) -> Fit:
        """The memory that it will take."""

    def fits_alongside(self) -> bool:
        """Return True if its weights fit into what is free now, with the present model still in memory."""

    def read(self, progress: Progress, cancelled: Callable[[], bool]) -> None:
        """Read the weights. Raises LoadFailed, or engine.base.errors.LoadCancelled."""

    def assemble(self, progress: Progress) -> LoadedModel:
        """Allocate the arenas for the weights that were read, out of the memory free now. Raises LoadFailed."""

    def rebuilt(self, kind: KVKind) -> LoadedModel:
        """The model again with arenas of another kind, once those that it had were dropped. Raises LoadFailed."""


class Loader(Protocol):
    """Source of models."""

    def open(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> OpenedModel:
        """Check the files and whether they fit once ``resident`` has made room. Raises LoadFailed."""


def load_name(path: str) -> str:
    """The name of the model at ``path``, for use before its card exists."""
    return Path(path).name or path


def release_memory() -> None:
    """Return the memory of a dropped model to the system."""
    gc.unfreeze()
    gc.collect()
    devices.release_cached()
    trim_heap()


def spare_the_collector() -> None:
    """Exclude all objects that exist now from garbage collection, which would otherwise scan them during steps.

    Memory that the load freed is returned to the system.
    """
    gc.collect()
    gc.freeze()
    trim_heap()


class LoadModel(NamedTuple):
    """Load the model folder at ``path``; ``draft`` is the folder of a draft model or ""."""

    path: str
    draft: str = ""
    options: LoadOptions = LoadOptions()


class Pictures(NamedTuple):
    """``processor`` prepares pictures for the model's tower, for any thread, and ``embeddings`` are for the engine
    thread alone; None: it reads text only. ``refused``: why it does, as a sentence, where there is one to tell."""

    processor: ImageProcessor | None = None
    embeddings: PictureEmbeddings | None = None
    refused: str = ""


class Drafting(NamedTuple):
    """``methods`` are the available drafters and a description of each, for display; ``model`` is the draft model."""

    proposers: tuple[Proposer, ...] = ()
    methods: tuple[tuple[str, str], ...] = ()
    model: CausalLM | None = None


class Reads(NamedTuple):
    """Reads of a step: bytes of weights, which are packed or not, bytes of keys and values for each token of a text,
    and the share of them that rows read that choose pages."""

    weights: int = 0
    packed: bool = False
    kv_per_token: float = 0.0
    sparse: SparseReads = SparseReads()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadedModel:
    """Immutable but for the arenas behind ``runner``.

    ``limit`` is the longest sequence that the model may serve, in tokens; ``card.context`` is smaller where memory sets
    it. ``pages`` counts the pool's pages, page 0 included. ``stores`` are the arenas behind ``runner`` and those of
    what drafts. ``recent_pages`` counts those of a second pool, page 0 included, where ``kind`` keeps recent tokens
    apart. ``opened`` makes this model again with arenas of another kind, planned out of what is free once these are
    dropped.
    """

    card: ModelCard
    fit: Fit
    runner: Runner
    device: torch.device
    pages: int
    limit: int
    reads: Reads
    command: LoadModel = field(default_factory=lambda: LoadModel(""))
    """What was asked for when it was loaded."""
    stores: tuple[KVStore, ...] = ()
    graphs: tuple[Graphs, ...] = ()
    """Captured steps of the model and of its draft, where steps can be captured."""
    fingerprint: str = ""
    """Identifies model, device and kernels; saved pages with another fingerprint are not used. "": none are saved."""
    files: ModelFiles | None = None
    model: CausalLM | None = None
    drafting: Drafting = field(default_factory=Drafting)
    pictures: Pictures = field(default_factory=Pictures)
    readers: ReadersFactory | None = None
    """Makes the readers that score a text with the model while it serves requests; None: not possible."""
    kind: KVKind = field(default_factory=KVKind)
    recent_pages: int = 0
    opened: OpenedModel | None = None
    found: Mapping[str, OptionMeasurement] = field(default_factory=dict)
    """Findings of the load about switches, by their keys."""

    @property
    def pooling(self) -> Pooling | None:
        """Pooling of a model that is made for embeddings; None: it is made for something else."""
        return None if self.files is None else self.files.checkpoint.pooling

    @property
    def ranks(self) -> bool:
        """True for a model that is made to score documents for a query."""
        return self.files is not None and self.files.checkpoint.ranks

    @property
    def embedding_size(self) -> int:
        """Dimensions of its embeddings."""
        assert self.model is not None
        last = self.model.projections[-1:]
        return last[0].weight.shape[0] if last else self.model.config.hidden_size

    @property
    def encodes(self) -> bool:
        """True for an encoder, which makes embeddings and writes no text."""
        return self.model is not None and self.model.config.attention.bidirectional

    def open_stream(
        self,
        stop: Sequence[str],
        continues: bool,
        prompt_ids: Sequence[int],
        prefilled: bool = False,
        tools: ToolConfig | None = None,
        written: int = 0,
    ) -> TextStream:
        """The text stream of a new answer; one that continues plain text has no channels, one that goes on from a
        message (``prefilled``) does. Of an answer that was cut the last ``written`` ids of the prompt are its own: the
        stream is the one that it had."""
        assert self.files is not None
        style = self.files.channels
        asked = len(prompt_ids) - written
        prompt_ids, begun = (prompt_ids[:asked], prompt_ids[asked:]) if written else (prompt_ids, ())
        if tools is not None:
            channels: ChannelParser | None = self.files.tools.parser(prompt_ids, tools)
        else:
            channels = style.parser(prompt_ids) if style is not None and not continues else None
        goes_on = continues or (prefilled and not written)
        stream = TextStream(self.files.tokenizer, stop, prompt_ids if goes_on else None, channels)
        for token in begun:
            stream.push(token, stops=False)
        return stream

    def encode_prompt(self, prompt: Sequence[ChatMessage] | str) -> list[int]:
        """Token ids of a conversation (through the chat template) or of plain text. Raises PromptError."""
        assert self.files is not None
        return prompt_ids(self.files.tokenizer, self.files.template, prompt)


class _NoRunner:
    """The runner of a model whose arenas have been dropped."""

    batch_seconds = 0.0
    num_layers = 0

    def forward(self, rows: Sequence[SequenceRows], **options: Any) -> ForwardOutput:
        raise RuntimeError("the cache of this model is being rebuilt")


def without_arenas(model: LoadedModel) -> LoadedModel:
    """The model without arenas and proposers: other threads still use its card and its text parts."""
    drafting = model.drafting._replace(proposers=())
    return replace(model, runner=cast(Runner, _NoRunner()), stores=(), drafting=drafting, graphs=())
