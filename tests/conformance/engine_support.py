"""Our engine's forward over a checkpoint folder, for comparisons with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.types import StateRun
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.heads.base import OUTPUT
from engine.compute.models.heads.mtp import MultiToken, MultiTokenLayout, layout_of
from engine.compute.runner.runner import Runner
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.quantised.quantise import Method

PAGES = 12
"""Pages given to each sequence."""


class Ours:
    """A loaded model with room for eight sequences of 192 tokens."""

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype = torch.float32,
        weights: str = "4bit",
        invariant: bool = False,
        context: int | None = None,
        quantise: Method | None = None,
        kv_dtype: torch.dtype | None = None,
    ):
        """``kv_dtype`` is that of keys and values; None: dtype."""
        checkpoint = open_checkpoint(folder, need_tokenizer=False).for_context(context)
        checkpoint = checkpoint.quantised(quantise) if quantise else checkpoint
        numerics = Numerics(invariant)
        self.config = checkpoint.config
        self.model = load_model(checkpoint, torch.device("cpu"), dtype, weights, numerics=numerics)
        kv = new_store(self.config, 8 * PAGES + 1, kv_dtype or dtype)
        self.runner = Runner(self.model, kv, AttentionDispatcher(numerics))

    def row(self, tokens: Sequence[int], start: int, sequence: int, wanted: int) -> SequenceRows:
        """Rows of one of the sequences."""
        states = StateRun.alone(len(tokens), start, 1 + sequence)
        return SequenceRows(tokens, start, self.pages(sequence), wanted, states=states)

    @staticmethod
    def pages(sequence: int) -> list[int]:
        return list(range(1 + sequence * PAGES, 1 + (sequence + 1) * PAGES))

    def logits(self, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
        """All logits ``[length, V]`` of each prompt, in one batch."""
        rows = [self.row(prompt, 0, s, len(prompt)) for s, prompt in enumerate(prompts)]
        return list(self.runner.forward(rows).logits.split([len(prompt) for prompt in prompts]))

    def chunked(self, prompt: Sequence[int], chunk: int, sequence: int = 0) -> Tensor:
        """All logits of one prompt, ``chunk`` tokens a step."""
        parts = []
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            parts.append(self.runner.forward([self.row(tokens, start, sequence, len(tokens))]).logits)
        return torch.cat(parts)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The ``count`` tokens after the prompt, one a step."""
        tokens, start = list(prompt), 0
        while len(tokens) < len(prompt) + count:
            logits = self.runner.forward([self.row(tokens[start:], start, 0, 1)]).logits
            start = len(tokens)
            tokens.append(int(logits[0].argmax()))
        assert len(tokens) <= PAGES * PAGE_SIZE
        return tokens[len(prompt) :]


def multi_token(folder: Path, ours: Ours, layout: MultiTokenLayout, **options: Any) -> tuple[MultiToken, Runner]:
    """The multi-token layer of a checkpoint, which has it by these names, with what runs it over a cache of its own."""
    checkpoint = open_checkpoint(folder, need_tokenizer=False)
    assert layout_of(checkpoint.has_tensor, checkpoint.config.num_layers) == layout
    source = checkpoint.source(torch.device("cpu"), torch.float32, "4bit", Numerics())
    head = MultiToken(ours.model, source, layout, **options)
    return head, Runner(head, head.new_store(PAGES + 1), AttentionDispatcher(Numerics()))


def reads_like(
    folder: Path, layout: MultiTokenLayout, text: Tensor, states: Tensor, read: Tensor, logits: Tensor
) -> None:
    """Prove that the multi-token layer of a checkpoint makes ``read`` and ``logits`` (batches of one) of a text [1, T]
    and the ``states`` that its model gives."""
    ours, length = Ours(folder), text.shape[1]
    head, runner = multi_token(folder, ours, layout)
    rows = ours.row(text[0].tolist(), 0, 0, length)
    features = head.features(ours.runner.forward([rows], want_hidden=frozenset({ours.model.num_layers})).hidden)
    assert relative(features, states[0]) <= 1e-4
    entries = SequenceRows(text[0, 1:].tolist(), 0, ours.pages(0), length - 1)
    out = runner.forward([entries], hidden_in=features[:-1])
    assert relative(out.hidden[OUTPUT], read[0]) <= 1e-4
    assert relative(out.logits, logits[0]) <= 1e-4


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())
