"""Multi-token-prediction layers that a checkpoint holds with its decoder, in MiMo's layout (arXiv 2505.07608)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from engine.layers.interface import Step, WeightSource
from engine.layers.linear.base import Linear
from engine.layers.norm import RMSNorm, read_norm
from engine.models.base import CausalLM
from engine.models.heads.base import FeatureHead, HeadLayer

PREFIX = "model.mtp_layers.0."


def has_mtp(names: Collection[str]) -> bool:
    """Whether a checkpoint with tensors of these names has multi-token layers that :class:`MultiToken` runs."""
    return f"{PREFIX}input_proj.weight" in names


class MultiToken(FeatureHead):
    """``h_i = norm(layer(proj([norm(f_i); norm(emb(t_{i+1}))])))``, f being what the target's final norm reads.

    (So its authors serve it: the states reach it before that norm.) The output goes to the target's output layer, and
    is what the layer goes on from. Of several layers the first is used for every depth: the others were trained on
    states of a depth that only they see, and each would need a cache of its own. No embedding is masked, as in the
    authors' model; vLLM zeroes that of entry 0, which changes one key of a text.
    """

    name = "mtp"
    title = "multi-token layer"

    def __init__(self, target: CausalLM, source: WeightSource) -> None:
        """``source`` is that of the target's own checkpoint."""
        shape = replace(target.config, num_layers=1, windows=(None,), rotary=(True,), local=(), moe=None)
        super().__init__(shape, target, source)
        self.reads = (target.config.num_layers,)
        size = shape.hidden_size
        self.layer = HeadLayer(shape, source, PREFIX)
        self.project = source.linear(PREFIX, ("input_proj",), [size], 2 * size, False)
        names = ("hidden_layernorm", "token_layernorm", "input_layernorm", "final_layernorm")
        norms = (read_norm(shape, source, f"{PREFIX}{name}.weight") for name in names)
        self.hidden_norm, self.token_norm, self.attention_norm, self.final_norm = norms

    def features(self, hidden: Mapping[int, Tensor]) -> Tensor:
        """See :meth:`FeatureHead.features`."""
        return hidden[self.reads[0]]

    def entries(self, features: Tensor, tokens: Tensor, step: Step) -> Tensor:
        """See :meth:`FeatureHead.entries`."""
        token = self.token_norm.forward(self.embedding.forward(tokens))
        x = self.project(torch.cat((self.hidden_norm.forward(features), token), -1))
        return self.final_norm.forward(self.layer.forward(x, self.attention_norm.forward(x), step))

    def linears(self) -> Iterator[Linear]:
        yield self.project
        yield from self.layer.linears()

    def norms(self) -> Iterator[RMSNorm]:
        yield from (self.hidden_norm, self.token_norm, self.attention_norm, self.final_norm)
