"""The two models of a load, target and draft: opening, comparing, and a test pass once they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, cast

import torch

from engine.attention.registry import AttentionDispatcher
from engine.batch import SequenceRows
from engine.cache.policies import PagePolicy
from engine.cache.pool import pages_for
from engine.cache.stores.kinds import KVKind
from engine.checkpoints.fingerprint import fingerprint
from engine.checkpoints.load import Checkpoint
from engine.checkpoints.open import open_checkpoint
from engine.devices import traits
from engine.errors import CheckpointError
from engine.layers.numerics import Numerics
from engine.loading.model import load_name
from engine.memory import estimate
from engine.models.arenas import SIXTEEN_BITS, new_store
from engine.models.base import CausalLM
from engine.protocol import Quantise
from engine.runner.graphs import CudaRecorder
from engine.runner.perplexity import Reader, Readers, ReadersFactory, reader
from engine.runner.runner import RunnableModel, Runner
from engine.text.channels import ChannelStyle, channel_style
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


class ModelFiles(NamedTuple):
    """The opened checkpoint of the target or of the draft."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    template: ChatTemplate
    channels: ChannelStyle | None

    @classmethod
    def open(cls, path: str, context: int | None) -> ModelFiles:
        checkpoint = open_checkpoint(path).for_context(context)
        tokenizer, template = checkpoint.tokenizer(), checkpoint.chat_template()
        return cls(checkpoint, tokenizer, template, channel_style(tokenizer, template.source))

    @property
    def eos_ids(self) -> list[int]:
        """The tokens that end an answer."""
        named = self.checkpoint.generation_config.eos_ids
        return self.channels.eos(named) if self.channels is not None else named

    def quantised(self, method: Quantise) -> tuple[ModelFiles, str]:
        """The part, set to be quantised while it is loaded; or unchanged with a sentence if it is packed already."""
        checkpoint = self.checkpoint
        if method == "none":
            return self, ""
        if checkpoint.packed:
            text = (
                f"{checkpoint.path.name} is packed in its file ({checkpoint.quantisation_title}) and stays so: "
                "only models of 16 or 32 bits are quantised while they are loaded."
            )
            return self, text
        return self._replace(checkpoint=checkpoint.quantised(method)), ""

    def kv_bytes(self, dtype: torch.dtype, kind: KVKind | None = None) -> float:
        return estimate.kv_bytes_per_token(self.checkpoint.config, dtype, kind)


def open_draft(path: str, tokenizer: Tokenizer, context: int | None) -> tuple[ModelFiles | None, str]:
    """The draft model, or why it is not used: both models must mean the same text by each token id."""
    if not path:
        return None, ""
    try:
        draft = ModelFiles.open(path, context)
    except CheckpointError as error:
        return None, f"The draft model cannot be used. {error}"
    difference = tokenizer.difference(draft.tokenizer)
    if difference:
        return None, f"{load_name(path)} cannot draft for this model: {difference}. Choose a draft of the same family."
    return draft, ""


def prove(runner: Runner, checkpoint: Checkpoint) -> None:
    """Compute one token, since no header tells whether the weights are damaged. Raises CheckpointError if they are."""
    logits = runner.forward([SequenceRows([0], 0, [1], want_logits=1)]).logits
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(
            f"{checkpoint.path.name} computes values that are no numbers: its weights are damaged, or too large for "
            "the dtype. Download the model again, or choose float32."
        )


def fallbacks(model: CausalLM, name: str) -> Iterator[str]:
    """A sentence for each fast path that declined, with the number of layers concerned."""
    linears = [linear for _, linear in model.linears()]
    counts = Counter((declined.path, declined.reason, each.path) for each in linears for declined in each.declined)
    for (path, reason, used), count in counts.items():
        yield f"{count} layers of {name} use {used}: {path} declined ({reason})."


def new_runner(
    model: CausalLM,
    pages: int,
    device: torch.device,
    kind: KVKind = SIXTEEN_BITS,
    recent_pages: int | None = None,
    context: int = 0,
    switches: Numerics | None = None,
) -> Runner:
    """A runner with its own arenas; ``pages`` and ``recent_pages`` (None: the same number) include page 0.

    With a ``context``, the longest sequence in tokens, its steps are captured in CUDA graphs on a GPU, as the model's
    own live switches say or those that are given.
    """
    store = new_store(model.config, pages, model.dtype, device, kind, recent_pages)
    recorder = CudaRecorder(device) if context and traits(device).kernels else None
    attention = AttentionDispatcher(model.numerics)
    switches = switches or model.numerics
    return Runner(cast(RunnableModel, model), store, attention, device, None, context, recorder, switches)


def readers_of(model: CausalLM, device: torch.device, kind: KVKind) -> ReadersFactory:
    """Readers with arenas of the kind that requests use, and readers with exact 16-bit arenas."""

    def exact(length: int) -> Reader:
        return reader(new_runner(model, pages_for(length) + 1, device))

    def readers(policy: PagePolicy) -> Readers:
        def present(length: int) -> Reader:
            return reader(new_runner(model, pages_for(length) + 1, device, kind), policy)

        return Readers(exact, present, f"{kind.title}, {policy.title}")

    return readers


def fingerprint_of(checkpoint: Checkpoint, *what: str) -> str:
    """The fingerprint of a model and ``what`` it runs on; "", which saves no pages, if its files cannot be read."""
    try:
        return fingerprint(checkpoint, *what)
    except CheckpointError:
        return ""
