"""The base of every model family: its configuration, the step that its layers share, and the forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.base.devices import for_sampling
from engine.cache.stores.states import StateRuns, StateStore
from engine.cache.stores.store import KVStore
from engine.compute.attention.interface import ModelAttention
from engine.compute.batch import Batch, ForwardOutput
from engine.compute.layers.embedding import TokenTable
from engine.compute.layers.interface import Norm, Rotary, Step, WeightSource, new_step
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.adapters import ModelAdapters
from engine.compute.models.projection import Projection
from engine.config.model import ModelConfig


class DecoderLayer(Protocol):
    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        """Read the weights of layer ``index``."""

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes to the residual stream."""

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Move the layer's states on, if it has some; see :meth:`CausalLM.replay`."""

    def linears(self) -> Iterator[tuple[str, Linear]]: ...

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""

    @property
    def waits(self) -> bool:
        """True if a forward waits for something that it reads from the device."""

    @property
    def plans(self) -> bool:
        """True if the host plans where a step reads and writes states."""


class CausalLM(ABC):
    """A decoder: embedding, layers, norm, head. A family fills in the attributes; the forward is the same for all."""

    num_groups = 1

    config: ModelConfig
    numerics: Numerics
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    """Dtype of keys and values that are not packed: ``dtype``, until a loader says otherwise."""
    embedding: TokenTable
    layers: Sequence[DecoderLayer]
    norm: Norm
    head: Linear
    rotaries: Sequence[Rotary]
    adapters: ModelAdapters
    projections: Sequence[Projection] = ()
    """Dense layers that make an embedding, or the score of a document, of a pooled state."""

    @abstractmethod
    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        """Read all weights from the source."""
        self.config, self.numerics, self.device, self.dtype = config, source.numerics, source.device, source.dtype
        self.kv_dtype = source.dtype
        self.adapters = ModelAdapters(source.numerics)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def uncaptured(self) -> str:
        """Reason a forward cannot be captured; "" if it can."""
        if self.config.attention.bidirectional:
            return "tokens see those after them"
        if self.config.recurrent is not None and any(layer.plans for layer in self.layers):
            return "where states are read and written is planned on the host"
        waits = self.config.moe is not None and any(layer.waits for layer in self.layers)
        return "which experts are asked is read on the host" if waits else ""

    @property
    def generation(self) -> int:
        """Grows when a captured forward would go on otherwise than a new one: tables of rotations moved, with the
        longest text so far, or products have other modes."""
        return sum(rotary.generation for rotary in self.rotaries) + self.numerics.changes

    def reserve(self, context: int) -> None:
        """Make what grows with the length of a text large enough for this many tokens, so that those never move it."""
        for rotary in self.rotaries:
            rotary.reserve(context)

    @torch.inference_mode()
    def forward(
        self,
        batch: Batch,
        kv: KVStore,
        attention: ModelAttention,
        layers: tuple[int, int] | None = None,
        hidden_in: Tensor | None = None,
        skip: frozenset[int] = frozenset(),
    ) -> ForwardOutput:
        """Run layers ``[start, stop)`` (all when None) over a flattened batch.

        ``hidden_in [T, hidden_size]`` is the stream after ``start`` layers; required when start > 0. ``hidden[i]`` is
        the stream entering layer i. A range that stops before the last layer gives no logits but hidden[stop]:
        an early exit hands that to :meth:`logits`. The stream passes the layers in ``skip`` unchanged, and they write
        no keys and values.
        """
        start, stop = layers if layers is not None else (0, len(self.layers))
        if hidden_in is not None:
            stream = ResidualStream(hidden_in.clone())
        elif start == 0:
            stream = ResidualStream(self.with_pictures(self.embed(batch), batch))
        else:
            raise ValueError(f"layers from {start} on need hidden_in")
        wanted, hidden = batch.want_hidden, dict[int, Tensor]()
        self.adapters.step.groups = batch.adapters
        step = new_step(batch, kv, attention, self.rotaries, self.query_scale(batch), self.layer_inputs(batch))
        for index in range(start, stop):
            if index in wanted:
                hidden[index] = stream.value().clone()
            if index not in skip:
                self.layers[index].forward(stream, step)
            self._deepen(stream, index, batch)
        x = stream.value()
        if stop < len(self.layers):
            hidden[stop] = x
            return ForwardOutput(x.new_empty(0, self.config.vocab_size), hidden)
        if stop in wanted:
            hidden[stop] = x
        return ForwardOutput(self.logits(x, batch.want_logits), hidden)

    def replay(self, kv: KVStore, rows: Tensor, runs: StateRuns) -> None:
        """Move the states in ``kv`` on by ``rows [n]`` int64 of the last step, which were accepted since."""
        assert kv.states is not None
        for layer in self.layers:
            layer.replay(kv.states, rows, runs)

    def embed(self, batch: Batch) -> Tensor:
        """The stream that enters the first layer ``[T, hidden_size]``, a new tensor."""
        x = self.embedding.forward(batch.tokens)
        scale = self.config.scales.embedding
        return x if scale == 1 else x.mul_(scale)

    def with_pictures(self, x: Tensor, batch: Batch) -> Tensor:
        """``x`` with the embeddings that are given: a tower's are not scaled as those of tokens are."""
        for first, vectors, _ in batch.embedded:
            x[first : first + vectors.shape[0]] = vectors[:, : self.config.hidden_size]
        return x

    def _deepen(self, stream: ResidualStream, index: int, batch: Batch) -> None:
        """Add what embeddings have for the stream after layer ``index`` (DeepStack, Meng et al. 2024)."""
        begin = (index + 1) * self.config.hidden_size
        for first, vectors, _ in batch.embedded:
            if vectors.shape[1] > begin:
                part = vectors[:, begin : begin + self.config.hidden_size]
                stream.value()[first : first + vectors.shape[0]] += part

    def query_scale(self, batch: Batch) -> Tensor | None:
        """Value of :attr:`Step.query_scale`; None also where it is 1 for all rows, which the host knows."""
        rope = self.config.positions.rope
        if not rope.query_beta or (batch.host.max_kv <= rope.original_max_position and not batch.host.frozen):
            return None
        turns = torch.floor(batch.positions.float() / rope.original_max_position)
        return (1 + rope.query_beta * torch.log1p(turns)).to(self.dtype)[:, None, None]

    def layer_inputs(self, batch: Batch) -> Tensor | None:
        """Value of :attr:`Step.layer_inputs`; None: this family has none."""
        return None

    @torch.inference_mode()
    def logits(self, x: Tensor, rows: Tensor) -> Tensor:
        """The final norm and the head over the wanted ``rows [L]`` of ``x [T, hidden_size]`` -> ``[L, vocab_size]``.

        In the model's dtype, or float32 under batch_invariant and where that takes no longer.
        """
        # Of one row the only ones that can be wanted are itself, and it again.
        wanted = x if x.shape[0] == rows.shape[0] == 1 else x.index_select(0, rows)
        return self.head_logits(self.norm.forward(wanted))

    @torch.inference_mode()
    def head_logits(self, x: Tensor) -> Tensor:
        """The head alone over ``x [L, hidden_size]``, normalised already -> logits as in :meth:`logits`.

        On the host where the device cannot draw from them.
        """
        if x.shape[0] == 0:
            return x.new_empty(0, self.config.vocab_size)
        wide = self.numerics.batch_invariant or self.head.float32_is_free
        logits = self.head.forward_float32(x) if wide else self.head.forward(x)
        if self.config.scales.logit_divisor != 1:
            logits = logits / self.config.scales.logit_divisor
        cap = self.config.scales.logit_softcap
        if cap is not None:
            logits = self.numerics.by_row(torch.tanh, logits / cap) * cap
        return for_sampling(logits)

    @torch.inference_mode()
    def projected(self, pooled: Tensor) -> Tensor:
        """The embedding ``[size]`` float32 of a pooled state ``[hidden_size]`` float32, of any length."""
        for projection in self.projections:
            pooled = projection.forward(pooled)
        return pooled

    def linears(self) -> Iterator[tuple[str, Linear]]:
        """All linear layers with their names, the head last."""
        for index, layer in enumerate(self.layers):
            for name, linear in layer.linears():
                yield f"layers.{index}.{name}", linear
        yield "head", self.head

    def storage_size(self) -> int:
        """Bytes of weights held. A head that is the token table counts once."""
        table = 0 if self.head.tied else self.embedding.storage_size()
        return self._layers_size() + table + sum(rotary.storage_size() for rotary in self.rotaries)

    def bytes_read_per_step(self, skip: frozenset[int] = frozenset()) -> int:
        """Bytes of weights that the forward of one row reads, past the layers in ``skip``.

        All but the token table, of which only looked-up rows are read, and the experts that the row does not ask.
        """
        left_out = sum(self._layer_size(self.layers[index]) for index in skip)
        moe = self.config.moe
        if moe is None:
            return self._layers_size() - left_out
        passed = tuple(f"layers.{index}." for index in skip)
        experts = sum(
            linear.storage_size()
            for name, linear in self.linears()
            if ".experts." in name and not name.startswith(passed)
        )
        unasked = experts * (moe.num_experts - moe.experts_per_token) // moe.num_experts
        return self._layers_size() - left_out - unasked

    def _layer_size(self, layer: DecoderLayer) -> int:
        return layer.storage_size() + sum(linear.storage_size() for _, linear in layer.linears())

    def _layers_size(self) -> int:
        return self.norm.storage_size() + sum(map(self._layer_size, self.layers)) + self.head.storage_size()
