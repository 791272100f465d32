"""Gemma 4 (Google DeepMind 2026), text: two kinds of layers that differ in width, heads, window and rotation.

Layers that see all tokens have wider heads, of which a share rotates, and may take their values from their keys. The
last layers may read the keys and values of earlier ones. The small models (E) give every layer a vector of each token
besides the stream; the one with experts runs them next to an MLP.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.compute.batch import Batch
from engine.compute.layers.activation import Activation
from engine.compute.layers.embedding import token_table
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.norm import RMSNorm, read_norm
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.common import proportional_rope, read_decoder, read_moe
from engine.compute.models.families import gemma2
from engine.config.attention import HeadShape
from engine.config.feed_forward import ExpertNames, MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""Names in ``layer_types`` of the two kinds of layers."""
OF_LAYERS = ("num_key_value_heads", "head_dim")
"""Keys that ``per_layer_config`` may state for a layer."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Every 6th layer sees all tokens where the file has no ``layer_types``, and the last one always does."""
    if raw.values.get("use_bidirectional_attention") == "all":
        raise raw.wrong("its tokens see those after them, and Kvasir generates text from left to right only")
    layers = raw.integer("num_hidden_layers", most=10_000)
    local = (*gemma2.local_layers(raw, layers, pattern=6)[:-1], False)
    window = raw.integer("sliding_window", 512)
    shapes = _shapes(raw, local)
    sources = _sources(raw, local)
    inner = raw.integer("intermediate_size")
    wide = raw.flag("use_double_wide_mlp", False)
    inners = tuple(inner * (1 + (wide and source != index)) for index, source in enumerate(sources))
    values_of_keys = raw.flag("attention_k_eq_v", False)
    return read_decoder(
        raw,
        head_dim=256,
        of_layers=OF_LAYERS,
        activation=raw.activation("hidden_activation", ("gelu_tanh", "gelu")),
        intermediate_size=max(inners),
        intermediate_sizes=inners,
        max_position=raw.integer("max_position_embeddings", 131072),
        windows=tuple(window if narrow else None for narrow in local),
        local=local,
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        attention_bias=raw.flag("attention_bias", False),
        attention_scale=1.0,
        logit_softcap=raw.softcap("final_logit_softcapping", None),
        qk_norm=True,
        value_norm=True,
        rope=proportional_rope(raw, GLOBAL, shapes[local.index(False)].width, share=0.25),
        local_rope=raw.rope(10_000.0, LOCAL),
        shapes=shapes,
        kv_sources=sources if any(source != index for index, source in enumerate(sources)) else (),
        keys_as_values=tuple(values_of_keys and not narrow for narrow in local),
        layer_inputs=_layer_inputs(raw),
        picture_token=raw.integer("pad_token_id", 0, least=0),
        moe=_experts(raw, layers) if raw.flag("enable_moe_block", False) else None,
    )


def _layer_inputs(raw: RawConfig) -> int:
    if "unified" in raw.architecture.lower():
        return 0
    width = raw.integer("hidden_size_per_layer_input", 256, least=0)
    rows, vocabulary = raw.integer("vocab_size_per_layer_input", 262_144), raw.integer("vocab_size")
    if width and rows != vocabulary:
        raise raw.wrong(f"its layers' own token table has {rows} tokens, and the vocabulary {vocabulary}")
    return width


def _shapes(raw: RawConfig, local: tuple[bool, ...]) -> tuple[HeadShape, ...]:
    """Heads of keys and values of each layer; transformers writes those that differ under ``per_layer_config``."""
    heads, usual = raw.integer("num_attention_heads"), raw.integer("num_key_value_heads", 4)
    wide = raw.integer("global_head_dim", 512)
    shared = raw.flag("attention_k_eq_v", False) and raw.values.get("num_global_key_value_heads") is not None
    few = raw.integer("num_global_key_value_heads") if shared else usual
    own = raw.per_layer(len(local), OF_LAYERS)
    found = []
    for index, narrow in enumerate(local):
        shape = HeadShape(usual, raw.integer("head_dim", 256)) if narrow else HeadShape(few, wide)
        if raw.values.get("per_layer_config") is not None:
            values = RawConfig(raw.values | own.get(index, {}), raw.file)
            shape = HeadShape(values.integer("num_key_value_heads", 4), values.integer("head_dim", 256))
        if heads % shape.kv_heads or shape.width % 2:
            raise raw.wrong(f"{heads} attention heads cannot share {shape.kv_heads} key-value heads of {shape.width}")
        found.append(shape)
    if any(len({shape for shape, narrow in zip(found, local, strict=True) if narrow == kind}) > 1 for kind in local):
        raise raw.wrong("layers of one type have heads of different widths, which no model of this family has")
    return tuple(found)


def _sources(raw: RawConfig, local: tuple[bool, ...]) -> tuple[int, ...]:
    """Layer whose keys and values each layer reads: for the last ones, the last layer of their kind with its
    own."""
    layers = len(local)
    shared = raw.integer("num_kv_shared_layers", 0, least=0, most=layers - 1)
    own = layers - shared
    if shared and set(local[own:]) - set(local[:own]):
        raise raw.wrong(f"of its {own} layers with keys and values none is of a kind that the {shared} others share")
    last = {kind: index for index, kind in enumerate(local[:own])}
    return tuple(index if index < own else last[kind] for index, kind in enumerate(local))


def _experts(raw: RawConfig, layers: int) -> MoEConfig:
    """All layers have experts, next to an MLP; a share is a softmax over all, divided by the sum of the chosen ones."""
    return read_moe(
        raw,
        count="num_experts",
        asked="top_k_experts",
        per_token=None,
        intermediate_size=raw.integer("moe_intermediate_size"),
        sparse=(True,) * layers,
        normalised=True,
        expert_scales=True,
        names=ExpertNames(block="", router="router.proj"),
        parallel=True,
    )


class Gemma4Layer(gemma2.SandwichLayer):
    """Gemma 2's, with experts next to the MLP, a vector of each token besides the stream, and a factor at its end."""

    mlp: GatedMLP

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        super().__init__(config, index, source)
        prefix = f"model.layers.{index}."
        self.index = index
        self.factor = source.vector(f"{prefix}layer_scalar", 1)
        self.experts = ParallelExperts(config, source, prefix) if config.moe is not None else None
        self.input = LayerInput(config, source, prefix) if config.layer_inputs else None

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes, and multiply the stream."""
        attended = self.attention.forward(stream.normed(self.attention_norm), step)
        stream.add(self.attention_out_norm.forward(attended))
        added = self.mlp.forward(stream.normed(self.mlp_norm))
        if self.experts is not None:
            added = self.experts.forward(added, stream.value())
        stream.add(self.mlp_out_norm.forward(added))
        if self.input is not None and step.layer_inputs is not None:
            stream.add(self.input.forward(stream.value(), step.layer_inputs[self.index]))
        stream.multiply(self.factor)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from super().linears()
        if self.experts is not None:
            yield from self.experts.block.linears()
        if self.input is not None:
            yield from self.input.linears()

    def storage_size(self) -> int:
        parts = (part.storage_size() for part in (self.experts, self.input) if part is not None)
        return super().storage_size() + self.factor.nbytes + sum(parts)

    @property
    def waits(self) -> bool:
        return self.experts is not None and self.experts.block.waits


class ParallelExperts:
    """Experts that read the stream as the MLP does, by norms of their own; both results are normalised and added."""

    def __init__(self, config: ModelConfig, source: WeightSource, prefix: str) -> None:
        self.block = SparseMLP(config, source, prefix)
        scale = source.array(f"{prefix}router.scale", (config.hidden_size,)) * config.hidden_size**-0.5
        self.router_norm = RMSNorm(scale, config.rms_norm_eps, source.numerics)
        names = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
        self.mlp_out_norm, self.norm, self.out_norm = (
            read_norm(config, source, f"{prefix}{name}.weight") for name in names
        )

    def forward(self, mlp: Tensor, x: Tensor) -> Tensor:
        """MLP output and the stream ``x [T, hidden_size]`` that it read -> sum of MLP and experts, both normed."""
        chosen = self.block.forward(self.norm.forward(x), self.router_norm.forward(x))
        return self.mlp_out_norm.forward(mlp).add_(self.out_norm.forward(chosen))

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        norms = (self.router_norm, self.mlp_out_norm, self.norm, self.out_norm)
        return sum(norm.storage_size() for norm in norms) + self.block.storage_size()


class LayerInput:
    """Adds to the stream what a layer makes of its own vector of each token: ``norm(up(act(gate(x)) * vector))``."""

    def __init__(self, config: ModelConfig, source: WeightSource, prefix: str) -> None:
        hidden, width = config.hidden_size, config.layer_inputs
        self.gate = source.linear(prefix, ("per_layer_input_gate",), [width], hidden, False)
        self.up = source.linear(prefix, ("per_layer_projection",), [hidden], width, False)
        self.norm = read_norm(config, source, f"{prefix}post_per_layer_input_norm.weight")
        self.activation = Activation(config.mlp.activation, source.numerics)

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        """``x [T, hidden_size]`` and ``vectors [T, width]`` -> what is added to the stream."""
        return self.norm.forward(self.up(self.activation(self.gate(x)).mul_(vectors)))

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "input_gate", self.gate
        yield "input_up", self.up

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return self.norm.storage_size()


class Model(gemma2.Model):
    """Gemma 4 (Google DeepMind 2026)."""

    layer = Gemma4Layer

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        self.inputs = TokenVectors(config, source) if config.layer_inputs else None

    def layer_inputs(self, batch: Batch) -> Tensor | None:
        """A vector for each layer and token ``[layers, T, width]``."""
        if self.inputs is None:
            return None
        tokens = batch.tokens.clone() if batch.embedded else batch.tokens
        for first, vectors, _ in batch.embedded:
            tokens[first : first + vectors.shape[0]] = self.config.picture_token
        return self.inputs.forward(tokens, self.with_pictures(self.embed(batch), batch))

    def linears(self) -> Iterator[tuple[str, Linear]]:
        if self.inputs is not None:
            yield "layer_inputs", self.inputs.projection
        yield from super().linears()

    def _layers_size(self) -> int:
        return super()._layers_size() + (0 if self.inputs is None else self.inputs.read_size())

    def storage_size(self) -> int:
        return super().storage_size() + (0 if self.inputs is None else self.inputs.table.storage_size())


class TokenVectors:
    """Each layer's vectors of tokens: looked up in a table, and projected from the stream that enters the first layer
    (per-layer embeddings, as in Gemma 3n)."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        self.layers, self.width = config.num_layers, config.layer_inputs
        both = self.layers * self.width
        self.table = token_table(source.embedding("model.embed_tokens_per_layer.weight", config.vocab_size, both))
        self.projection = source.linear("model.", ("per_layer_model_projection",), [both], config.hidden_size, False)
        weight = source.vector("model.per_layer_projection_norm.weight", self.width)
        self.norm = RMSNorm(weight, config.rms_norm_eps, source.numerics)
        self.scale = config.hidden_size**-0.5

    def forward(self, tokens: Tensor, x: Tensor) -> Tensor:
        """``tokens [T]`` and ``x [T, hidden_size]`` that enters the first layer -> ``[layers, T, width]``."""
        shape = (-1, self.layers, self.width)
        projected = self.norm.forward((self.projection(x) * self.scale).view(shape))
        looked_up = self.table.forward(tokens).view(shape).mul_(self.width**0.5)
        return (projected + looked_up).mul_(2**-0.5).transpose(0, 1).contiguous()

    def read_size(self) -> int:
        """Bytes that a step reads."""
        return self.norm.storage_size() + self.projection.storage_size()
