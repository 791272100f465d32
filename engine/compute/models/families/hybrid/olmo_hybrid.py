"""OLMo-Hybrid (Ai2 2026): three gated delta nets, normalised before, to one attention as OLMo 2's, normalised after."""

from __future__ import annotations

from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.recurrent.separate_delta_net import SeparateDeltaNet
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.common import read_decoder, some_states
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.compute.models.families.olmo2 import PostNormLayer
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import RecurrentShape

STATE, ATTENTION = "linear_attention", "full_attention"
"""Names in ``layer_types`` of the two kinds of layers."""
NAMES = (
    ("attention_layer_norm", "input_layernorm"),
    ("feedforward_layer_norm", "post_attention_layernorm"),
)


def read_config(raw: RawConfig) -> ModelConfig:
    """Without a base (``rope_theta``) nothing rotates. Without ``layer_types`` every fourth layer has attention."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    types = raw.layer_types(layers, (ATTENTION, STATE))
    if types is None:
        types = [ATTENTION if index % 4 == 3 else STATE for index in range(layers)]
        types[-1] = types[-1] if ATTENTION in types else ATTENTION
    rotates = raw.rope_values().get("rope_theta", raw.values.get("rope_theta")) is not None
    return read_decoder(
        raw,
        max_position=raw.integer("max_position_embeddings", 65536),
        attention_bias=raw.flag("attention_bias", False),
        rotary=(rotates,) * layers,
        recurrent=some_states(raw, _states(raw, types)),
    )


def _states(raw: RawConfig, types: list[str]) -> RecurrentShape:
    """Raises :class:`CheckpointError` for heads that cannot be shared out."""
    heads = raw.integer("num_attention_heads")
    key_heads = raw.integer("linear_num_key_heads", heads)
    key = raw.integer("linear_key_head_dim", int(0.75 * raw.integer("hidden_size") / key_heads))
    shape = RecurrentShape(
        layers=tuple(kind == STATE for kind in types),
        key_heads=key_heads,
        value_heads=raw.integer("linear_num_value_heads", heads),
        key=key,
        value=raw.integer("linear_value_head_dim", 2 * key),
        kernel=raw.integer("linear_conv_kernel_dim", 4, least=2, most=64),
        share_scale=2.0 if raw.flag("linear_allow_neg_eigval", True) else 1.0,
    )
    if shape.value_heads != shape.key_heads:
        raise raw.wrong(f"{shape.value_heads} value heads have {shape.key_heads} key heads, which must be as many")
    return shape


class OlmoHybridLayer(PostNormLayer):
    """One of the two kinds."""

    state_block = SeparateDeltaNet, "linear_attn"

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        self.has_state = config.recurrent is not None and config.recurrent.layers[index]
        if self.has_state:
            self.norm_names = PreNormLayer.norm_names
        super().__init__(config, index, source)

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes."""
        (PreNormLayer if self.has_state else PostNormLayer).forward(self, stream, step)


class Model(Decoder):
    layer = OlmoHybridLayer
