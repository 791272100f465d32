"""Our engine's forward over a checkpoint folder, for comparisons with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.types import StateRun
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
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
    ):
        checkpoint = open_checkpoint(folder, need_tokenizer=False).for_context(context)
        checkpoint = checkpoint.quantised(quantise) if quantise else checkpoint
        numerics = Numerics(invariant)
        self.config = checkpoint.config
        self.model = load_model(checkpoint, torch.device("cpu"), dtype, weights, numerics=numerics)
        kv = new_store(self.config, 8 * PAGES + 1, dtype)
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


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())
