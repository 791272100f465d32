"""Small models made in memory, with token ids and page lists for them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.cache.stores.store import DenseKVStore, KVStore
from engine.compute.attention.interface import AttentionBackend, AttnSpec
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import Batch, ForwardOutput
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.numerics import Numerics
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.buffers import BucketPolicy
from engine.compute.runner.runner import Runner
from engine.config.attention import AttentionConfig
from engine.config.feed_forward import MLPConfig
from engine.config.model import ModelConfig
from engine.config.positions import PositionConfig, RopeConfig

VOCABULARY, PAGES = 50, 40


class ToyModel:
    """Two layers of attention over token and position embeddings; remembers the batch it saw."""

    num_groups = 1

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(VOCABULARY, 16, generator=generator)
        self.places = torch.randn(600, 16, generator=generator)
        self.projections = torch.randn(2, 16, 32, generator=generator) / 4
        self.batch: Batch | None = None

    def forward(
        self,
        batch: Batch,
        kv: KVStore,
        attention: AttentionBackend,
        layers: tuple[int, int] = (0, 2),
        hidden_in: Tensor | None = None,
    ) -> ForwardOutput:
        self.batch = batch
        x = self.table[batch.tokens] + self.places[batch.positions] if hidden_in is None else hidden_in
        hidden = {}
        for layer in range(*layers):
            if layer in batch.want_hidden:
                hidden[layer] = x
            q, k, v = (x @ self.projections[layer]).split([16, 8, 8], dim=1)
            kv.write(layer, k.view(-1, 1, 8), v.view(-1, 1, 8), batch.placement)
            o, _ = attention.attend(q.view(-1, 2, 8), kv.view(layer), AttnSpec(0.35), batch)
            x = x + o.reshape(-1, 16)
        if layers[1] < 2:
            hidden[layers[1]] = x
            return ForwardOutput(x.new_empty(0, VOCABULARY), hidden)
        return ForwardOutput(x[batch.want_logits] @ self.table.T, hidden)


class RandomWeights:
    """A `WeightSource` of seeded random weights."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, numerics: Numerics) -> None:
        self.numerics, self.generator = numerics, torch.Generator().manual_seed(0)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        weight = torch.randn(sum(sizes), in_features, generator=self.generator) / in_features**0.5
        return Dense(weight, torch.randn(sum(sizes), generator=self.generator) if bias else None, self.numerics)

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> list[Linear]:
        return [self.linear(f"{prefix}{e}.", names, sizes, in_features, bias) for e in range(count)]

    def vector(self, name: str, size: int) -> Tensor:
        return 1 + torch.randn(size, generator=self.generator) / 8

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self.generator)

    def head(self, table: Tensor | None, rows: int, columns: int) -> Linear:
        weight = table if table is not None else self.embedding("lm_head.weight", rows, columns)
        return Dense(weight, None, self.numerics)


CONFIG = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=VOCABULARY,
    hidden_size=32,
    num_layers=2,
    attention=AttentionConfig(num_heads=4, num_kv_heads=2, head_dim=8, windows=(None, None)),
    positions=PositionConfig(RopeConfig(10000.0), max_position=512, rotary=(True, True)),
    mlp=MLPConfig(intermediate_size=48),
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    dtype=torch.float32,
)


def deep(layers: int, **changes: Any) -> ModelConfig:
    """`CONFIG` with so many layers, and changed."""
    return CONFIG.changed(num_layers=layers, windows=(None,) * layers, rotary=(True,) * layers, **changes)


def llama(policy: BucketPolicy | None = None, batch_invariant: bool = False) -> Runner:
    numerics = Numerics(batch_invariant)
    model = Llama(CONFIG, RandomWeights(numerics))
    return Runner(model, DenseKVStore([(2, 8)] * 2, PAGES, torch.float32), AttentionDispatcher(numerics), policy=policy)


def tokens(n: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=n)


def pages_for(n: int, seed: int | None = None) -> Iterator[list[int]]:
    """Page lists of n / 16 pages each, consecutive or shuffled."""
    numbers = list(range(1, PAGES))
    if seed is not None:
        random.Random(seed).shuffle(numbers)
    count = -(-n // 16)
    for at in range(0, len(numbers) - count + 1, count):
        yield numbers[at : at + count]
