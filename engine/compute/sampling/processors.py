"""Processors that change logits before the draw, in Hugging Face's order.

Bias, repetition, presence and frequency, DRY, what a grammar bars, temperature, then truncation: top-k, top-p, min-p,
typical-p, each over what the one before it left. Repetition and DRY look at prompt and output; presence and frequency
at the output alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.compute.sampling.params import SamplingParams

MAX_DRY_MATCH = 50
"""Longest repetition that DRY follows; the penalty grows no further beyond it."""


class History:
    """Token statistics that the penalties of one answer need, kept up to date token by token.

    ``seen`` [V] bool: prompt and output; ``counts`` [V] float32: the output's tokens. A copy follows a drafted path.
    """

    def __init__(self, vocabulary: int, prompt_length: int, device: torch.device) -> None:
        self.prompt_length = prompt_length
        self.length = 0
        self.seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self.counts = torch.zeros(vocabulary, dtype=torch.float32, device=device)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in ``tokens[self.length:]`` of the answer's own sequence."""
        new = tokens[self.length :]
        if not new:
            return
        ids = torch.tensor(new, dtype=torch.int64, device=self.seen.device)
        self.seen[ids] = True
        output = ids[max(0, self.prompt_length - self.length) :]
        if output.numel():
            self.counts.index_put_((output,), torch.ones((), device=ids.device), accumulate=True)
        self.length += len(new)

    def copy(self) -> History:
        """A history that can follow a drafted path without touching this one."""
        other = object.__new__(History)
        other.prompt_length, other.length = self.prompt_length, self.length
        other.seen, other.counts = self.seen.clone(), self.counts.clone()
        return other

    def push(self, token: int) -> None:
        """Take in one drafted token."""
        self.seen[token] = True
        self.counts[token] += 1
        self.length += 1


def penalise_(logits: Tensor, history: History, params: SamplingParams) -> None:
    """Repetition (Keskar et al. 2019), then presence and frequency, on one row of logits [V], in place."""
    if params.repetition_penalty != 1.0:
        factor = params.repetition_penalty
        changed = torch.where(logits > 0, logits / factor, logits * factor)
        torch.where(history.seen, changed, logits, out=logits)
    if params.presence_penalty != 0.0:
        logits -= params.presence_penalty * (history.counts > 0)
    if params.frequency_penalty != 0.0:
        logits -= params.frequency_penalty * history.counts


def bias_(logits: Tensor, params: SamplingParams) -> None:
    """Add the logit bias to one row of logits [V], in place; ids beyond the vocabulary are left out."""
    if params.logit_bias:
        known = {token: bias for token, bias in params.logit_bias.items() if 0 <= token < logits.shape[-1]}
        ids = torch.tensor(list(known), dtype=torch.int64, device=logits.device)
        logits[ids] += torch.tensor(list(known.values()), dtype=logits.dtype, device=logits.device)


def bar_end_(logits: Tensor, length: int, params: SamplingParams) -> None:
    """Let no end be drawn on one row [V], in place, where the sequence of ``length`` tokens may not end yet."""
    if length < params.late_end.length:
        known = [token for token in params.late_end.ids if 0 <= token < logits.shape[-1]]
        logits[torch.tensor(known, dtype=torch.int64, device=logits.device)] = -math.inf


def bar_(logits: Tensor, allowed: np.ndarray) -> None:
    """Let only allowed tokens be drawn on one row [V], in place; ``allowed`` [ceil(V / 32)] uint32 has a bit for each,
    the lowest one first."""
    bits = np.unpackbits(allowed.view(np.uint8), count=logits.shape[-1], bitorder="little")
    logits.masked_fill_(torch.from_numpy(bits).to(logits.device) == 0, -math.inf)


def dry_penalties(tokens: np.ndarray, params: SamplingParams) -> dict[int, float]:
    """Penalty that DRY takes off the logit of each token after the sequence ``tokens``.

    For every earlier occurrence of the last token: how long do the texts up to there and up to the end agree? A token
    that followed an agreement of n >= allowed_length tokens loses multiplier * base^(n - allowed_length), the longest
    agreement counting. Source: p-e-w, oobabooga/text-generation-webui pull request 5677 (without sequence breakers).
    """
    end = len(tokens) - 1
    if end < 1:
        return {}
    places = np.flatnonzero(tokens[:end] == tokens[end])
    longest: dict[int, int] = {}
    length = 1
    while places.size:
        if length >= params.dry_allowed_length:
            for token in tokens[places + 1].tolist():
                longest[token] = length
        if length == MAX_DRY_MATCH:
            break
        places = places[places >= length]
        places = places[tokens[places - length] == tokens[end - length]] if end >= length else places[:0]
        length += 1
    allowed = params.dry_allowed_length
    return {token: params.dry_multiplier * params.dry_base ** (n - allowed) for token, n in longest.items()}


def dry_(logits: Tensor, tokens: np.ndarray, params: SamplingParams) -> None:
    """Apply DRY to one row of logits [V], in place; ``tokens`` is the row's own path from the start of the prompt."""
    penalties = dry_penalties(tokens, params)
    if penalties:
        ids = torch.tensor(list(penalties), dtype=torch.int64, device=logits.device)
        logits[ids] -= torch.tensor(list(penalties.values()), dtype=logits.dtype, device=logits.device)
