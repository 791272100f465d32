"""A model's configuration, checked: what families read from config.json or GGUF, and every layer asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch

from engine.config.states import StateShape


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Packing of the file's linear layers. ``group_size`` -1 means one group over all input features.

    The tensors show which modules are packed at all: one without packed tensors is dense.
    """

    method: Literal["gptq", "awq", "compressed-tensors", "bitsandbytes", "mxfp4", "modelopt", "fp8"]
    bits: int
    group_size: int = -1
    act_order: bool = False
    symmetric: bool = True
    zero_offset: int = 0
    """Added to a stored zero-point, modulo 2^bits: 1 for GPTQ v1 files, 0 elsewhere."""
    others: tuple[tuple[int, int], ...] = ()
    """(bits, group size) of modules that are packed unlike the rest."""
    table: str = ""
    """bitsandbytes' 4-bit type, "nf4" or "fp4"; empty for LLM.int8. "nvfp4" or "mxfp4" of others."""
    fp8: bool = False
    """Some or all weights are in FP8 (engine/formats/quantised/fp8.py)..."""
    block: tuple[int, int] | None = None
    """... with scales for so many rows and columns together."""

    @property
    def packings(self) -> tuple[tuple[int, int], ...]:
        """All (bits, group size) that modules may have, the usual one first."""
        return ((self.bits, self.group_size), *self.others)

    def title(self) -> str:
        """Name of the packing for people: "AWQ 4-bit, groups of 128"."""
        if self.method == "bitsandbytes":
            return f"bitsandbytes {self.table.upper()}" if self.table else "LLM.int8"
        if self.method == "mxfp4" or self.table:
            return (self.table or "mxfp4").upper()
        name = self.method if self.method == "compressed-tensors" else self.method.upper()
        groups = "one group per column" if self.group_size < 0 else f"groups of {self.group_size}"
        order = ", act-order" if self.act_order else ""
        bits = "/".join(str(bits) for bits in sorted({bits for bits, _ in self.packings}))
        return f"{name} {bits}-bit, {groups}{order}"


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


@dataclass(frozen=True, slots=True)
class MoEConfig:
    """Feed-forward blocks made of experts, of which each row asks a few (Shazeer et al. 2017).

    ``sparse[i]``: layer i has experts; the others have one MLP of the model's ``intermediate_size``.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    """The intermediate size of each expert."""
    sparse: tuple[bool, ...]
    routing: Literal["all", "chosen", "sigmoid"] = "all"
    """An expert's share: a softmax over all experts, or over the chosen ones; or a sigmoid of its score, where a bias
    of each expert takes part in the choice alone (DeepSeek-V3, arXiv 2412.19437, section 2.1.2)."""
    normalised: bool = False
    """Shares of "all" and "sigmoid" are divided by the sum of those chosen."""
    choice_bias: bool = False
    """True if there is such a bias; ERNIE 4.5 has it with "all"."""
    share_scale: float = 1.0
    """Multiplies the shares after that..."""
    expert_scales: bool = False
    """... and so does a number of each expert's (Gemma 4), ``per_expert_scale`` of the router."""
    groups: int = 1
    """The number of groups of neighbouring experts..."""
    groups_per_token: int = 1
    """... and of those that a row chooses in, which have the best experts (DeepSeek-V2; V3: the best two together)."""
    parallel: bool = False
    """Each layer has an MLP besides, which runs next to its experts (Gemma 4)."""
    shared_size: int = 0
    """Intermediate size of an MLP that every row passes besides; 0: none."""
    shared: str = "shared_experts"
    """Its name in the checkpoint, within the block, "" where the block itself is meant..."""
    shared_gate: str = ""
    """... and the linear layer whose sigmoid multiplies its result; "": none."""
    bias: bool = False
    """Experts and router have biases."""
    swiglu_limit: float | None = None
    """gpt-oss' activation with this clamp; None: the model's own."""
    swiglu_alpha: float = 1.702
    block: str = "mlp."
    """Names in the checkpoint of the block within a layer, its router, and an expert's gate, up and down projections.
    """
    router: str = "gate"
    names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    """Without a gate the up projection is followed by the activation alone (Nemotron 3), in the shared MLP too."""
    latent_size: int = 0
    """Width of what experts read and give, projected from the stream and back; 0: the stream's (Nemotron 3)."""


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
    fused_mlp: bool = False
    """The latter alone."""
    unit_offset_norms: bool = False
    """Norms multiply by 1 + the stored weight."""
    attention_scale: float | None = None
    """Factor of q·k; None: head_dim ** -0.5."""
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
    multi_token_local: bool = False
    """The checkpoint's multi-token layer is one of those, with their window (Mellum 2)."""
    latent: LatentShape | None = None
    """Multi-head latent attention; ``head_dim`` is then ``nope + rope`` and ``num_kv_heads`` 1."""
    index_elements: int = 0
    """Elements of index keys that a token leaves in all layers besides latents (DeepSeek-V3.2)."""
    moe: MoEConfig | None = None
    sinks: bool = False
    """Each head has a learned score (``sinks``) that takes part in the softmax of its scores and has no value."""
    output_gate: bool = False
    """Queries are projected together with a gate for each of their numbers, whose sigmoid multiplies what attention
    gives (Qwen3-Next)."""
    head_gate: Literal["sigmoid", "softplus"] | None = None
    """A gate of each head is projected besides (``g_proj``); this of it multiplies what the head gives (LFM3)."""
    gates_elements: bool = False
    """The gate has one number for each number that a head gives, instead of one a head."""
    heads_per_layer: tuple[int, ...] = ()
    """Each layer's heads of queries, where they differ; ``num_heads`` is then the largest (Laguna)."""
    recurrent: StateShape | None = None
    """Layers with states; None: none has any."""
    learned_positions: bool = False
    """A vector of each position is added to the tokens (OPT)."""
    feed_forward: tuple[bool, ...] = ()
    """Layers that are an MLP or experts alone, in a model whose layers are one block each (Nemotron-H); empty: none."""
    shapes: tuple[HeadShape, ...] = ()
    """Each layer's heads of keys and values, where they differ; empty: ``num_kv_heads`` of ``head_dim``."""
    kv_sources: tuple[int, ...] = ()
    """The layer whose keys and values layer i reads: i, or an earlier one that it shares them with; empty: its own."""
    keys_as_values: tuple[bool, ...] = ()
    """Layers whose values are projected by the weights of their keys; empty: none."""
    value_norm: bool = False
    """Values are normalised per head, without a weight."""
    intermediate_sizes: tuple[int, ...] = ()
    """Intermediate size of each layer's MLP, where they differ; ``intermediate_size`` is then the largest."""
    layer_inputs: int = 0
    """Width of what each layer is given of every token besides the stream (families/gemma4.py)."""
    picture_token: int = 0
    """The token that rows of pictures count as there."""
    longer_position: int = 0
    """The longest text with ``rope.long_factors`` for all of it; of no account unless more than ``max_position``."""

    def for_context(self, context: int | None) -> ModelConfig:
        """This model, rotating by its long factors if texts of more than ``max_position`` tokens are asked for."""
        if context is None or context <= self.max_position or self.longer_position <= self.max_position:
            return self
        return replace(self, rope=replace(self.rope, factors=self.rope.long_factors), max_position=self.longer_position)

    def heads_of(self, layer: int) -> HeadShape:
        """The layer's heads of keys and values."""
        return self.shapes[layer] if self.shapes else HeadShape(self.num_kv_heads, self.head_dim)

    def rotated_dim(self, local: bool = False) -> int:
        """The width of what rotates, of which :attr:`rope` (or :attr:`local_rope`) may take a share."""
        if self.latent is not None:
            return self.latent.rope
        turned = (layer for layer, kind in enumerate(self.local) if kind == local)
        return self.heads_of(next(turned, 0)).width

    @property
    def attending(self) -> tuple[int, ...]:
        """The layers that attend to keys."""
        others = [self.feed_forward] if self.feed_forward else []
        others += [self.recurrent.layers] if self.recurrent is not None else []
        return tuple(layer for layer in range(self.num_layers) if not any(other[layer] for other in others))

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layers with keys and values of their own, in order: the i-th of them has the i-th arenas of a KV cache."""
        sources = self.kv_sources or range(self.num_layers)
        return tuple(layer for layer in self.attending if sources[layer] == layer)

    def arena_of(self, layer: int) -> int:
        """Index of the KV cache's arenas that an attention layer reads: its own, or those that it shares."""
        return self.attention_layers.index(self.kv_sources[layer] if self.kv_sources else layer)

    @property
    def lenders(self) -> frozenset[int]:
        """Layers whose keys and values others read besides."""
        return frozenset(source for layer, source in enumerate(self.kv_sources) if source != layer)

    @property
    def arena_shapes(self) -> tuple[HeadShape, ...]:
        """Heads of keys and values in each of a cache's arenas."""
        return tuple(map(self.heads_of, self.attention_layers))

    @property
    def arena_windows(self) -> tuple[int | None, ...]:
        """The window in which each of a cache's arenas is read, by all layers that read it; None: all of it is."""
        found: list[int | None] = [0] * len(self.attention_layers)
        for layer in self.attending:
            place, window = self.arena_of(layer), self.windows[layer]
            widest = found[place]
            found[place] = None if window is None or widest is None else max(window, widest)
        return tuple(found)

    @property
    def cached_elements(self) -> int:
        """Elements that one token leaves in all layers, keys and values."""
        if self.latent is not None:
            return len(self.attention_layers) * (self.latent.rank + self.latent.rope) + self.index_elements
        return sum(2 * shape.kv_heads * shape.width for shape in self.arena_shapes)

    def inner_of(self, layer: int) -> int:
        """The intermediate size of a layer's MLP."""
        return self.intermediate_sizes[layer] if self.intermediate_sizes else self.intermediate_size


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``original_max_position``: the context before the extension, in tokens (llama3, yarn, longrope).

    ``factors``: what each of the head_dim / 2 frequencies is divided by besides; all 1 when empty (GGUF's rope_freqs,
    longrope's short factors). ``long_factors`` take their place beyond the original context (longrope).
    ``partial``: the share of each head, from its start, that rotates.
    """

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn", "longrope"] = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    partial: float = 1.0
    query_beta: float = 0.0
    """Queries are multiplied by ``1 + query_beta * ln(1 + floor(position / original_max_position))`` (Llama 4)."""
    sections: tuple[int, ...] = ()
    """Pairs of dimensions that turn by time, row and column in a text with pictures; () where all turn alike."""
    interleaved: bool = False
    """The pairs of the sections take turns, instead of following each other."""

    def width(self, head_dim: int) -> int:
        """Dimensions of a head that rotate."""
        return int(head_dim * self.partial)


ActivationKind = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]
