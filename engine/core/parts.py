"""The models of a load, the target and its draft: opened, compared, proved once they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from engine.cache.kinds import KVKind
from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.load import Checkpoint
from engine.core.loading import load_name
from engine.core.runner import Runner, SequenceRows
from engine.memory import estimate
from engine.models.base import CausalLM
from engine.protocol import Quantise
from engine.text.channels import ChannelStyle, channel_style
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


class Part(NamedTuple):
    """The target or the draft, opened."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    template: ChatTemplate
    channels: ChannelStyle | None

    @classmethod
    def open(cls, path: str, context: int | None) -> Part:
        checkpoint = Checkpoint.open(path).for_context(context)
        tokenizer, template = checkpoint.tokenizer(), checkpoint.chat_template()
        return cls(checkpoint, tokenizer, template, channel_style(tokenizer, template.source))

    @property
    def eos_ids(self) -> list[int]:
        """What ends an answer."""
        named = self.checkpoint.generation_config.eos_ids
        return self.channels.eos(named) if self.channels is not None else named

    def quantised(self, method: Quantise) -> tuple[Part, str]:
        """The part with its linear layers to be packed while they are loaded; a sentence where it is packed already."""
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


def open_draft(path: str, tokenizer: Tokenizer, context: int | None) -> tuple[Part | None, str]:
    """The draft, or why it is not used: guesses are tokens, so both models must mean the same by each of them."""
    if not path:
        return None, ""
    try:
        draft = Part.open(path, context)
    except CheckpointError as error:
        return None, f"The draft model cannot be used. {error}"
    difference = tokenizer.difference(draft.tokenizer)
    if difference:
        return None, f"{load_name(path)} cannot guess for this model: {difference}. Choose a draft of the same family."
    return draft, ""


def prove(runner: Runner, checkpoint: Checkpoint) -> None:
    """Compute one token while a failure still costs nothing: no header tells whether the weights are sound."""
    logits = runner.forward([SequenceRows([0], 0, [1], want_logits=1)]).logits
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(
            f"{checkpoint.path.name} computes values that are no numbers: its weights are damaged, or too large for "
            "the dtype. Download the model again, or choose float32."
        )


def fallbacks(model: CausalLM, name: str) -> Iterator[str]:
    """A sentence for each fast path that declined, with how many layers it would have served."""
    counts: dict[tuple[str, str, str], int] = {}
    for _, linear in model.linears():
        for declined in linear.declined:
            key = (declined.path, declined.reason, linear.path)
            counts[key] = counts.get(key, 0) + 1
    for (path, reason, used), count in counts.items():
        yield f"{count} layers of {name} use {used}: {path} declined ({reason})."
