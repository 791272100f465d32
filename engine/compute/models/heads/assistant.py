"""Gemma 4's drafter ("assistant"; Google DeepMind 2026): a few layers that read the keys and values of their target.

It owns no keys and values. With the token at position p, the last known one, it reads what the target's final norm
gave for the row before, and draws from it; then it goes on from its own state and the token drawn, at the same position
p and over the same keys, those before p. (So transformers' ``SinglePositionMultiTokenCandidateGenerator``; vLLM stays
at position p - 1.) Each of its layers reads the last layer of its kind that has keys and values in the target. Of a
window it sees what the target's row of that token will see. (transformers shows it what its cache holds: one key more
after a step of one row, and after others the keys of rejected tokens too.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.base.devices import for_sampling
from engine.cache.stores.store import KVStore
from engine.compute.attention.interface import ModelAttention
from engine.compute.batch import Batch, ForwardOutput
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.norm import read_norm
from engine.compute.layers.residual import ResidualStream
from engine.compute.layers.rotary import RotaryEmbedding
from engine.compute.models.base import CausalLM
from engine.compute.models.families.gemma4 import Gemma4Layer
from engine.compute.models.heads.base import OUTPUT
from engine.config.model import ModelConfig

TABLE = "model.embed_tokens.weight"
CENTROIDS, ORDERING = "masked_embedding.centroids", "masked_embedding.token_ordering"


def sources_of(config: ModelConfig, target: ModelConfig) -> tuple[int, ...]:
    """The layer of the target whose keys and values each layer of the drafter reads."""
    last = {target.positions.local[layer]: layer for layer in target.attention_layers}
    return tuple(last[kind] for kind in config.positions.local)


def joined(config: ModelConfig, target: ModelConfig) -> ModelConfig:
    """The drafter's layers, followed by those of the target, whose keys and values they share.

    A window is one shorter for the drafter, because its rows end with the key before their token.
    """
    own, heads, others = config.num_layers, config.attention, target.attention
    windows = tuple(None if window is None else max(1, window - 1) for window in heads.windows)
    shared = (*sources_of(config, target), *map(others.source_of, range(target.num_layers)))
    return config.changed(
        num_layers=own + target.num_layers,
        windows=windows + others.windows,
        rotary=config.positions.rotary + target.positions.rotary,
        local=config.positions.local + target.positions.local,
        shapes=heads.shapes + others.shapes,
        kv_sources=tuple(own + source for source in shared),
        keys_as_values=(),
    )


class Assistant:
    """A `RunnableModel` over the arenas of its ``target``, to which it writes nothing.

    The row of a sequence in its batches has the index of the row before the last known token, whose key is the last
    that it sees.
    """

    num_groups = 1
    name = "assistant"

    def __init__(
        self, config: ModelConfig, target: CausalLM, source: WeightSource, clusters: Clusters | None = None
    ) -> None:
        """``config`` is the drafter's alone, and fits the target's. ``clusters``: its output layer, if it is such."""
        self.target, self.numerics, self.dtype = target, source.numerics, source.dtype
        backbone, both = target.config.hidden_size, joined(config, target.config)
        self.layers = [Gemma4Layer(both, index, source) for index in range(config.num_layers)]
        heads, positions = config.attention, config.positions
        seen = (heads.heads_of(layer) for layer, window in enumerate(heads.windows) if window is None)
        self._elements = sum(2 * shape.kv_heads * shape.width for shape in seen)
        self.project = source.linear("", ("pre_projection",), [config.hidden_size], 2 * backbone, False)
        self.back = source.linear("", ("post_projection",), [backbone], config.hidden_size, False)
        self.norm = read_norm(config, source, "model.norm.weight")
        size = config.vocab_size, config.hidden_size
        self.head: Clusters | Linear
        if clusters is not None:
            self.head = clusters
        else:
            self.head = source.head(source.embedding(TABLE, *size) if config.tie_word_embeddings else None, *size)
        ropes = ((positions.rope, False), (positions.local_rope or positions.rope, True))
        longest = target.config.positions.max_position
        self.rotaries = [
            RotaryEmbedding(rope, both.rotated_dim(local=local), longest, self.dtype, source.device)
            for rope, local in ropes
        ]

    def features(self, stream: Tensor) -> Tensor:
        """Input of the target's final norm, ``[n, hidden_size]`` of the target, -> the states to continue from."""
        return self.target.norm.forward(stream)

    @torch.inference_mode()
    def forward(
        self,
        batch: Batch,
        kv: KVStore,
        attention: ModelAttention,
        hidden_in: Tensor | None = None,
        **options: Any,
    ) -> ForwardOutput:
        """Draft from the states ``hidden_in [T, hidden_size]`` and the batch's tokens, one row for each sequence.

        ``hidden[OUTPUT]`` are the states to go on from, of the same shape.
        """
        if hidden_in is None or options:
            raise ValueError("a drafter goes on from hidden states, in all of its layers")
        stream = ResidualStream(self.project(torch.cat((self.target.embed(batch), hidden_in), -1)))
        step = self._step(batch, kv, attention)
        for layer in self.layers:
            layer.forward(stream, step)
        x = self.norm.forward(stream.value())
        return ForwardOutput(self.logits(x.index_select(0, batch.want_logits)), {OUTPUT: self.back(x)})

    def logits(self, x: Tensor) -> Tensor:
        """``x [L, width]``, normalised -> ``[L, vocab_size]``, -inf for what its clusters leave out."""
        return for_sampling(self.head.forward(x))

    def _step(self, batch: Batch, kv: KVStore, attention: ModelAttention) -> Step:
        """Rows see the keys up to their own, and turn as the next one would."""
        limit = batch.host.max_kv + 1
        ropes = tuple(rotary.at(batch.positions + 1, limit) for rotary in self.rotaries)
        at = None if batch.views is None else batch.views.sink_positions
        sinks = None if at is None else tuple(rotary.at(at, limit) for rotary in self.rotaries)
        return Step(batch, kv, attention, ropes, sinks)

    # --- sizes -------------------------------------------------------------------------------------------------

    def linears(self) -> Iterator[Linear]:
        """The linear layers of its own."""
        yield self.project
        for layer in self.layers:
            yield from (linear for _, linear in layer.linears())
        yield self.back

    def storage_size(self) -> int:
        """Bytes of weights held besides the target's."""
        return self._body() + self.head.storage_size() + sum(rotary.storage_size() for rotary in self.rotaries)

    def bytes_read_per_step(self) -> int:
        """Bytes of weights that the forward of one row reads."""
        return self._body() + (self.head.bytes_read() if isinstance(self.head, Clusters) else self.head.storage_size())

    def kv_bytes_per_token(self) -> int:
        """Bytes of the target's keys and values, where they are not packed, that a row reads for each token of a text.

        Layers with a window read little of a long one.
        """
        return self._elements * self.target.kv_dtype.itemsize

    def _body(self) -> int:
        norms = self.norm.storage_size() + sum(layer.storage_size() for layer in self.layers)
        return norms + sum(linear.storage_size() for linear in self.linears())


class Clusters:
    """The output layer of a drafter that scores tokens by clusters: those of the best few centroids alone."""

    def __init__(self, config: ModelConfig, source: WeightSource, ordering: Tensor, count: int, chosen: int) -> None:
        """``ordering [vocab_size]`` lists the tokens, cluster by cluster; ``chosen`` of ``count`` are scored."""
        size = config.hidden_size
        self.chosen, self.vocabulary = chosen, config.vocab_size
        self.centroids = source.linear("", (CENTROIDS,), [count], size, False)
        module = TABLE.removesuffix(".weight") if config.tie_word_embeddings else "lm_head"
        weight = source.matrix(module, config.vocab_size, size)
        self.ids = ordering.view(count, -1)
        # In the order of the clusters, so that each is one piece.
        self.weight = weight.index_select(0, ordering).view(count, -1, size)

    def forward(self, x: Tensor) -> Tensor:
        """``x [L, width]`` -> ``[L, vocab_size]``, -inf for tokens of other clusters."""
        best = self.centroids(x).topk(self.chosen, dim=-1).indices
        said = (self.weight[best] @ x[:, None, :, None]).flatten(1)
        return said.new_full((x.shape[0], self.vocabulary), -torch.inf).scatter_(1, self.ids[best].flatten(1), said)

    def storage_size(self) -> int:
        """Bytes held."""
        return self.centroids.storage_size() + self.weight.nbytes + self.ids.nbytes

    def bytes_read(self) -> int:
        """Bytes that one row reads."""
        share = self.chosen / self.weight.shape[0]
        return self.centroids.storage_size() + int(share * (self.weight.nbytes + self.ids.nbytes))
