"""The architectures that are read in GGUF: what their metadata says in the words of the family's own config.json.

What converters write, and what holds where they write nothing, is llama.cpp's (its converter, its src/models).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from engine.config.feed_forward import ExpertNames
from engine.config.model import ModelConfig
from engine.config.states import RecurrentShape
from engine.formats.gguf import rope
from engine.formats.gguf.container import GGUFFile
from engine.formats.gguf.keys import MetadataKeys
from engine.formats.gguf.names import (
    BERT,
    DEEPSEEK2,
    EXPERTS,
    FUSED,
    GEMMA4,
    GLM4_MOE,
    GPT_OSS,
    GRANITE_HYBRID,
    KIMI_LINEAR,
    LFM2,
    MIXTRAL,
    NEMOTRON_H,
    QWEN35,
    QWEN35MOE,
    SANDWICH,
)

Values = dict[str, Any]
_GEMMA_27B = {"gemma2": 46, "gemma3": 62}
"""Layers of the sizes whose scores are scaled by the hidden size per head; no key says so."""


class Architecture(NamedTuple):
    """``values(keys, files, common)`` gives what is added to or replaces the ``common`` values of config.json.

    ``interleaved``: rows of q and k lie as ggml rotates pairs of neighbours. ``norm_offset``: what the converter added
    to the weights of norms. ``heads``: whether all of each head rotates, or perhaps a part, or latents are cached.
    ``experts``: a file may have some. ``varied``: heads and MLPs may differ from layer to layer. ``finish`` changes
    what the family has read.
    """

    family: str
    values: Callable[[MetadataKeys, GGUFFile, Values], Values] = lambda keys, files, common: {}
    names: Mapping[str, str] = {}
    interleaved: bool = False
    norm_offset: float = 0.0
    heads: Literal["whole", "partial", "latent"] = "whole"
    experts: bool = False
    varied: bool = False
    finish: Callable[[ModelConfig, MetadataKeys], ModelConfig] = lambda config, keys: config


def _llama(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """A Mistral is saved as a llama, and so is a Mixtral."""
    window = keys.optional_integer("attention.sliding_window") or None
    experts = _experts(keys)
    if experts:
        return experts | {"architectures": ["MixtralForCausalLM"], "sliding_window": window}
    return {"architectures": ["MistralForCausalLM"], "sliding_window": window} if window else {}


def _experts(keys: MetadataKeys) -> Values:
    """The settings of the experts; empty where there are none."""
    count = keys.optional_integer("expert_count")
    return {"num_local_experts": count, "num_experts_per_tok": keys.integer("expert_used_count")} if count else {}


def _qwen3moe(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """All layers have experts, whose shares add up to 1."""
    size = keys.integer("expert_feed_forward_length")
    return _experts(keys) | {"moe_intermediate_size": size, "norm_topk_prob": True}


def _axes(keys: MetadataKeys, common: Values, interleaved: bool) -> Values:
    """The rotation, whose frequencies are of three axes where a file says so (M-RoPE)."""
    stated = keys.get("rope.dimension_sections")
    if not isinstance(stated, list) or not any(stated[:3]):
        return dict(common["rope_parameters"])
    return common["rope_parameters"] | {"mrope_section": stated[:3], "mrope_interleaved": interleaved}


def _qwen2vl(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return {"rope_parameters": _axes(keys, common, False)}


def _qwen3vl(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return {"rope_parameters": _axes(keys, common, True)}


def _qwen3vlmoe(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return _qwen3moe(keys, files, common) | _qwen3vl(keys, files, common)


def _deepseek2(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Files from before 2025-04 have a head's own lengths under the names that are now those of what is cached."""
    values = common | {
        "num_hidden_layers": _own_layers(keys),
        "num_key_value_heads": common["num_attention_heads"],
        "q_lora_rank": keys.optional_integer("attention.q_lora_rank") or None,
        "kv_lora_rank": keys.integer("attention.kv_lora_rank"),
        "qk_rope_head_dim": keys.integer("rope.dimension_count"),
        "v_head_dim": keys.optional_integer("attention.value_length_mla") or keys.integer("attention.value_length"),
        "n_routed_experts": keys.optional_integer("expert_count") or None,
        "first_k_dense_replace": keys.optional_integer("leading_dense_block_count") or 0,
    }
    values["qk_nope_head_dim"] = common["head_dim"] - values["qk_rope_head_dim"]
    if values["n_routed_experts"]:
        values |= _deepseek2_experts(keys)
        if _by_sigmoid(keys, files):
            values["architectures"] = ["DeepseekV3ForCausalLM"]
    multiplier = keys.optional_number("rope.scaling.yarn_log_multiplier")
    if multiplier:
        # A tenth of mscale_all_dim; mscale, which no key has, is the same in this family.
        scales = {"mscale": 10 * multiplier, "mscale_all_dim": 10 * multiplier}
        values["rope_parameters"] = common["rope_parameters"] | scales
    return values


def _kimi_linear(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Layers without keys and values carry states, in as many heads as the others have."""
    heads = keys.of_layers("attention.head_count_kv")
    return _deepseek2(keys, files, common) | {
        "architectures": ["KimiLinearForCausalLM"],
        "layer_types": ["full_attention" if count else "linear_attention" for count in heads],
        "linear_num_heads": common["num_attention_heads"],
        "linear_head_dim": keys.integer("kda.head_dim"),
        "linear_conv_kernel_dim": keys.integer("ssm.conv_kernel"),
        "norm_topk_prob": keys.flag("expert_weights_norm", True),
    }


def _own_layers(keys: MetadataKeys) -> int:
    """Layers of multi-token prediction are counted with the others."""
    return keys.layers - (keys.optional_integer("nextn_predict_layers") or 0)


def _by_sigmoid(keys: MetadataKeys, files: GGUFFile) -> bool:
    """Return True if the model's experts are chosen by the sigmoids of their scores, as in DeepSeek-V3."""
    return keys.optional_integer("expert_gating_func") == 2 or any(".exp_probs_b" in name for name in files.entries)


def _lfm2(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Layers without keys and values are short convolutions."""
    heads = keys.of_layers("attention.head_count_kv")
    found = {
        "norm_eps": common["rms_norm_eps"],
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["full_attention" if count else "conv" for count in heads],
        "conv_L_cache": keys.integer("shortconv.l_cache"),
        "tie_embedding": common["tie_word_embeddings"],
    }
    if keys.architecture == "lfm2moe":
        found |= {
            "num_experts": keys.integer("expert_count"),
            "num_experts_per_tok": keys.integer("expert_used_count"),
            "moe_intermediate_size": keys.integer("expert_feed_forward_length"),
            "num_dense_layers": keys.optional_integer("leading_dense_block_count") or 0,
            "use_expert_bias": any(".exp_probs_b" in name for name in files.entries),
        }
    return found


def _glm4moe(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    part = rope.share(keys.optional_integer("rope.dimension_count") or common["head_dim"], common["head_dim"])
    return _deepseek2_experts(keys) | {
        "num_hidden_layers": _own_layers(keys),
        "n_routed_experts": keys.integer("expert_count"),
        "first_k_dense_replace": keys.optional_integer("leading_dense_block_count") or 0,
        "norm_topk_prob": keys.flag("expert_weights_norm", True),
        "attention_bias": "blk.0.attn_q.bias" in files.entries,
        "use_qk_norm": "blk.0.attn_q_norm.weight" in files.entries,
        "rope_parameters": common["rope_parameters"] | {"partial_rotary_factor": part},
    }


def _mistral3(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Mistral Small 3.1 and Ministral 3, whose queries alone grow with their position; both factors of YaRN are 1."""
    beta = keys.optional_number("attention.temperature_scale") or 0.0
    scales = {"llama_4_scaling_beta": beta} | ({"mscale": 1.0, "mscale_all_dim": 1.0} if beta else {})
    return {"rope_parameters": common["rope_parameters"] | scales}


def _deepseek2_experts(keys: MetadataKeys) -> Values:
    groups = keys.optional_integer("expert_group_count") or 1
    scale = keys.optional_number("expert_weights_scale")
    return {
        "num_experts_per_tok": keys.integer("expert_used_count"),
        "moe_intermediate_size": keys.integer("expert_feed_forward_length"),
        "n_shared_experts": keys.optional_integer("expert_shared_count") or 0,
        "routed_scaling_factor": scale or 1.0,
        "norm_topk_prob": keys.flag("expert_weights_norm", False),
        "topk_method": "group_limited_greedy" if groups > 1 else "greedy",
        "n_group": groups,
        "topk_group": keys.optional_integer("expert_group_used_count") or groups,
    }


def _gpt_oss(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """The model's own YaRN does not round its boundaries (``truncate``); no key says so, and ggml does round."""
    values = {"intermediate_size": keys.integer("expert_feed_forward_length")} | _windows(keys, period=2)
    return _experts(keys) | values | {"rope_parameters": common["rope_parameters"] | {"truncate": False}}


def _windows(keys: MetadataKeys, period: int, missing: int = 0) -> Values:
    """The layers with a sliding window: all but every ``period``-th, or as the file says, by number or one by one."""
    stated, layers = keys.optional_integer("attention.sliding_window"), keys.layers
    window = missing if stated is None else stated
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        if len(pattern) < layers or not all(type(local) is bool for local in pattern):
            raise keys.wrong('"attention.sliding_window_pattern" does not say of each layer whether it has a window')
        local = pattern[:layers]
    else:
        every = period if pattern is None else keys.optional_integer("attention.sliding_window_pattern")
        local = [not every or (index + 1) % every != 0 for index in range(layers)]
    kinds = ["sliding_attention" if window and here else "full_attention" for here in local]
    return {"sliding_window": window or None, "layer_types": kinds}


def _gemma(keys: MetadataKeys, common: Values) -> Values:
    large = keys.layers == _GEMMA_27B.get(keys.architecture)
    per_head = common["hidden_size"] // common["num_attention_heads"]
    scalar = per_head if large else common["head_dim"]
    caps = {key: keys.optional_number(key) for key in ("attn_logit_softcapping", "final_logit_softcapping")}
    return {"query_pre_attn_scalar": scalar} | {key: cap for key, cap in caps.items() if cap is not None}


def _gemma2(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return _gemma(keys, common) | _windows(keys, period=2, missing=4096)


def _gemma3(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Any linear scaling of the rotation is only for the layers that see all tokens."""
    local = {"rope_theta": rope.base(keys, "rope.freq_base_swa", 10000.0)}
    ropes = {"full_attention": common["rope_parameters"], "sliding_attention": local}
    return _gemma(keys, common) | _windows(keys, period=6) | {"rope_parameters": ropes}


def _gemma_embedding(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return _gemma3(keys, files, common) | {"use_bidirectional_attention": True}


def _gemma4(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Gemma 4. The stated head length is that of layers that see all tokens; those may have no values of their own."""
    values, layers = _windows(keys, period=6), keys.layers
    heads, inner = keys.of_layers("attention.head_count_kv"), keys.of_layers("feed_forward_length")
    shared = keys.optional_integer("attention.shared_kv_layers") or 0
    local = [kind == "sliding_attention" for kind in values["layer_types"]]
    widths = [keys.integer("attention.key_length_swa") if here else common["head_dim"] for here in local]
    wide = len(set(inner)) > 1
    if wide and inner != [inner[0] * (1 + (index >= layers - shared)) for index in range(layers)]:
        raise keys.wrong('"feed_forward_length" differs from layer to layer in a way that this family has not')
    values |= {
        "head_dim": min(widths),
        "per_layer_config": {
            str(index): {"num_key_value_heads": heads[index], "head_dim": widths[index]} for index in range(layers)
        },
        "num_kv_shared_layers": shared,
        "attention_k_eq_v": any(
            not local[index] and f"blk.{index}.attn_v.weight" not in files.entries for index in range(layers - shared)
        ),
        "intermediate_size": inner[0],
        "use_double_wide_mlp": wide,
        "hidden_size_per_layer_input": keys.optional_integer("embedding_length_per_layer_input") or 0,
        "vocab_size_per_layer_input": common["vocab_size"],
        "final_logit_softcapping": keys.optional_number("final_logit_softcapping"),
        "rope_parameters": {
            "full_attention": common["rope_parameters"],
            "sliding_attention": {"rope_theta": rope.base(keys, "rope.freq_base_swa", 10000.0)},
        },
    }
    count = keys.optional_integer("expert_count")
    if count:
        values |= {
            "enable_moe_block": True,
            "num_experts": count,
            "top_k_experts": keys.integer("expert_used_count"),
            "moe_intermediate_size": keys.integer("expert_feed_forward_length"),
        }
    return values


def _phi3(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """The model has a sliding window, which llama.cpp leaves out; 0 means none."""
    width = keys.optional_integer("rope.dimension_count") or common["head_dim"]
    partial = {"partial_rotary_factor": rope.share(width, common["head_dim"])}
    ropes = common["rope_parameters"] | rope.longrope(keys, files, width // 2) | partial
    return {"sliding_window": keys.optional_integer("attention.sliding_window") or None, "rope_parameters": ropes}


def _olmo2(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """One with windows is an OLMo 3, where any scaling of the rotation is only for the layers that see all tokens."""
    if not keys.optional_integer("attention.sliding_window"):
        return {}
    base = {"rope_theta": common["rope_parameters"]["rope_theta"]}
    ropes = {"full_attention": common["rope_parameters"], "sliding_attention": base}
    return _windows(keys, period=4) | {"architectures": ["Olmo3ForCausalLM"], "rope_parameters": ropes}


def _seed_oss(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return {
        "attention_bias": _holds(files, ".attn_q.bias"),
        "attention_out_bias": _holds(files, ".attn_output.bias"),
        "mlp_bias": _holds(files, ".ffn_up.bias"),
    }


def _ernie(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Pairs of neighbours rotate in this family's own files, too."""
    found: Values = {"use_bias": _holds(files, ".attn_q.bias")}
    if keys.architecture == "ernie4_5-moe":
        found |= {
            "moe_num_experts": keys.integer("expert_count"),
            "moe_k": keys.integer("expert_used_count"),
            "moe_intermediate_size": keys.integer("expert_feed_forward_length"),
            "moe_num_shared_experts": keys.optional_integer("expert_shared_count") or 0,
            "moe_layer_start_index": keys.optional_integer("leading_dense_block_count") or 0,
            "moe_layer_interval": keys.optional_integer("interleave_moe_layer_step") or 1,
        }
    return found


def _granite(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    scale = keys.optional_number("attention.scale")
    return {
        "attention_multiplier": scale or common["head_dim"] ** -0.5,
        "embedding_multiplier": keys.optional_number("embedding_scale") or 1.0,
        "residual_multiplier": keys.optional_number("residual_scale") or 1.0,
        "logits_scaling": keys.optional_number("logit_scale") or 1.0,
    }


def _states(keys: MetadataKeys) -> tuple[int, int, int]:
    """Heads with states, the width of each, and what shares vectors or keys among them."""
    heads, width = keys.integer("ssm.time_step_rank"), keys.integer("ssm.inner_size")
    if width % heads:
        raise keys.wrong(f"{heads} heads do not share {width} values")
    return heads, width // heads, keys.integer("ssm.group_count")


def _bert(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    return {"layer_norm_eps": common["rms_norm_eps"]}


def _granite_hybrid(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Layers without keys and values are Mamba2."""
    heads, width, groups = _states(keys)
    found = _granite(keys, files, common) | {
        "layer_types": ["attention" if count else "mamba" for count in keys.of_layers("attention.head_count_kv")],
        "mamba_n_heads": heads,
        "mamba_d_head": width,
        "mamba_n_groups": groups,
        "mamba_d_state": keys.integer("ssm.state_size"),
        "mamba_d_conv": keys.integer("ssm.conv_kernel"),
        "mamba_conv_bias": _holds(files, ".ssm_conv1d.bias"),
        "attention_bias": _holds(files, ".attn_q.bias"),
        "position_embedding_type": "rope" if keys.flag("rope.scaling.finetuned", True) else None,
        "shared_intermediate_size": common["intermediate_size"],
        "num_local_experts": 0,
    }
    experts = _experts(keys)
    if experts:
        found |= experts | {"shared_intermediate_size": keys.integer("expert_shared_feed_forward_length")}
    return found


def _holds(files: GGUFFile, end: str) -> bool:
    """Return True if some tensor's name ends in ``end``."""
    return any(name.endswith(end) for name in files.entries)


def _parted(config: ModelConfig, keys: MetadataKeys) -> ModelConfig:
    """The converter takes gate and up apart."""
    moe = config.moe
    return config.changed(fused_mlp=False, moe=moe and replace(moe, names=ExpertNames()))


def _nemotron_h(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """A layer has keys and values, an MLP or experts, or neither and so a state. All MLPs are experts, or none is."""
    heads, width, groups = _states(keys)
    layers, experts = _own_layers(keys), keys.optional_integer("expert_count")
    kinds = [
        "full_attention" if attends else ("moe" if experts else "mlp") if inner else "linear_attention"
        for attends, inner in zip(
            keys.of_layers("attention.head_count_kv"), keys.of_layers("feed_forward_length"), strict=True
        )
    ]
    found = {
        "layers_block_type": kinds[:layers],
        "layer_norm_epsilon": common["rms_norm_eps"],
        "mamba_num_heads": heads,
        "mamba_head_dim": width,
        "n_groups": groups,
        "ssm_state_size": keys.integer("ssm.state_size"),
        "conv_kernel": keys.integer("ssm.conv_kernel"),
        "use_conv_bias": _holds(files, ".ssm_conv1d.bias"),
        "use_bias": _holds(files, ".ssm_in.bias"),
        "mlp_bias": _holds(files, ".ffn_up.bias"),
    }
    if not experts:
        return found
    own = {
        "n_routed_experts": experts,
        "moe_shared_expert_intermediate_size": keys.integer("expert_shared_feed_forward_length"),
        "moe_latent_size": keys.optional_integer("moe_latent_size") or None,
    }
    return found | _deepseek2_experts(keys) | own


def _qwen35(keys: MetadataKeys, files: GGUFFile, common: Values) -> Values:
    """Layers of multi-token prediction are counted with the others. All that rotates is a part of each head."""
    values, width, groups = _states(keys)
    layers = _own_layers(keys)
    every, stated = keys.optional_integer("full_attention_interval") or 4, keys.get("attention.recurrent_layers")
    recurrent = [(index + 1) % every != 0 for index in range(layers)]
    if isinstance(stated, list):
        if len(stated) < layers or not all(type(each) is bool for each in stated):
            raise keys.wrong('"attention.recurrent_layers" does not say of each layer whether it carries a state')
        recurrent = stated[:layers]
    part = rope.share(keys.optional_integer("rope.dimension_count") or common["head_dim"], common["head_dim"])
    found = {
        "num_hidden_layers": layers,
        "layer_types": ["linear_attention" if each else "full_attention" for each in recurrent],
        "linear_num_key_heads": groups,
        "linear_num_value_heads": values,
        "linear_key_head_dim": keys.integer("ssm.state_size"),
        "linear_value_head_dim": width,
        "linear_conv_kernel_dim": keys.integer("ssm.conv_kernel"),
        "rope_parameters": _axes(keys, common, True) | {"partial_rotary_factor": part},
    }
    if keys.architecture == "qwen35moe":
        found |= {
            "num_experts": keys.integer("expert_count"),
            "num_experts_per_tok": keys.integer("expert_used_count"),
            "moe_intermediate_size": keys.integer("expert_feed_forward_length"),
            "shared_expert_intermediate_size": keys.integer("expert_shared_feed_forward_length"),
        }
    return found


def _tiled(config: ModelConfig, keys: MetadataKeys) -> ModelConfig:
    """The converter puts value heads in the order in which ggml repeats key heads."""
    states = config.recurrent
    return replace(config, recurrent=replace(states, tiled=True) if isinstance(states, RecurrentShape) else states)


def _unrotated(config: ModelConfig, keys: MetadataKeys) -> ModelConfig:
    """A Granite can have no position embedding at all."""
    rotates = keys.flag("rope.scaling.finetuned", True)
    return config if rotates else config.changed(rotary=(False,) * config.num_layers)


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", _llama, MIXTRAL, interleaved=True, experts=True),
    "qwen2": Architecture("Qwen2ForCausalLM"),
    "qwen3": Architecture("Qwen3ForCausalLM"),
    "qwen3moe": Architecture("Qwen3MoeForCausalLM", _qwen3moe, EXPERTS, experts=True),
    "qwen2vl": Architecture("Qwen2ForCausalLM", _qwen2vl),
    "qwen3vl": Architecture("Qwen3ForCausalLM", _qwen3vl),
    "qwen3vlmoe": Architecture("Qwen3MoeForCausalLM", _qwen3vlmoe, EXPERTS, experts=True),
    "qwen35": Architecture("Qwen3_5ForCausalLM", _qwen35, QWEN35, norm_offset=1.0, heads="partial", finish=_tiled),
    "qwen35moe": Architecture(
        "Qwen3_5MoeForCausalLM", _qwen35, QWEN35MOE, norm_offset=1.0, heads="partial", experts=True, finish=_tiled
    ),
    "gpt-oss": Architecture("GptOssForCausalLM", _gpt_oss, GPT_OSS, experts=True),
    "deepseek2": Architecture("DeepseekV2ForCausalLM", _deepseek2, DEEPSEEK2, heads="latent", experts=True),
    "kimi-linear": Architecture(
        "KimiLinearForCausalLM", _kimi_linear, KIMI_LINEAR, heads="latent", experts=True, varied=True
    ),
    "glm4moe": Architecture("Glm4MoeForCausalLM", _glm4moe, GLM4_MOE, heads="partial", experts=True),
    "lfm2": Architecture("Lfm2ForCausalLM", _lfm2, LFM2, varied=True),
    "lfm2moe": Architecture("Lfm2MoeForCausalLM", _lfm2, LFM2, experts=True, varied=True),
    "mistral3": Architecture("Ministral3ForCausalLM", _mistral3, interleaved=True),
    "gemma2": Architecture("Gemma2ForCausalLM", _gemma2, SANDWICH, norm_offset=1.0),
    "gemma3": Architecture("Gemma3ForCausalLM", _gemma3, SANDWICH, norm_offset=1.0),
    "gemma-embedding": Architecture("Gemma3ForCausalLM", _gemma_embedding, SANDWICH, norm_offset=1.0),
    "gemma4": Architecture("Gemma4ForCausalLM", _gemma4, GEMMA4, experts=True, varied=True),
    "phi3": Architecture("Phi3ForCausalLM", _phi3, FUSED, heads="partial"),
    "olmo2": Architecture("Olmo2ForCausalLM", _olmo2, SANDWICH),
    "seed_oss": Architecture("SeedOssForCausalLM", _seed_oss, GLM4_MOE),
    "ernie4_5": Architecture("Ernie4_5ForCausalLM", _ernie),
    "ernie4_5-moe": Architecture("Ernie4_5_MoeForCausalLM", _ernie, DEEPSEEK2, experts=True),
    "granite": Architecture("GraniteForCausalLM", _granite, interleaved=True, finish=_unrotated),
    "granitehybrid": Architecture(
        "GraniteMoeHybridForCausalLM",
        _granite_hybrid,
        GRANITE_HYBRID,
        interleaved=True,
        experts=True,
        varied=True,
        finish=_parted,
    ),
    "nemotron_h": Architecture(
        "NemotronHForCausalLM", _nemotron_h, NEMOTRON_H, interleaved=True, heads="partial", varied=True
    ),
    "nemotron_h_moe": Architecture(
        "NemotronHForCausalLM", _nemotron_h, NEMOTRON_H, interleaved=True, heads="partial", experts=True, varied=True
    ),
    "smollm3": Architecture("SmolLM3ForCausalLM", interleaved=True),
    "bert": Architecture("BertModel", _bert, BERT),
}
"""GGUF's name -> how it is read."""
