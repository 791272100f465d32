"""The attention blocks of a model: heads, windows, and what a token leaves in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class HeadShape(NamedTuple):
    """Heads of keys and values of one layer."""

    kv_heads: int
    width: int


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Multi-head latent attention (engine/compute/layers/mla.py): its widths.

    A token leaves ``rank + rope`` elements in a layer's cache, shared by all heads.
    """

    rank: int
    """Width of the latent that keys and values are projected from."""
    nope: int
    """Width of the part of a head's query and key without position."""
    rope: int
    """Width of the part of a head's query and of the shared key that rotates."""
    value: int
    """Width of a head's values."""
    q_rank: int | None = None
    """Width of the latent that queries are projected from; None: they come straight from the stream."""
    index_elements: int = 0
    """Elements of index keys that a token leaves in all layers besides (DeepSeek-V3.2)."""


class HeadGate(NamedTuple):
    """A gate projected besides queries, keys and values (``g_proj``), which multiplies what a head gives (LFM3)."""

    activation: Literal["sigmoid", "softplus"]
    of_elements: bool = False
    """It has one number for each number that a head gives, instead of one a head."""


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Attention of all layers. ``windows[i]`` is layer i's sliding window in tokens (itself included), None: all.

    The fields with a default are what few families need.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    """A norm of each head of q and k by itself."""
    value_norm: bool = False
    """Values are normalised per head, without a weight."""
    fused_qkv: bool = False
    """The file holds q, k, v as one module (qkv_proj)."""
    scale: float | None = None
    """Factor of q·k; None: head_dim ** -0.5."""
    softcap: float | None = None
    """A score x becomes c * tanh(x / c)."""
    sinks: bool = False
    """Each head has a learned score (``sinks``) that takes part in the softmax of its scores and has no value."""
    output_gate: bool = False
    """Queries are projected together with a gate for each of their numbers, whose sigmoid multiplies what attention
    gives (Qwen3-Next)."""
    head_gate: HeadGate | None = None
    heads_per_layer: tuple[int, ...] = ()
    """Each layer's heads of queries, where they differ; ``num_heads`` is then the largest (Laguna)."""
    shapes: tuple[HeadShape, ...] = ()
    """Each layer's heads of keys and values, where they differ; empty: ``num_kv_heads`` of ``head_dim``."""
    kv_sources: tuple[int, ...] = ()
    """The layer whose keys and values layer i reads: i, or an earlier one that it shares them with; empty: its own."""
    keys_as_values: tuple[bool, ...] = ()
    """Layers whose values are projected by the weights of their keys; empty: none."""
    bidirectional: bool = False
    """Tokens see those after them, too: the model is an encoder."""
    latent: LatentShape | None = None
    """Multi-head latent attention; ``head_dim`` is then ``nope + rope`` and ``num_kv_heads`` 1."""

    def heads_of(self, layer: int) -> HeadShape:
        """The layer's heads of keys and values."""
        return self.shapes[layer] if self.shapes else HeadShape(self.num_kv_heads, self.head_dim)

    def scale_of(self, layer: int) -> float:
        """The layer's factor of q·k."""
        return self.heads_of(layer).width ** -0.5 if self.scale is None else self.scale

    def source_of(self, layer: int) -> int:
        """The layer whose keys and values this layer reads."""
        return self.kv_sources[layer] if self.kv_sources else layer

    @property
    def lenders(self) -> frozenset[int]:
        """Layers whose keys and values others read besides."""
        return frozenset(source for layer, source in enumerate(self.kv_sources) if source != layer)
