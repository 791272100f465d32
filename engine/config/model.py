"""A model's configuration, checked: what families read from config.json or GGUF, and every layer asks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from engine.config.attention import AttentionConfig, HeadShape
from engine.config.feed_forward import MLPConfig, MoEConfig
from engine.config.positions import PositionConfig
from engine.config.states import StateShape


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Packing of the file's linear layers. ``group_size`` -1 means one group over all input features.

    The tensors show which modules are packed at all: one without packed tensors is dense.
    """

    method: str
    """As config.json writes it, or whose layout it has."""
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


@dataclass(frozen=True, slots=True)
class ScaleConfig:
    """Factors on what passes a model, and the cap of its logits."""

    embedding: float = 1.0
    """Multiplies what is looked up in the token table."""
    residual: float = 1.0
    """Multiplies what each block adds to the residual stream."""
    logit_divisor: float = 1.0
    logit_softcap: float | None = None
    """A logit x becomes c * tanh(x / c)."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A checked configuration, of which layers read the parts that concern them.

    ``rms_norm_eps`` is the epsilon of all norms, whatever their kind. The fields with a default are what few families
    need.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    attention: AttentionConfig
    positions: PositionConfig
    mlp: MLPConfig
    rms_norm_eps: float
    tie_word_embeddings: bool
    dtype: torch.dtype
    """The file's own dtype; the model may run in another."""
    scales: ScaleConfig = ScaleConfig()
    quantisation: Quantisation | None = None
    unit_offset_norms: bool = False
    """Norms multiply by 1 + the stored weight."""
    moe: MoEConfig | None = None
    recurrent: StateShape | None = None
    """Layers with states; None: none has any."""
    layer_inputs: int = 0
    """Width of what each layer is given of every token besides the stream (families/gemma4.py)."""
    picture_token: int = 0
    """The token that rows of pictures count as there."""

    def changed(self, **changes: Any) -> ModelConfig:
        """This model with other values, each by its name in :data:`PLACES`. Raises KeyError for a name without one."""
        parts: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, value in changes.items():
            part, _, field = PLACES[name].rpartition(".")
            parts[part][field] = value
        own = parts.pop("", {})
        return replace(self, **own, **{part: replace(getattr(self, part), **new) for part, new in parts.items()})

    def rotated_dim(self, local: bool = False) -> int:
        """The width of what rotates, of which ``rope`` (or ``local_rope``) may take a share."""
        if self.attention.latent is not None:
            return self.attention.latent.rope
        turned = (layer for layer, kind in enumerate(self.positions.local) if kind == local)
        return self.attention.heads_of(next(turned, 0)).width

    @property
    def attending(self) -> tuple[int, ...]:
        """The layers that attend to keys."""
        others = [self.mlp.only] if self.mlp.only else []
        others += [self.recurrent.layers] if self.recurrent is not None else []
        return tuple(layer for layer in range(self.num_layers) if not any(other[layer] for other in others))

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layers with keys and values of their own, in order: the i-th of them has the i-th arenas of a KV cache."""
        return tuple(layer for layer in self.attending if self.attention.source_of(layer) == layer)

    def arena_of(self, layer: int) -> int:
        """Index of the KV cache's arenas that an attention layer reads: its own, or those that it shares."""
        return self.attention_layers.index(self.attention.source_of(layer))

    @property
    def arena_shapes(self) -> tuple[HeadShape, ...]:
        """Heads of keys and values in each of a cache's arenas."""
        return tuple(map(self.attention.heads_of, self.attention_layers))

    @property
    def arena_windows(self) -> tuple[int | None, ...]:
        """The window in which each of a cache's arenas is read, by all layers that read it; None: all of it is."""
        found: list[int | None] = [0] * len(self.attention_layers)
        for layer in self.attending:
            place, window = self.arena_of(layer), self.attention.windows[layer]
            widest = found[place]
            found[place] = None if window is None or widest is None else max(window, widest)
        return tuple(found)

    @property
    def cached_elements(self) -> int:
        """Elements that one token leaves in all layers, keys and values."""
        latent = self.attention.latent
        if latent is not None:
            return len(self.attention_layers) * (latent.rank + latent.rope) + latent.index_elements
        return sum(2 * shape.kv_heads * shape.width for shape in self.arena_shapes)


_PARTS = {"attention": AttentionConfig, "positions": PositionConfig, "mlp": MLPConfig, "scales": ScaleConfig}
_LONG_NAMES = {  # where a value's name says too little without that of its part
    "attention.scale": "attention_scale",
    "attention.softcap": "attention_softcap",
    "positions.learned": "learned_positions",
    "positions.longer": "longer_position",
    "mlp.bias": "mlp_bias",
    "mlp.fused": "fused_mlp",
    "mlp.only": "mlp_only",
    "scales.embedding": "embedding_scale",
    "scales.residual": "residual_scale",
}
PLACES = {field.name: field.name for field in fields(ModelConfig) if field.name not in _PARTS} | {
    _LONG_NAMES.get(f"{part}.{field.name}", field.name): f"{part}.{field.name}"
    for part, kind in _PARTS.items()
    for field in fields(kind)
}
"""Name of each value that families decide -> where a :class:`ModelConfig` has it: "mlp_bias" -> "mlp.bias"."""
