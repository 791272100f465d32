"""The frozen model that heads are trained for: what it says, what it sees, and its output layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.base.devices import traits
from engine.base.errors import CheckpointError
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.compute.batch import SequenceRows
from engine.compute.models.base import CausalLM
from engine.formats.fingerprint import fingerprint
from engine.formats.load import Checkpoint, load_model
from engine.formats.open import open_checkpoint
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.memory.probe import NoSuchDevice, choose_device, choose_dtype, has_bfloat16
from engine.loading.runners import new_runner
from engine.protocol import DeviceName, Quantise
from engine.services.training.errors import RecipeError
from engine.services.training.text import TextEncoder

_MOST_TOGETHER, _LEAST_TOGETHER, _ARENAS = 128, 8, 300_000_000
"""Most and fewest sequences that the model writes at once, and the bytes that their keys and values may take."""
_ROWS = 2048
"""Rows of one forward, about."""


class Opening(NamedTuple):
    """Options to load the model with, the same as for a chat, so that heads learn from states they will be given."""

    device: DeviceName = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantise: Quantise = "none"


class TargetModel:
    """A loaded model with arenas of its own for ``together`` sequences of ``length`` tokens."""

    def __init__(self, checkpoint: Checkpoint, model: CausalLM, length: int) -> None:
        if model.config.recurrent is not None:
            raise RecipeError("Heads cannot be trained yet for a model whose layers carry states.")
        self.checkpoint, self.model = checkpoint, model
        self.config, self.device = model.config, model.device
        self.length = min(length, model.config.positions.max_position)
        tokenizer, bos_id = checkpoint.tokenizer(), checkpoint.generation_config.bos_id
        self.eos_ids = frozenset(checkpoint.end_ids(tokenizer))
        self.words = TextEncoder.of(tokenizer, checkpoint.chat_template(), bos_id)
        self.fast_bfloat16 = has_bfloat16(self.device)
        self._pages = pages_for(self.length)
        each = self._pages * PAGE_SIZE * kv_bytes_per_token(model.config, model.dtype)
        self.together = max(_LEAST_TOGETHER, min(_MOST_TOGETHER, int(_ARENAS / each)))
        self._runner = new_runner(model, self.together * self._pages + 1, model.device)
        self._last = frozenset({model.config.num_layers})
        self.head = self._head()

    @classmethod
    def open(
        cls, path: str, length: int, opening: Opening = Opening(), show: Callable[[str, float], None] = lambda *_: None
    ) -> TargetModel:
        """Raises :class:`CheckpointError` for what cannot be loaded and :class:`RecipeError` for what has no head."""
        try:
            device = choose_device(opening.device)
        except NoSuchDevice as error:
            raise RecipeError(str(error)) from error
        opened = checkpoint = open_checkpoint(path)
        if opening.quantise != "none" and not checkpoint.packed:
            opened = checkpoint.quantised(opening.quantise)
        try:
            model = load_model(opened, device, choose_dtype(device, opening.dtype).dtype, progress=show)
            return cls(checkpoint, model, length)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise RecipeError(
                f"{checkpoint.path.name} does not fit into memory together with what training takes. "
                "Pack it with --quantise, or train with --device cpu."
            ) from error

    @property
    def name(self) -> str:
        return self.checkpoint.path.name

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model that the heads are for."""
        return fingerprint(self.checkpoint)

    def features(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Compute the inputs of the output layer, ``[sum of lengths, hidden_size]`` in the model's dtype.

        Heads take these: the residual stream after the final norm.
        """
        parts: list[Tensor] = []
        for batch in _batches(sequences, self.together):
            rows = [SequenceRows(tokens, 0, self._pages_of(place)) for place, tokens in enumerate(batch)]
            hidden = self._runner.forward(rows, want_hidden=self._last).hidden[self.config.num_layers]
            parts.append(self.model.norm.forward(hidden))
        return torch.cat(parts)

    def write(
        self, prompts: Sequence[Sequence[int]], temperature: float, generator: torch.Generator
    ) -> list[list[int]]:
        """Continue each of at most ``together`` prompts to its end or to ``length`` tokens; results hold the prompt.

        Tokens are drawn from the softmax of logits / temperature; at temperature 0 they are the likeliest.
        """
        texts = [list(prompt) for prompt in prompts]
        logits = self._prompt_logits(texts)
        going = list(range(len(texts)))
        while going:
            for place, token in zip(going, _draw(logits, temperature, generator), strict=True):
                texts[place].append(token)
            going = [i for i in going if texts[i][-1] not in self.eos_ids and len(texts[i]) < self.length]
            if going:
                rows = [SequenceRows(texts[i][-1:], len(texts[i]) - 1, self._pages_of(i), 1) for i in going]
                logits = self._runner.forward(rows).logits
        return texts

    def logits(self, features: Tensor) -> Tensor:
        """Apply the output layer to ``features [n, hidden_size]``: ``[n, vocab_size]`` float32, with gradients."""
        logits = F.linear(features.to(self.head.dtype), self.head).float() / self.config.scales.logit_divisor
        cap = self.config.scales.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def embed(self, tokens: Tensor) -> Tensor:
        """Rows of the token table, float32: ``tokens`` of any shape -> that shape and ``hidden_size``."""
        found = self.model.embedding.forward(tokens.reshape(-1).to(self.device))
        return found.float().view(*tokens.shape, -1)

    def _prompt_logits(self, texts: list[list[int]]) -> Tensor:
        parts, place = [], 0
        for batch in _batches(texts, self.together):
            rows = [SequenceRows(text, 0, self._pages_of(place + i), 1) for i, text in enumerate(batch)]
            parts.append(self._runner.forward(rows).logits.clone())
            place += len(batch)
        return torch.cat(parts)

    def _pages_of(self, place: int) -> range:
        place %= self.together
        return range(1 + place * self._pages, 1 + (place + 1) * self._pages)

    def _head(self) -> Tensor:
        """A dense copy ``[vocab_size, hidden_size]``; bfloat16, whose range small gradients need, only on a GPU."""
        thin = traits(self.device).gpu and self.model.dtype == torch.bfloat16
        try:
            weight = self.model.head.dequantised(torch.bfloat16 if thin else torch.float32)
        except NotImplementedError as error:
            raise RecipeError(
                f"The output layer of {self.name} cannot be read as it is packed ({self.model.head.kind}), and heads "
                "are trained through it. Choose another file of this model."
            ) from error
        if weight.shape != (self.config.vocab_size, self.config.hidden_size):
            raise CheckpointError(f"The output layer of {self.name} has the shape {list(weight.shape)}.")
        return weight.clone()


def _batches(sequences: Sequence[Sequence[int]], together: int) -> list[list[Sequence[int]]]:
    """The sequences in order, in batches of about :data:`_ROWS` tokens and at most ``together`` sequences."""
    batches: list[list[Sequence[int]]] = []
    room = 0
    for sequence in sequences:
        if not batches or len(sequence) > room or len(batches[-1]) == together:
            batches.append([])
            room = _ROWS
        batches[-1].append(sequence)
        room -= len(sequence)
    return batches


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> list[int]:
    """A token for each row; drawn on the CPU, where a seed means the same on every machine."""
    if temperature <= 0:
        found: list[int] = logits.argmax(-1).tolist()
        return found
    shares = torch.softmax(logits.float() / temperature, -1).cpu()
    drawn: list[int] = torch.multinomial(shares, 1, generator=generator)[:, 0].tolist()
    return drawn
