"""What every model family is made of: its configuration, the step that its layers share, and the one forward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from engine.attention.interface import ModelAttention
from engine.cache.store import KVStore
from engine.core.batch import Batch, ForwardOutput
from engine.layers.activation import ActivationKind
from engine.layers.embedding import TokenTable
from engine.layers.linear.base import Linear
from engine.layers.numerics import Numerics, by_row
from engine.layers.rotary import RopeConfig, RotaryStep


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How the file's linear layers are packed. ``group_size`` -1 means one group over all input features.

    Which modules are packed at all, the tensors show: one without packed tensors is dense.
    """

    method: Literal["gptq", "awq", "compressed-tensors", "bitsandbytes", "mxfp4"]
    bits: int
    group_size: int = -1
    act_order: bool = False
    symmetric: bool = True
    zero_offset: int = 0
    """Added to a stored zero-point, modulo 2^bits: 1 for GPTQ v1 files, 0 elsewhere."""
    others: tuple[tuple[int, int], ...] = ()
    """(bits, group size) of modules that are packed unlike the rest."""
    table: str = ""
    """bitsandbytes' 4-bit type, "nf4" or "fp4"; empty for LLM.int8."""

    @property
    def packings(self) -> tuple[tuple[int, int], ...]:
        """All (bits, group size) that modules may have, the usual one first."""
        return ((self.bits, self.group_size), *self.others)

    def title(self) -> str:
        """For people: "AWQ 4-bit, groups of 128"."""
        if self.method == "bitsandbytes":
            return f"bitsandbytes {self.table.upper()}" if self.table else "LLM.int8"
        if self.method == "mxfp4":
            return "MXFP4"
        name = self.method if self.method == "compressed-tensors" else self.method.upper()
        groups = "one group per column" if self.group_size < 0 else f"groups of {self.group_size}"
        order = ", act-order" if self.act_order else ""
        bits = "/".join(str(bits) for bits in sorted({bits for bits, _ in self.packings}))
        return f"{name} {bits}-bit, {groups}{order}"


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Multi-head latent attention (engine/layers/mla.py): its widths.

    A token leaves ``rank + rope`` elements in a layer's cache, shared by all heads.
    """

    rank: int
    """Of the latent that keys and values are projected from."""
    nope: int
    """Of a head's query and key, the part without position."""
    rope: int
    """Of a head's query and of the shared key, the part that rotates."""
    value: int
    """Of a head's values."""
    q_rank: int | None = None
    """Of the latent that queries are projected from; None: they come straight from the stream."""


@dataclass(frozen=True, slots=True)
class MoEConfig:
    """Feed-forward blocks made of experts, of which each row asks a few (Shazeer et al. 2017).

    ``sparse[i]``: layer i has experts; the others have one MLP of the model's ``intermediate_size``.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    """Of each expert."""
    sparse: tuple[bool, ...]
    routing: Literal["all", "chosen"] = "all"
    """Whether an expert's share is a softmax over all experts, or over the chosen ones."""
    normalised: bool = False
    """Shares of "all" are divided by the sum of those chosen."""
    share_scale: float = 1.0
    """Multiplies the shares after that."""
    groups: int = 1
    """The experts lie in so many groups of neighbours..."""
    groups_per_token: int = 1
    """... and a row chooses in so many of them, those with the best experts (DeepSeek-V2)."""
    shared_size: int = 0
    """Intermediate size of an MLP that every row passes besides (``shared_experts``); 0: none."""
    bias: bool = False
    """Experts and router have biases."""
    swiglu_limit: float | None = None
    """gpt-oss' activation with this clamp; None: the model's own."""
    swiglu_alpha: float = 1.702
    block: str = "mlp."
    """What the checkpoint calls the block within a layer, its router, and an expert's gate, up and down."""
    router: str = "gate"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A checked configuration. ``windows[i]`` is layer i's sliding window in tokens (itself included), None: all.

    ``rotary[i]`` is False where layer i has no position embedding (SmolLM3). ``rms_norm_eps`` is the epsilon of all
    norms, whatever their kind. The fields with a default are what few families need.
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
    activation: ActivationKind = "silu"
    fused: bool = False
    """The file holds q, k, v as one module (qkv_proj), and gate and up as one (gate_up_proj)."""
    unit_offset_norms: bool = False
    """Norms multiply by 1 + the stored weight."""
    attention_scale: float | None = None
    """What multiplies q·k; None: head_dim ** -0.5."""
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    """A logit x becomes c * tanh(x / c)."""
    logit_divisor: float = 1.0
    embedding_scale: float = 1.0
    """Multiplies what is looked up in the token table."""
    residual_scale: float = 1.0
    """Multiplies what each block adds to the residual stream."""
    local_rope: RopeConfig | None = None
    """The rotation of the layers whose ``local`` is True; the others have ``rope``."""
    local: tuple[bool, ...] = ()
    latent: LatentShape | None = None
    """Multi-head latent attention; ``head_dim`` is then ``nope + rope`` and ``num_kv_heads`` 1."""
    moe: MoEConfig | None = None
    sinks: bool = False
    """Each head has a learned score (``sinks``) that takes part in the softmax of its scores and has no value."""
    longer_position: int = 0
    """Where it is more than ``max_position``: the longest text with ``rope.long_factors`` for all of it."""

    def for_context(self, context: int | None) -> ModelConfig:
        """This model, rotating by its long factors if texts of more than ``max_position`` tokens are asked for."""
        if context is None or context <= self.max_position or self.longer_position <= self.max_position:
            return self
        return replace(self, rope=replace(self.rope, factors=self.rope.long_factors), max_position=self.longer_position)

    @property
    def rotated_dim(self) -> int:
        """The width of what rotates, of which :attr:`rope` may take a share."""
        return self.head_dim if self.latent is None else self.latent.rope

    @property
    def cached_width(self) -> int:
        """Elements that one token leaves in one layer's cache, keys and values."""
        if self.latent is not None:
            return self.latent.rank + self.latent.rope
        return 2 * self.num_kv_heads * self.head_dim


class WeightSource(Protocol):
    """Where a family gets its weights from, by their names in the checkpoint (engine/checkpoints/source.py)."""

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        """One layer of the modules ``prefix + name``, fused along their output features, which are ``sizes``."""

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> list[Linear]:
        """One layer for each of ``count`` experts, of the modules ``{prefix}{expert}.{name}`` as in :meth:`linear`."""

    def vector(self, name: str, size: int) -> Tensor:
        """A norm's weight in the model's dtype."""

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        """The weight ``[rows, columns]`` of the linear module ``prefix``, dense in the model's dtype however packed."""

    def embedding(self, name: str, rows: int, columns: int) -> Tensor | TokenTable:
        """The token table ``[rows, columns]`` in the model's dtype, or packed."""

    def head(self, table: Tensor | TokenTable | None, rows: int, columns: int) -> Linear:
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
    attention: ModelAttention
    ropes: tuple[RotaryStep, ...]
    """A rotation for each of :attr:`CausalLM.rotaries`."""
    sink_ropes: tuple[RotaryStep, ...] | None = None
    """Likewise for the queries of sinks (`RowViews.sink_positions`); None: the step has none."""


class Rotary(Protocol):
    """Gives a step its rotation."""

    def step(self, batch: Batch, positions: Tensor | None = None) -> RotaryStep:
        """The rotation of the rows of a batch, at its positions or at others ``[T]`` below the longest sequence's."""

    def storage_size(self) -> int: ...


class Norm(Protocol):
    def forward(self, x: Tensor) -> Tensor:
        """``x [T, hidden_size]`` -> the same shape and dtype."""

    def storage_size(self) -> int: ...


class DecoderLayer(Protocol):
    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        """Read the weights of layer ``index``."""

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
    embedding: TokenTable
    layers: Sequence[DecoderLayer]
    norm: Norm
    head: Linear
    rotaries: Sequence[Rotary]

    @abstractmethod
    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        """Read all weights from the source."""
        self.config, self.numerics, self.device, self.dtype = config, source.numerics, source.device, source.dtype

    @property
    def num_layers(self) -> int:
        return len(self.layers)

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
            x = hidden_in.clone()
        elif start == 0:
            x = self.embed(batch)
        else:
            raise ValueError(f"layers from {start} on need hidden_in")
        wanted, hidden = batch.want_hidden, dict[int, Tensor]()
        step = self._step(batch, kv, attention)
        for index in range(start, stop):
            if index in wanted:
                hidden[index] = x.clone()
            if index not in skip:
                x = self.layers[index].forward(x, step)
        if stop < len(self.layers):
            hidden[stop] = x
            return ForwardOutput(x.new_empty(0, self.config.vocab_size), hidden)
        if stop in wanted:
            hidden[stop] = x
        return ForwardOutput(self.logits(x, batch.want_logits), hidden)

    def _step(self, batch: Batch, kv: KVStore, attention: ModelAttention) -> Step:
        ropes = tuple(rotary.step(batch) for rotary in self.rotaries)
        at = None if batch.views is None else batch.views.sink_positions
        if at is None:
            return Step(batch, kv, attention, ropes)
        return Step(batch, kv, attention, ropes, tuple(rotary.step(batch, at) for rotary in self.rotaries))

    def embed(self, batch: Batch) -> Tensor:
        """The stream that enters the first layer ``[T, hidden_size]``, a new tensor."""
        x = self.embedding.forward(batch.tokens)
        return x if self.config.embedding_scale == 1 else x.mul_(self.config.embedding_scale)

    @torch.inference_mode()
    def logits(self, x: Tensor, rows: Tensor) -> Tensor:
        """The final norm and the head over the wanted ``rows [L]`` of ``x [T, hidden_size]`` -> ``[L, vocab_size]``.

        In the model's dtype, or float32 under batch_invariant.
        """
        x = self.norm.forward(x.index_select(0, rows))
        if x.shape[0] == 0:
            return x.new_empty(0, self.config.vocab_size)
        invariant = self.numerics.batch_invariant
        logits = self.head.forward_float32(x) if invariant else self.head.forward(x)
        if self.config.logit_divisor != 1:
            logits = logits / self.config.logit_divisor
        cap = self.config.logit_softcap
        if cap is not None:
            logits = logits / cap
            logits = (by_row(torch.tanh, logits) if invariant else torch.tanh(logits)) * cap
        return logits

    def linears(self) -> Iterator[tuple[str, Linear]]:
        """All linear layers with their names, the head last."""
        for index, layer in enumerate(self.layers):
            for name, linear in layer.linears():
                yield f"layers.{index}.{name}", linear
        yield "head", self.head

    def storage_size(self) -> int:
        """Bytes of weights held. A head tied to the token table counts once."""
        table = 0 if self.config.tie_word_embeddings else self.embedding.storage_size()
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
        norms = self.norm.storage_size() + sum(layer.storage_size() for layer in self.layers)
        return norms + sum(linear.storage_size() for _, linear in self.linears())
