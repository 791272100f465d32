"""Models of transformers written to GGUF as llama.cpp's converter does it, and llama.cpp run on such files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
import transformers
from gguf_models import KIND, VOCABULARY, plain_tokenizer
from torch import Tensor

LAYERS = 3
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
PERMUTED = ("llama", "granite", "smollm3")
"""Where q and k are turned for a rotation of neighbours."""
Keys = dict[str, Any]


class Family(NamedTuple):
    """``keys(config)`` are what the converter writes for this architecture beside what it writes for all."""

    architecture: str
    model: str
    keys: Callable[[Any], Keys]

    def config(self, **options: Any) -> Any:
        name = "Gemma3Text" if self.model == "Gemma3" else self.model
        return getattr(transformers, f"{name}Config")(**(BASE | options), attn_implementation="eager")


def _theta(config: Any) -> float:
    ropes = config.rope_parameters
    return float(ropes.get("full_attention", ropes)["rope_theta"])


def _scaling(config: Any) -> Keys:
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    keys: Keys = {"rope.freq_base": _theta(config)}
    if rope["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    if rope["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return keys


def _heads(config: Any) -> Keys:
    return {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}


def _gemma2(config: Any) -> Keys:
    return _heads(config) | {
        "attn_logit_softcapping": config.attn_logit_softcapping,
        "final_logit_softcapping": config.final_logit_softcapping,
        "attention.sliding_window": config.sliding_window,
    }


def _gemma3(config: Any) -> Keys:
    keys = _heads(config) | _scaling(config)
    local = config.rope_parameters["sliding_attention"]["rope_theta"]
    keys |= {"rope.freq_base_swa": float(local)} if local != 10000 else {}
    if config.final_logit_softcapping:
        keys["final_logit_softcapping"] = config.final_logit_softcapping
    return keys | ({"attention.sliding_window": config.sliding_window} if config.sliding_window else {})


def _phi3(config: Any) -> Keys:
    rope = config.rope_parameters
    part = rope.get("partial_rotary_factor", 1.0)
    keys: Keys = {
        "rope.scaling.original_context_length": config.original_max_position_embeddings,
        "rope.dimension_count": int(part * config.hidden_size) // config.num_attention_heads,
        "rope.freq_base": _theta(config),
        "attention.sliding_window": config.sliding_window or 0,
    }
    if "long_factor" in rope:
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        factor = float(np.sqrt(1 + np.log(scale) / np.log(config.original_max_position_embeddings)))
        keys["rope.scaling.attn_factor"] = factor
    return keys


def _llama(config: Any) -> Keys:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return _scaling(config) | {"vocab_size": config.vocab_size, "rope.dimension_count": size}


def _granite(config: Any) -> Keys:
    return _llama(config) | {
        "attention.scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": config.logits_scaling,
    }


def _experts(config: Any) -> Keys:
    return {"expert_count": config.num_local_experts, "expert_used_count": config.num_experts_per_tok}


def _mixtral(config: Any) -> Keys:
    return _llama(config) | _experts(config)


def _qwen3moe(config: Any) -> Keys:
    size = {"expert_feed_forward_length": config.moe_intermediate_size}
    return _scaling(config) | _heads(config) | _experts(config) | size


def _deepseek2(config: Any) -> Keys:
    """With keys and values absorbed; older files have other values of some keys."""
    keys = _scaling(config) | {
        "vocab_size": config.vocab_size,
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "attention.value_length": config.kv_lora_rank,
        "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length_mla": config.v_head_dim,
        "rope.dimension_count": config.qk_rope_head_dim,
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_count": config.n_shared_experts,
        "expert_count": config.n_routed_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_weights_scale": float(config.routed_scaling_factor),
    }
    if config.n_group is not None:
        keys |= {"expert_group_count": config.n_group, "expert_group_used_count": config.topk_group}
    if config.q_lora_rank is not None:
        keys["attention.q_lora_rank"] = config.q_lora_rank
    if "mscale_all_dim" in config.rope_parameters:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * config.rope_parameters["mscale_all_dim"]
    return keys


def unabsorbed(config: Any) -> Keys:
    """As files of deepseek2 were before 2025-04."""
    return {
        "attention.head_count_kv": config.num_attention_heads,
        "attention.key_length": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length": config.v_head_dim,
        "attention.key_length_mla": None,
        "attention.value_length_mla": None,
    }


def _gpt_oss(config: Any) -> Keys:
    return (
        _scaling(config)
        | _heads(config)
        | _experts(config)
        | {
            "attention.sliding_window": config.sliding_window,
            "expert_feed_forward_length": config.intermediate_size,
        }
    )


FAMILIES = {
    family.architecture: family
    for family in (
        Family("gemma2", "Gemma2", _gemma2),
        Family("gemma3", "Gemma3", _gemma3),
        Family("phi3", "Phi3", _phi3),
        Family("olmo2", "Olmo2", _scaling),
        Family("granite", "Granite", _granite),
        Family("smollm3", "SmolLM3", _llama),
        Family("llama", "Mixtral", _mixtral),
        Family("qwen3moe", "Qwen3Moe", _qwen3moe),
        Family("gpt-oss", "GptOss", _gpt_oss),
        Family("deepseek2", "DeepseekV2", _deepseek2),
    )
}


def random_model(architecture: str, seed: int = 0, **options: Any) -> transformers.PreTrainedModel:
    """A model in float32 whose every parameter matters."""
    family = FAMILIES[architecture]
    model = getattr(transformers, f"{family.model}ForCausalLM")(family.config(**options)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                offset = 1.0 if architecture.startswith("gemma") else 0.0
                parameter.uniform_(0.5 - offset, 1.5 - offset, generator=generator)
            else:
                size = 1.5 if name.endswith("sinks") else 0.3 if name.endswith("bias") else 0.15
                parameter.normal_(0, size, generator=generator)
    return model


def permuted(rows: Tensor, heads: int) -> Tensor:
    """Rows of q or k from the rotation of halves to that of neighbours."""
    return rows.view(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def restored(rows: Tensor, heads: int) -> Tensor:
    return rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def convert(
    model: transformers.PreTrainedModel,
    file: Path,
    kind: Callable[[str], KIND] = lambda name: KIND.F32,
    keys: Keys | None = None,
    tokenizer: Callable[[gguf.GGUFWriter], None] = plain_tokenizer,
) -> None:
    """``kind`` of a tensor by its name in GGUF; the model's matrices become what the file holds. ``keys`` win."""
    config = model.config
    architecture = next(f.architecture for f in FAMILIES.values() if type(model).__name__ == f"{f.model}ForCausalLM")
    writer = gguf.GGUFWriter(str(file), architecture)
    common: Keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }
    for key, value in (common | FAMILIES[architecture].keys(config) | (keys or {})).items():
        if value is not None:
            add(writer, f"{architecture}.{key}", value)
    tokenizer(writer)
    absorbed = (keys or {}).get("attention.key_length_mla", 0) is not None
    for name, tensor in tensors(model, architecture, absorbed):
        write_tensor(writer, name, tensor, kind(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    else:
        adders = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32, bool: writer.add_bool}
        adders[type(value)](key, value)


class Stored(NamedTuple):
    """A tensor for the file, and how to put back into the model what the file then holds."""

    data: Tensor
    put_back: Callable[[Tensor], None]


def tensors(model: transformers.PreTrainedModel, architecture: str, absorbed: bool) -> list[tuple[str, Stored]]:
    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    found = []
    for name, parameter in model.named_parameters():
        if ".experts." in name:
            found += _stacked(name, parameter.detach(), transposed=architecture == "gpt-oss")
            continue
        if "kv_b_proj" in name and absorbed:
            found += _absorbed(model.config, name, parameter.detach())
            continue
        own = names.get_name(name, (".weight", ".bias"))
        assert own is not None, name
        own += "" if own.endswith((".weight", ".bias")) else ".weight"
        found.append((own, _turned(model, architecture, name, parameter.detach())))
    rope = model.config.rope_parameters
    for length in ("long", "short"):
        if f"{length}_factor" in rope:
            factors = torch.tensor(rope[f"{length}_factor"])
            found.append((f"rope_factors_{length}.weight", Stored(factors, lambda data: None)))
    return found


def _turned(model: transformers.PreTrainedModel, architecture: str, name: str, parameter: Tensor) -> Stored:
    heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
    module = name.split(".")[-2]
    if architecture in PERMUTED and module in heads:
        return Stored(
            permuted(parameter, heads[module]), lambda data: void(parameter.copy_(restored(data, heads[module])))
        )
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return Stored(parameter + 1, lambda data: void(parameter.copy_(data - 1)))
    return Stored(parameter, lambda data: void(parameter.copy_(data)))


def _stacked(name: str, parameter: Tensor, transposed: bool) -> list[tuple[str, Stored]]:
    """The experts' matrices and biases: gate and up apart, which gpt-oss has in turns, and its matrices lie across."""
    layer, module = name.split(".")[2], name.split(".")[-1]
    bias = module.endswith("_bias")
    rows = parameter.transpose(1, 2) if transposed and not bias else parameter
    parts = {"down": rows}
    if module.startswith("gate_up"):
        half = rows.shape[1] // 2
        gate, up = (rows[:, ::2], rows[:, 1::2]) if transposed else (rows[:, :half], rows[:, half:])
        parts = {"gate": gate, "up": up}
    return [
        (
            f"blk.{layer}.ffn_{part}_exps.{'bias' if bias else 'weight'}",
            Stored(view, lambda data, v=view: void(v.copy_(data))),
        )
        for part, view in parts.items()
    ]


def _absorbed(config: Any, name: str, parameter: Tensor) -> list[tuple[str, Stored]]:
    """Latent attention's projection up, that for keys across and apart from that for values."""
    heads = parameter.view(config.num_attention_heads, -1, config.kv_lora_rank)
    k_up, v_up = heads.split((config.qk_nope_head_dim, config.v_head_dim), 1)
    parts = {"k": k_up.transpose(1, 2), "v": v_up}
    layer = name.split(".")[2]
    return [
        (f"blk.{layer}.attn_{part}_b.weight", Stored(view, lambda data, v=view: void(v.copy_(data))))
        for part, view in parts.items()
    ]


def void(_: object) -> None: ...


def write_tensor(writer: gguf.GGUFWriter, name: str, stored: Stored, kind: KIND) -> None:
    """Vectors, and what ggml keeps in float32, stay so."""
    data = stored.data.contiguous().numpy()
    kind = KIND.F32 if data.ndim == 1 or name.endswith((".bias", "ffn_gate_inp.weight")) else kind
    packed = gguf.quants.quantize(data, kind)
    writer.add_tensor(name, packed, raw_dtype=kind)
    stored.put_back(torch.from_numpy(gguf.quants.dequantize(packed, kind)).view(stored.data.shape))


def by_llama_cpp(file: Path, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    """llama.cpp's logits, with keys and values in float32. It multiplies packed weights with rounded activations.

    Of LongRoPE's factors it takes those that its context asks for, here the short ones up to 256 tokens.
    """
    import llama_cpp

    model = llama_cpp.Llama(
        str(file), n_ctx=256, n_batch=256, logits_all=True, verbose=False, n_threads=1, n_threads_batch=1,
        type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False,
    )  # fmt: skip
    found = []
    for prompt in prompts:
        model.reset()
        model.eval(prompt)
        found.append(torch.from_numpy(np.array(model.scores[: len(prompt)])))
    model.close()
    return found
