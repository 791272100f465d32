"""A feature head: one small decoder layer that drafts from the target's hidden states, then from its own outputs.

Entry i of a text is made of (f_i, t_{i+1}): the target's features after token i, and the token that came next. Its
output h_i approximates f_{i+1}, so that the head's logits over h_i predict the token after t_{i+1}, and (h_i, a draft
token) is the next entry. It has keys and values of its own, one layer of them, at index i of the sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.cache.stores.store import KVStore
from engine.compute.attention.interface import ModelAttention
from engine.compute.batch import Batch, ForwardOutput
from engine.compute.layers.attention import Attention
from engine.compute.layers.embedding import TokenTable
from engine.compute.layers.interface import Step, WeightSource, new_step
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.mla import LatentAttention
from engine.compute.layers.moe import feed_forward
from engine.compute.layers.norm import RMSNorm, read_norm
from engine.compute.layers.rotary import RotaryEmbedding
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.config.model import ModelConfig

OUTPUT = 1
"""The key of a head's outputs, those of its one layer, in :attr:`ForwardOutput.hidden`."""


class HeadLayer:
    """Attention and a gated MLP or experts, each added to the residual stream. The head applies the first norm."""

    def __init__(self, config: ModelConfig, source: WeightSource, prefix: str, in_features: int | None = None) -> None:
        """``in_features`` is what q, k and v read; None: ``hidden_size``."""
        self.attention: Attention | LatentAttention
        if config.attention.latent is None:
            self.attention = Attention(config, 0, source, f"{prefix}self_attn.", in_features=in_features)
        else:
            self.attention = LatentAttention(config, 0, source, f"{prefix}self_attn.")
        self.mlp = feed_forward(config, 0, source, prefix)
        self.mlp_norm = read_norm(config, source, f"{prefix}post_attention_layernorm.weight")

    def forward(self, x: Tensor, attended: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, the stream, and ``attended [T, in_features]`` -> the stream after this layer."""
        x = x + self.attention.forward(attended, step)
        return x + self.mlp.forward(self.mlp_norm.forward(x))

    def linears(self) -> Iterator[Linear]:
        for block in (self.attention, self.mlp):
            yield from (linear for _, linear in block.linears())

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return self.attention.storage_size() + self.mlp.storage_size() + self.mlp_norm.storage_size()


class FeatureHead(ABC):
    """Base of heads that go on from their own states; a :class:`engine.compute.runner.runner.RunnableModel`.

    Built on the ``target`` in memory, whose token table and output layer it uses where it has none of its own.
    """

    num_groups = 1
    name: str
    """Name as a proposer."""
    title: str
    """Title for people."""
    reads: tuple[int, ...]
    """The layers of the target whose input it reads, in the order in which it joins them; ``num_layers`` is what the
    target's final norm reads."""
    borrows_head = True
    """True if its logits come from the target's output layer."""
    layer: HeadLayer
    embedding: TokenTable

    def __init__(self, config: ModelConfig, target: CausalLM, source: WeightSource) -> None:
        """``config`` is that of the head's one layer."""
        self.config, self.target = config, target
        self.numerics, self.device, self.dtype = source.numerics, source.device, source.dtype
        rope, longest = config.positions.rope, config.positions.max_position
        self.rotary = RotaryEmbedding(rope, config.rotated_dim(), longest, self.dtype, self.device)
        self.embedding = target.embedding

    # --- what a head is ----------------------------------------------------------------------------------------

    @abstractmethod
    def features(self, hidden: Mapping[int, Tensor]) -> Tensor:
        """f of some rows ``[n, hidden_size]``, from the target's states ``hidden[i] [n, width]`` at :attr:`reads`."""

    @abstractmethod
    def entries(self, features: Tensor, tokens: Tensor, step: Step) -> Tensor:
        """``features [T, hidden_size]`` and the ``tokens [T]`` that came next -> outputs ``[T, hidden_size]``."""

    def logits(self, outputs: Tensor) -> Tensor:
        """``outputs [L, hidden_size]`` -> ``[L, target's vocab_size]``, -inf for what the head never says."""
        return self.target.head_logits(outputs)

    # --- what a runner asks ------------------------------------------------------------------------------------

    @torch.inference_mode()
    def forward(
        self,
        batch: Batch,
        kv: KVStore,
        attention: ModelAttention,
        hidden_in: Tensor | None = None,
        **options: Any,
    ) -> ForwardOutput:
        """Entries of ``hidden_in [T, hidden_size]``, features or outputs, with the batch's tokens as those that came
        next. ``hidden[OUTPUT] [T, hidden_size]`` are the outputs of all rows."""
        if hidden_in is None or options:
            raise ValueError("a feature head goes on from hidden states, and has one layer")
        outputs = self.entries(hidden_in, batch.tokens, new_step(batch, kv, attention, (self.rotary,)))
        return ForwardOutput(self.logits(outputs.index_select(0, batch.want_logits)), {OUTPUT: outputs})

    def new_store(self, pages: int) -> KVStore:
        """Arenas for its keys and values, addressed by the target's page numbers; ``pages`` counts page 0."""
        return new_store(self.config, pages, self.target.kv_dtype, self.device)

    # --- sizes -------------------------------------------------------------------------------------------------

    @abstractmethod
    def linears(self) -> Iterator[Linear]:
        """The linear layers of its own."""

    def norms(self) -> Iterable[RMSNorm]:
        """The norms of its own besides the layer's."""
        return ()

    def storage_size(self) -> int:
        """Bytes of weights held besides the target's."""
        own = 0 if self.embedding is self.target.embedding else self.embedding.storage_size()
        return own + self._weights() + self.rotary.storage_size()

    def bytes_read_per_step(self) -> int:
        """Bytes of weights that the forward of one row reads, the target's output layer included where it is used."""
        return self._weights() + (self.target.head.storage_size() if self.borrows_head else 0)

    def kv_bytes_per_token(self) -> int:
        return self.config.cached_elements * self.target.kv_dtype.itemsize

    def _weights(self) -> int:
        norms = self.layer.storage_size() + sum(norm.storage_size() for norm in self.norms())
        return norms + sum(linear.storage_size() for linear in self.linears())
