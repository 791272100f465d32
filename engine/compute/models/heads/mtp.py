"""Multi-token-prediction layers that a checkpoint holds with its decoder (Gloeckle et al. 2024; DeepSeek-V3).

MiMo's layout (arXiv 2505.07608); that of Qwen3-Next and its successors, in whose checkpoints the layer stands apart, as
it does in GGUF (Mellum 2 has the same, and Nemotron 3 under other names); and that of DeepSeek-V3 and GLM-4.5, in which
it is numbered with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.embedding import token_table
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.norm import RMSNorm, read_norm
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.base import FeatureHead, HeadLayer
from engine.config.model import ModelConfig


class MultiTokenLayout(NamedTuple):
    """Names of the parts of a checkpoint's layer, and the way that they are joined."""

    layer: str
    """The prefix of the decoder layer."""
    project: tuple[str, str]
    """Prefix and name of what joins state and token..."""
    hidden_norm: str
    token_norm: str
    final_norm: str
    token_first: bool
    """... in this order."""
    normed: bool
    """True if states reach it after the target's final norm, False if before."""
    table: str = ""
    """A token table of the layer's own, which few checkpoints have."""

    @property
    def mark(self) -> str:
        """A tensor that every checkpoint with such a layer has."""
        return f"{''.join(self.project)}.weight"


_MIMO = "model.mtp_layers.0."
MIMO = MultiTokenLayout(
    layer=_MIMO,
    project=(_MIMO, "input_proj"),
    hidden_norm=f"{_MIMO}hidden_layernorm.weight",
    token_norm=f"{_MIMO}token_layernorm.weight",
    final_norm=f"{_MIMO}final_layernorm.weight",
    token_first=False,
    normed=False,
)
QWEN = MultiTokenLayout(
    layer="mtp.layers.0.",
    project=("mtp.", "fc"),
    hidden_norm="mtp.pre_fc_norm_hidden.weight",
    token_norm="mtp.pre_fc_norm_embedding.weight",
    final_norm="mtp.norm.weight",
    token_first=True,
    normed=True,
    table="mtp.embed_tokens.weight",
)


def deepseek(layers: int) -> MultiTokenLayout:
    """The first such layer after the ``layers`` of the model. (Its token table and output layer are copies.)"""
    prefix = f"model.layers.{layers}."
    return MultiTokenLayout(
        layer=prefix,
        project=(prefix, "eh_proj"),
        hidden_norm=f"{prefix}hnorm.weight",
        token_norm=f"{prefix}enorm.weight",
        final_norm=f"{prefix}shared_head.norm.weight",
        token_first=True,
        normed=True,
    )


def layout_of(has: Callable[[str], bool], layers: int) -> MultiTokenLayout | None:
    """The layout of a multi-token layer of a checkpoint, which ``has(name)`` tensors and whose model has ``layers``.

    None where there is no such layer.
    """
    return next((layout for layout in (MIMO, QWEN, deepseek(layers)) if has(layout.mark)), None)


def _layer_shape(config: ModelConfig) -> ModelConfig:
    """The layer's configuration: experts where the last one has some, or any of a model's layers of one block each."""
    positions, moe = config.positions, config.moe
    local = positions.multi_token_local
    sparse = moe is not None and (any(moe.sparse) if config.mlp.only else moe.sparse[-1])
    return config.changed(
        num_layers=1,
        windows=(max(window or 0 for window in config.attention.windows) or None,) if local else (None,),
        rope=positions.local_rope if local and positions.local_rope is not None else positions.rope,
        rotary=(any(positions.rotary),),
        local=(),
        mlp_only=(),
        moe=replace(moe, sparse=(True,)) if moe is not None and sparse else None,
        recurrent=None,
    )


class MultiToken(FeatureHead):
    """``h_i = norm(layer(proj([norm(f_i); norm(emb(t_{i+1}))])))``, f being what the layout says.

    The output goes to the target's output layer, and is what the layer goes on from. Of several layers the first is
    used for every depth: the others were trained on states of a depth that only they see, and each would need a cache
    of its own. No embedding is masked, as in the authors' model; vLLM zeroes that of entry 0, which changes one key of
    a text.
    """

    name = "mtp"
    title = "multi-token layer"

    def __init__(
        self, target: CausalLM, source: WeightSource, layout: MultiTokenLayout, own_table: bool = False
    ) -> None:
        """``source`` is that of the target's own checkpoint. ``own_table``: it has the layout's ``table``."""
        config = target.config
        shape = _layer_shape(config)
        super().__init__(shape, target, source)
        self.layout, self.reads = layout, (config.num_layers,)
        size = shape.hidden_size
        if own_table:
            self.embedding = token_table(source.embedding(layout.table, shape.vocab_size, size))
        self.layer = HeadLayer(shape, source, layout.layer)
        prefix, name = layout.project
        self.project = source.linear(prefix, (name,), [size], 2 * size, False)
        names = layout.hidden_norm, layout.token_norm, f"{layout.layer}input_layernorm.weight", layout.final_norm
        norms = (read_norm(shape, source, name) for name in names)
        self.hidden_norm, self.token_norm, self.attention_norm, self.final_norm = norms

    def features(self, hidden: Mapping[int, Tensor]) -> Tensor:
        """Implements :meth:`FeatureHead.features`."""
        found = hidden[self.reads[0]]
        return self.target.norm.forward(found) if self.layout.normed else found

    def entries(self, features: Tensor, tokens: Tensor, step: Step) -> Tensor:
        """Implements :meth:`FeatureHead.entries`."""
        parts = self.hidden_norm.forward(features), self.token_norm.forward(self.embedding.forward(tokens))
        x = self.project(torch.cat(parts[::-1] if self.layout.token_first else parts, -1))
        return self.final_norm.forward(self.layer.forward(x, self.attention_norm.forward(x), step))

    def linears(self) -> Iterator[Linear]:
        yield self.project
        yield from self.layer.linears()

    def norms(self) -> Iterator[RMSNorm]:
        yield from (self.hidden_norm, self.token_norm, self.attention_norm, self.final_norm)
