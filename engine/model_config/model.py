"""A model's configuration, checked: what families read from config.json or GGUF, and every layer asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch


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
    routing: Literal["all", "chosen"] = "all"
    """Whether an expert's share is a softmax over all experts, or over the chosen ones."""
    normalised: bool = False
    """Shares of "all" are divided by the sum of those chosen."""
    share_scale: float = 1.0
    """Multiplies the shares after that."""
    groups: int = 1
    """The number of groups of neighbouring experts..."""
    groups_per_token: int = 1
    """... and of those that a row chooses in, which have the best experts (DeepSeek-V2)."""
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
    """The longest text with ``rope.long_factors`` for all of it; of no account unless more than ``max_position``."""

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

    def width(self, head_dim: int) -> int:
        """Dimensions of a head that rotate."""
        return int(head_dim * self.partial)


ActivationKind = Literal["silu", "gelu", "gelu_tanh", "relu"]
