"""Reading the configurations of the Llama-shaped families."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from engine.config.attention import AttentionConfig
from engine.config.feed_forward import MLPConfig, MoEConfig
from engine.config.model import ModelConfig
from engine.config.positions import PositionConfig, RopeConfig
from engine.config.raw import RawConfig, is_number
from engine.config.states import MambaShape, StateShape

MOST_EXPERTS = 4096


def read_decoder(
    raw: RawConfig,
    *,
    head_dim: int | None = None,
    theta: float = 10000.0,
    eps: float = 1e-6,
    attention_bias: bool = False,
    of_layers: Sequence[str] = (),
    **own: Any,
) -> ModelConfig:
    """A :class:`ModelConfig` from config.json. ``own`` is what the family decides, as in
    :meth:`ModelConfig.changed`.

    ``head_dim``, ``theta`` and ``eps`` are the family's defaults where the file has none (``head_dim`` None: the hidden
    size shared among the heads). ``attention_bias``: q, k, v and the output have biases. ``of_layers``: values that
    single layers may have of their own. Raises :class:`CheckpointError` for values that contradict each other.
    """
    hidden, heads = raw.integer("hidden_size"), raw.integer("num_attention_heads")
    kv_heads = raw.integer("num_key_value_heads", heads)
    layers = raw.integer("num_hidden_layers", most=10_000)
    raw.per_layer(layers, of_layers)
    if heads % kv_heads:
        raise raw.wrong(f"{heads} attention heads cannot share {kv_heads} key-value heads evenly")
    if raw.values.get("head_dim") is None and head_dim is None and hidden % heads:
        raise raw.wrong(f"a hidden size of {hidden} does not divide into {heads} heads")
    dim = raw.integer("head_dim", head_dim or hidden // heads)
    if dim % 2:
        raise raw.wrong(f"a head dimension of {dim} is odd, and rotary embedding needs pairs")
    inner = own["intermediate_size"] if "intermediate_size" in own else raw.integer("intermediate_size")
    rope = own["rope"] if "rope" in own else raw.rope(theta)
    activation = own["activation"] if "activation" in own else raw.activation("hidden_act", ("silu",))
    config = ModelConfig(
        architecture=raw.architecture,
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden,
        num_layers=layers,
        attention=AttentionConfig(
            heads, kv_heads, dim, (None,) * layers, qkv_bias=attention_bias, output_bias=attention_bias
        ),
        positions=PositionConfig(rope, raw.integer("max_position_embeddings", 2048), (True,) * layers),
        mlp=MLPConfig(inner, activation=activation),
        rms_norm_eps=raw.number("rms_norm_eps", eps),
        tie_word_embeddings=raw.flag("tie_word_embeddings", False),
        dtype=raw.dtype(),
    )
    return config.changed(**own)


def read_moe(
    raw: RawConfig,
    *,
    count: str,
    per_token: int | None,
    intermediate_size: int,
    sparse: tuple[bool, ...],
    asked: str = "num_experts_per_tok",
    **own: Any,
) -> MoEConfig:
    """A :class:`MoEConfig` from config.json. ``own`` as above.

    ``count`` and ``asked`` are the keys of the numbers of experts, and of those of a token, ``per_token`` the family's
    default of the latter where the file has none. Raises :class:`CheckpointError` for choices that cannot be made.
    """
    experts = raw.integer(count, most=MOST_EXPERTS)
    chosen = raw.integer(asked, per_token)
    groups, within = own.get("groups", 1), own.get("groups_per_token", 1)
    if chosen > experts:
        raise raw.wrong(f"each token is to choose {chosen} of {experts} experts")
    if experts % groups or within > groups:
        raise raw.wrong(f"{experts} experts cannot be chosen in {within} of {groups} groups")
    if chosen > experts // groups * within:
        raise raw.wrong(f"each token is to choose {chosen} experts in {within} groups of {experts // groups}")
    return MoEConfig(experts, chosen, intermediate_size, sparse, **own)


Shape = TypeVar("Shape", bound=StateShape)


def some_states(raw: RawConfig, shape: Shape, attending: bool | None = None) -> Shape | None:
    """The shape; None where no layer carries a state. ``attending``: whether any attends (None: all others do).

    Raises :class:`CheckpointError` where none does.
    """
    if not (any(not state for state in shape.layers) if attending is None else attending):
        raise raw.wrong("none of its layers has attention, which no model of this family does")
    return shape if any(shape.layers) else None


def read_mamba(raw: RawConfig, layers: Sequence[bool], names: Mapping[str, str], **own: Any) -> MambaShape:
    """A :class:`MambaShape`. ``names`` are the keys of its sizes in config.json.

    Raises :class:`CheckpointError` for heads that cannot be shared out.
    """
    sizes = {field: raw.integer(key) for field, key in names.items() if field != "kernel"}
    kernel = raw.integer(names["kernel"], 4, least=2, most=64)
    shape = MambaShape(tuple(layers), kernel=kernel, limits=_limits(raw), **(sizes | own))
    if shape.heads % shape.groups:
        raise raw.wrong(f"{shape.heads} heads with states cannot share {shape.groups} groups evenly")
    return shape


def _limits(raw: RawConfig) -> tuple[float, float]:
    """Files write what has no end in three ways."""
    stated = raw.values.get("time_step_limit")
    if stated is None:
        return 0.0, math.inf
    limits = stated if isinstance(stated, list) else []
    ends = [math.inf if end in ({"__float__": "Infinity"}, "inf", math.inf) else end for end in limits]
    if len(ends) != 2 or not all(end == math.inf or is_number(end) for end in ends) or not 0 <= ends[0] < ends[1]:
        raise raw.wrong(f'"time_step_limit" is {stated!r:.100}, where two numbers from 0 on are needed')
    return float(ends[0]), float(ends[1])


def upper_windows(raw: RawConfig) -> tuple[int | None, ...]:
    """Qwen's windows: if ``use_sliding_window``, the layers from ``max_window_layers`` on (or ``layer_types``)."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    window = raw.optional_integer("sliding_window", 4096) if raw.flag("use_sliding_window", False) else None
    types = raw.layer_types(layers)
    if types is None:
        first = raw.integer("max_window_layers", 28, least=0)
        types = ["sliding_attention" if index >= first else "full_attention" for index in range(layers)]
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def proportional_rope(raw: RawConfig, layers: str, width: int, share: float) -> RopeConfig:
    """The rotation of heads of this width in the layers of a type; "proportional" where the file is silent.

    That is: the first share of the frequencies of a whole head turns, and the others stand still.
    """
    values = raw.rope_values(layers)
    if values.get("rope_type", "proportional") != "proportional":
        return raw.rope(1_000_000.0, layers)
    plain = {key: values[key] for key in ("rope_theta", "factor") if values.get(key) is not None}
    kind = {"rope_type": "linear" if "factor" in plain else "default"}
    config = RawConfig(raw.values | {"rope_parameters": plain | kind}, raw.file).rope(1_000_000.0)
    turning = int(raw.rotary_share(values, share) * width // 2)
    factors = (1.0,) * turning + (math.inf,) * (width // 2 - turning)
    return RopeConfig(config.theta, config.kind, config.factor, factors=factors)
