"""A model in memory with everything that serving it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from engine.cache.kinds import KVKind
from engine.cache.store import KVStore
from engine.core.batch import ForwardOutput
from engine.core.forwarding import TargetRunner
from engine.core.runner import SequenceRows
from engine.layers.numerics import Numerics
from engine.protocol import ChatMessage, Fit, LoadOptions, ModelCard, Sampling
from engine.speculation.base import Proposer
from engine.text.prompt import prompt_ids
from engine.text.stream import TextStream

if TYPE_CHECKING:
    from engine.checkpoints.load import Checkpoint
    from engine.core.inspecting import ReadersFactory
    from engine.models.base import CausalLM
    from engine.text.channels import ChannelStyle
    from engine.text.template import ChatTemplate
    from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Immutable but for the arenas behind ``runner``; the text parts may be used from any thread.

    ``limit`` is the longest sequence that the model may serve, in tokens; ``card.context`` is smaller where memory sets
    it. ``pages`` counts the pool's pages, page 0 included. ``weight_bytes`` is what one forward pass reads of weights.
    ``stores`` are the arenas behind ``runner`` and the draft model's. ``recent_pages`` counts those of a second pool,
    page 0 included, where ``kind`` keeps recent tokens apart. ``with_kind`` gives this model with arenas of another
    kind, planned out of what is free once these are dropped. ``numerics`` are the switches that batch_invariant sets;
    a draft needs none, since guesses change no text.
    """

    card: ModelCard
    fit: Fit
    runner: TargetRunner
    device: torch.device
    pages: int
    limit: int
    weight_bytes: int
    kv_bytes_per_token: float
    stores: tuple[KVStore, ...] = ()
    fingerprint: str = ""
    """Of model, device and kernels: saved pages of another are of no use. "" saves none."""
    proposers: tuple[Proposer, ...] = ()
    guessing: tuple[tuple[str, str], ...] = ()
    """Who can guess ahead, and with what, for people."""
    sampling: Sampling = field(default_factory=Sampling)
    checkpoint: Checkpoint | None = None
    model: CausalLM | None = None
    draft_model: CausalLM | None = None
    tokenizer: Tokenizer | None = None
    chat_template: ChatTemplate | None = None
    channels: ChannelStyle | None = None
    numerics: tuple[Numerics, ...] = ()
    packed: bool = False
    path: str = ""
    draft_path: str = ""
    options: LoadOptions = field(default_factory=LoadOptions)
    readers: ReadersFactory | None = None
    """How a text is scored with the model beside its answers."""
    kind: KVKind = field(default_factory=KVKind)
    recent_pages: int = 0
    with_kind: Callable[[KVKind], LoadedModel] | None = None

    def open_stream(self, stop: Sequence[str], continues: bool, prompt_ids: Sequence[int]) -> TextStream:
        """The text of a new answer; one that goes on from plain text has no channels."""
        assert self.tokenizer is not None
        channels = self.channels.parser(prompt_ids) if self.channels is not None and not continues else None
        return TextStream(self.tokenizer, stop, continues, channels)

    def encode_prompt(self, prompt: Sequence[ChatMessage] | str) -> list[int]:
        """Token ids of a conversation (through the chat template) or of plain text. Raises PromptError."""
        assert self.tokenizer is not None
        assert self.chat_template is not None
        return prompt_ids(self.tokenizer, self.chat_template, prompt)


class _NoRunner:
    """Of a model whose arenas are gone."""

    batch_seconds = 0.0
    num_layers = 0

    def forward(self, rows: Sequence[SequenceRows], **options: Any) -> ForwardOutput:
        raise RuntimeError("the cache of this model is being made anew")


def without_arenas(model: LoadedModel) -> LoadedModel:
    """What other threads need of a model meanwhile: its card and its text parts."""
    return replace(model, runner=_NoRunner(), stores=(), proposers=())
