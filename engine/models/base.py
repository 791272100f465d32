"""What every model family is made of: its configuration, the step that its layers share, and the one forward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from engine.attention.interface import AttentionBackend
from engine.cache.store import KVStore
from engine.core.batch import Batch, ForwardOutput
from engine.layers.embedding import Embedding
from engine.layers.linear.base import Linear
from engine.layers.norm import RMSNorm
from engine.layers.numerics import Numerics
from engine.layers.rotary import RopeConfig, RotaryEmbedding, RotaryStep


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How the file's linear layers are packed. ``group_size`` -1 means one group over all input features."""

    method: Literal["gptq"]
    bits: int
    group_size: int
    act_order: bool
    symmetric: bool
    zero_offset: int
    """Added to a stored zero-point, modulo 16: 1 for GPTQ v1 files, 0 for v2."""
    lm_head: bool = False
    skipped: tuple[str, ...] = ()
    """Regular expressions (matched at the start of a module's name) of modules that are dense."""

    def title(self) -> str:
        groups = "one group per column" if self.group_size < 0 else f"groups of {self.group_size}"
        order = ", act-order" if self.act_order else ""
        return f"GPTQ {self.bits}-bit, {groups}{order}"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A checked configuration. ``windows[i]`` is layer i's sliding window in tokens (itself included), None: all.

    ``rotary[i]`` is False where layer i has no position embedding (SmolLM3).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position: int
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    rotary: tuple[bool, ...]
    dtype: torch.dtype
    """The file's own dtype; the model may run in another."""
    quantisation: Quantisation | None = None


class WeightSource(Protocol):
    """Where a family gets its weights from, by their names in the checkpoint (engine/checkpoints/source.py)."""

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        """One layer of the modules ``prefix + name``, fused along their output features, which are ``sizes``."""

    def vector(self, name: str, size: int) -> Tensor:
        """A norm's weight in the model's dtype."""

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        """The token table ``[rows, columns]`` in the model's dtype."""

    def head(self, table: Tensor | None, rows: int, columns: int) -> Linear:
        """The output layer ``[rows, columns]``: over the token table when it is given, else ``lm_head``."""

    @property
    def numerics(self) -> Numerics: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...


class Step(NamedTuple):
    """What all layers of one forward share."""

    batch: Batch
    kv: KVStore
    attention: AttentionBackend
    rope: RotaryStep


class DecoderLayer(Protocol):
    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, the residual stream, which may be changed in place -> the stream after this layer."""

    def linears(self) -> Iterator[tuple[str, Linear]]: ...

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""


class CausalLM(ABC):
    """A decoder: embedding, layers, norm, head. A family fills in the attributes; the forward is the same for all."""

    num_groups = 1

    config: ModelConfig
    numerics: Numerics
    device: torch.device
    dtype: torch.dtype
    embedding: Embedding
    layers: Sequence[DecoderLayer]
    norm: RMSNorm
    head: Linear
    rotary: RotaryEmbedding

    @abstractmethod
    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        """Read all weights from the source."""
        self.config, self.numerics, self.device, self.dtype = config, source.numerics, source.device, source.dtype

    @torch.inference_mode()
    def forward(
        self,
        batch: Batch,
        kv: KVStore,
        attention: AttentionBackend,
        layers: tuple[int, int] | None = None,
        hidden_in: Tensor | None = None,
    ) -> ForwardOutput:
        """Run layers ``[start, stop)`` (all when None) over a flattened batch.

        ``hidden_in [T, hidden_size]`` is the stream after ``start`` layers; required when start > 0. ``hidden[i]`` is
        the stream entering layer i. A range that stops before the last layer gives no logits but hidden[stop]:
        an early exit hands that to :meth:`logits`.
        """
        start, stop = layers if layers is not None else (0, len(self.layers))
        if hidden_in is not None:
            x = hidden_in.clone()
        elif start == 0:
            x = self.embedding.forward(batch.tokens)
        else:
            raise ValueError(f"layers from {start} on need hidden_in")
        wanted, hidden = batch.want_hidden, dict[int, Tensor]()
        step = Step(batch, kv, attention, self.rotary.at(batch.positions, batch.host.max_kv))
        for index in range(start, stop):
            if index in wanted:
                hidden[index] = x.clone()
            x = self.layers[index].forward(x, step)
        if stop < len(self.layers):
            hidden[stop] = x
            return ForwardOutput(x.new_empty(0, self.config.vocab_size), hidden)
        if stop in wanted:
            hidden[stop] = x
        return ForwardOutput(self.logits(x, batch.want_logits), hidden)

    @torch.inference_mode()
    def logits(self, x: Tensor, rows: Tensor) -> Tensor:
        """The final norm and the head over the wanted ``rows [L]`` of ``x [T, hidden_size]`` -> ``[L, vocab_size]``.

        In the model's dtype, or float32 under batch_invariant.
        """
        x = self.norm.forward(x.index_select(0, rows))
        if x.shape[0] == 0:
            return x.new_empty(0, self.config.vocab_size)
        return self.head.forward_float32(x) if self.numerics.batch_invariant else self.head.forward(x)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        """All linear layers with their names, the head last."""
        for index, layer in enumerate(self.layers):
            for name, linear in layer.linears():
                yield f"layers.{index}.{name}", linear
        yield "head", self.head

    def storage_size(self) -> int:
        """Bytes of weights held. A head tied to the token table counts once."""
        table = 0 if self.config.tie_word_embeddings else self.embedding.storage_size()
        return self.bytes_read_per_step() + table + self.rotary.storage_size()

    def bytes_read_per_step(self) -> int:
        """Bytes of weights that one forward reads: all but the token table, of which only looked-up rows are read."""
        norms = self.norm.storage_size() + sum(layer.storage_size() for layer in self.layers)
        return norms + sum(linear.storage_size() for _, linear in self.linears())
