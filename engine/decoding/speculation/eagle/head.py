"""EAGLE heads (Li et al. 2024 and 2025): arXiv 2401.15077 and 2406.16858 share one head, 2503.01840 has another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from engine.base.devices import for_sampling
from engine.compute.layers.embedding import token_table
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.norm import RMSNorm, read_norm
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.base import FeatureHead, HeadLayer
from engine.config.model import ModelConfig

TABLE = "embed_tokens.weight"
LEAST_LAYERS = 7
"""Layers of an EAGLE-3 head's target: with fewer, two of the three layers that it reads are the same."""


def read_layers(layers: int) -> tuple[int, int, int]:
    """The layers of a target whose input EAGLE-3 reads, in the order in which it joins them."""
    return 2, layers // 2, layers - 3


class Eagle(FeatureHead):
    """EAGLE-1 and 2: ``h_i = layer(fc([emb(t_{i+1}); f_i]))``, f being what the target's output layer reads.

    The layer has no norm before attention, and its output goes to the target's output layer without another norm,
    because it stands for a normalised state itself.
    """

    name = "eagle"
    title = "EAGLE"

    def __init__(self, config: ModelConfig, target: CausalLM, source: WeightSource, own_table: bool) -> None:
        """``own_table``: the checkpoint has a token table."""
        super().__init__(config, target, source)
        self.reads = (target.config.num_layers,)
        size = config.hidden_size
        self.fc = source.linear("", ("fc",), [size], 2 * size, False)
        self.layer = HeadLayer(config, source, "layers.0.")
        if own_table:
            self.embedding = token_table(source.embedding(TABLE, target.config.vocab_size, size))

    def features(self, hidden: Mapping[int, Tensor]) -> Tensor:
        """Implements :meth:`FeatureHead.features`."""
        return self.target.norm.forward(hidden[self.reads[0]])

    def entries(self, features: Tensor, tokens: Tensor, step: Step) -> Tensor:
        """Implements :meth:`FeatureHead.entries`."""
        x = self.fc(torch.cat((self.embedding.forward(tokens), features), -1))
        return self.layer.forward(x, x, step)

    def linears(self) -> Iterator[Linear]:
        yield self.fc
        yield from self.layer.linears()


class Eagle3(FeatureHead):
    """EAGLE-3: f is ``fc`` over the inputs of three layers; attention reads ``[norm(emb(t_{i+1})); norm(f_i)]``.

    It goes on from its outputs as they leave the layer; a norm stands before its own output layer, which knows a part
    of the vocabulary: its token d is the target's ``d + d2t[d]``.
    """

    name = "eagle"
    title = "EAGLE-3"
    borrows_head = False

    def __init__(
        self,
        config: ModelConfig,
        target: CausalLM,
        source: WeightSource,
        own_table: bool,
        ids: Tensor | None,
        said: int,
    ) -> None:
        """``ids [said]``: the target's number of each token that the head can say; None: it says all."""
        super().__init__(config, target, source)
        size, wide = config.hidden_size, target.config.hidden_size
        self.reads = read_layers(target.config.num_layers)
        self.fc = source.linear("", ("fc",), [size], 3 * wide, False)
        self.layer = HeadLayer(config, source, "midlayer.", 2 * size)
        self.token_norm = read_norm(config, source, "midlayer.input_layernorm.weight")
        self.hidden_norm = read_norm(config, source, "midlayer.hidden_norm.weight")
        self.norm = read_norm(config, source, "norm.weight")
        self.head = source.head(None, said, size)
        self.ids = ids
        if own_table:
            self.embedding = token_table(source.embedding(TABLE, target.config.vocab_size, size))

    def features(self, hidden: Mapping[int, Tensor]) -> Tensor:
        """Implements :meth:`FeatureHead.features`."""
        return self.fc(torch.cat([hidden[layer] for layer in self.reads], -1))

    def entries(self, features: Tensor, tokens: Tensor, step: Step) -> Tensor:
        """Implements :meth:`FeatureHead.entries`."""
        token = self.token_norm.forward(self.embedding.forward(tokens))
        return self.layer.forward(features, torch.cat((token, self.hidden_norm.forward(features)), -1), step)

    def logits(self, outputs: Tensor) -> Tensor:
        """Implements :meth:`FeatureHead.logits`."""
        x = self.norm.forward(outputs)
        vocabulary = self.target.config.vocab_size
        if x.shape[0] == 0:
            return x.new_empty(0, vocabulary)
        said = self.head.forward_float32(x) if self.numerics.batch_invariant else self.head.forward(x)
        if self.ids is not None:
            said = said.new_full((x.shape[0], vocabulary), -torch.inf).index_copy_(1, self.ids, said)
        return for_sampling(said)

    def linears(self) -> Iterator[Linear]:
        yield self.fc
        yield from self.layer.linears()
        yield self.head

    def norms(self) -> Iterator[RMSNorm]:
        yield from (self.token_norm, self.hidden_norm, self.norm)
