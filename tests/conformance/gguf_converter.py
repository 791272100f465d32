"""Models of transformers written to GGUF as llama.cpp's converter does it, and llama.cpp run on such files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from tests.conformance.gguf_families import OFFSET, Keys, family_of
from tests.conformance.gguf_models import KIND, plain_tokenizer

PERMUTED = ("llama", "granite", "smollm3", "mistral3", "granitehybrid", "nemotron_h", "nemotron_h_moe")
"""Where q and k are turned for a rotation of neighbours."""


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
    experts_apart: bool = False,
    more: Mapping[str, Tensor] | None = None,
) -> None:
    """``kind`` of a tensor by its name in GGUF; the model's matrices become what the file holds. ``keys`` win.

    ``experts_apart``: each a tensor of its own, as before 2024-04. ``more`` tensors follow, by their names in GGUF.
    """
    config = copy.deepcopy(model.config)
    config.allow_global_per_layer_attribute_access = True
    family = family_of(model)
    architecture = family.architecture
    writer = gguf.GGUFWriter(str(file), architecture)
    common: Keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": getattr(config, "intermediate_size", None),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", None),
    }
    for key, value in (common | family.keys(config) | (keys or {})).items():
        if value is not None:
            add(writer, f"{architecture}.{key}", value)
    tokenizer(writer)
    absorbed = (keys or {}).get("attention.key_length_mla", 0) is not None
    for name, tensor in tensors(model, architecture, absorbed):
        if experts_apart and "_exps." in name:
            for expert, view in enumerate(tensor.data):
                own = Stored(view, lambda data, v=view: void(v.copy_(data)))
                write_tensor(writer, name.replace("_exps.", f".{expert}."), own, kind(name))
        else:
            write_tensor(writer, name, tensor, kind(name))
    for name, data in (more or {}).items():
        write_tensor(writer, name, Stored(data, lambda data: None), kind(name))
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
    ends = ("layer_scalar", "e_score_correction_bias", "expert_bias")
    scalars = ((name, buffer) for name, buffer in model.named_buffers() if name.endswith(ends))
    for name, parameter in (*model.named_parameters(), *scalars):
        if ".experts." in name:
            found += _stacked(name, parameter.detach(), architecture)
            continue
        if name.endswith(("router.scale", "router.per_expert_scale")):
            local = "ffn_gate_inp" if name.endswith("router.scale") else "ffn_down_exps"
            found.append((f"blk.{name.split('.')[2]}.{local}.scale", _as_it_is(parameter.detach())))
            continue
        if "kv_b_proj" in name and absorbed:
            found += _absorbed(model.config, name, parameter.detach())
            continue
        if ".self_attn." in name and _of_kimi(name):
            found += _kimi_states(name, parameter.detach())
            continue
        if ".linear_attn." in name:
            found.append(_of_states(model.config, names, name, parameter.detach()))
            continue
        if ".mamba." in name or (".mixer." in name and _is_state(name)):
            found.append(_of_mamba(model.config, name, parameter.detach()))
            continue
        if ".shared_mlp." in name:
            found += _of_shared(model.config, name, parameter.detach())
            continue
        if ".conv.conv." in name:
            across = Stored(
                parameter.detach().squeeze(1), lambda data, p=parameter.detach(): void(p.copy_(data.unsqueeze(1)))
            )
            found.append((f"blk.{name.split('.')[2]}.shortconv.conv.weight", across))
            continue
        name = name.replace("mlp.gate.moe_statics", "mlp.moe_statics")
        name = name.replace("correction_bias", "correction.bias").replace("expert_bias", "expert_bias.bias")
        if architecture.startswith(("granitehybrid", "nemotron_h")):
            name = name.replace("sparse_moe.router.", "sparse_moe.router.layer.")
            name = name if "granite" in architecture else name.replace("model.", "backbone.")
        own = names.get_name(name, (".weight", ".bias"))
        assert own is not None, name
        own += "" if own.endswith((".weight", ".bias")) else ".weight"
        found.append((own, _turned(model, architecture, name, parameter.detach())))
    rope = getattr(model.config, "rope_parameters", {})
    if architecture == "gemma4":
        pairs, share = model.config.per_layer_config[1].head_dim // 2, rope["full_attention"]["partial_rotary_factor"]
        factors = torch.tensor([1.0 if pair < int(pairs * share) else 1e30 for pair in range(pairs)])
        found.append(("rope_freqs.weight", Stored(factors, lambda data: None)))
    for length in ("long", "short"):
        if f"{length}_factor" in rope:
            factors = torch.tensor(rope[f"{length}_factor"])
            found.append((f"rope_factors_{length}.weight", Stored(factors, lambda data: None)))
    return found


def _turned(model: transformers.PreTrainedModel, architecture: str, name: str, parameter: Tensor) -> Stored:
    module = name.split(".")[-2]
    if architecture in PERMUTED and module in ("q_proj", "k_proj"):
        heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
        return Stored(
            permuted(parameter, heads[module]), lambda data: void(parameter.copy_(restored(data, heads[module])))
        )
    if architecture.startswith(OFFSET) and name.endswith("norm.weight"):
        return Stored(parameter + 1, lambda data: void(parameter.copy_(data - 1)))
    return _as_it_is(parameter)


def _as_it_is(parameter: Tensor) -> Stored:
    return Stored(parameter, lambda data: void(parameter.copy_(data)))


def _of_states(config: Any, names: Any, name: str, parameter: Tensor) -> tuple[str, Stored]:
    """A tensor of a layer with states: value heads in the order in which ggml repeats key heads."""
    keys, each = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    module = name.split("linear_attn.")[1].split(".")[0]
    dim = 1 if module == "out_proj" else 0
    width = config.linear_value_head_dim if module in ("in_proj_qkv", "in_proj_z", "conv1d", "out_proj") else 1
    before = 2 * keys * config.linear_key_head_dim if module in ("in_proj_qkv", "conv1d") else 0

    def reordered(x: Tensor, first: int, second: int) -> Tensor:
        if module == "norm":
            return x
        head, rest = x.split((before, x.shape[dim] - before), dim)
        rest = rest.unflatten(dim, (first, second, width)).transpose(dim, dim + 1).flatten(dim, dim + 2)
        return torch.cat((head, rest), dim)

    data = -parameter.exp() if module == "A_log" else parameter.squeeze(1) if module == "conv1d" else parameter

    def put_back(stored: Tensor) -> None:
        own = reordered(stored, each, keys)
        own = own.neg().log() if module == "A_log" else own.unsqueeze(1) if module == "conv1d" else own
        parameter.copy_(own)

    named = names.get_name(name.replace(".dt_bias", ".dt_proj.bias"), (".weight", ".bias"))
    assert named is not None, name
    if module == "dt_bias":
        named += ".bias" * (not named.endswith(".bias"))
    elif module != "A_log" and not named.endswith(".weight"):
        named += ".weight"
    return named, Stored(reordered(data, keys, each), put_back)


KIMI = {"conv1d": "conv1d", "A_log": "a", "dt_bias": "dt.bias", "f_a_proj": "f_a", "f_b_proj": "f_b", "b_proj": "beta",
        "g_a_proj": "g_a", "g_b_proj": "g_b", "o_norm": "norm"}  # fmt: skip


def _of_kimi(name: str) -> bool:
    return name.split(".self_attn.")[1].removeprefix("forget_gate.").split(".")[0] in KIMI


def _kimi_states(name: str, parameter: Tensor) -> list[tuple[str, Stored]]:
    """A tensor of Kimi Delta Attention: convolutions apart, with dimensions of 1 around them."""
    layer, module = name.split(".")[2], name.split(".self_attn.")[1].removeprefix("forget_gate.").split(".")[0]
    prefix, end = f"blk.{layer}.ssm_{KIMI[module]}", ".weight" * name.endswith(".weight")
    if module == "A_log":
        return [(prefix, Stored(-parameter.exp(), lambda data: void(parameter.copy_(data.neg().log()))))]
    if module != "conv1d":
        return [(prefix + end, _as_it_is(parameter))]
    return [
        (f"{prefix}_{part}.weight", Stored(own[None], lambda data, own=own: void(own.copy_(data[0]))))
        for part, own in zip("qkv", parameter.transpose(0, 1).chunk(3, 1), strict=True)
    ]


MAMBA = {"in_proj": "in", "conv1d": "conv1d", "dt_bias": "dt.bias", "A_log": "a", "D": "d", "norm": "norm",
         "out_proj": "out"}  # fmt: skip


def _is_state(name: str) -> bool:
    return name.split(".mixer.")[1].split(".")[0] in MAMBA


def _of_mamba(config: Any, name: str, parameter: Tensor) -> tuple[str, Stored]:
    """A tensor of Mamba2: numbers of heads as a column, the norm with a row for each group."""
    _, _, layer, _, module, *kind = name.split(".")
    data = -parameter.exp() if module == "A_log" else parameter
    if module in ("A_log", "D"):
        data = data[:, None]
    elif module == "norm":
        data = data.view(getattr(config, "mamba_n_groups", 0) or config.n_groups, -1)
    elif module == "conv1d" and data.ndim == 3:
        data = data.squeeze(1)

    def put_back(stored: Tensor) -> None:
        own = stored.neg().log() if module == "A_log" else stored
        parameter.copy_(own.view(parameter.shape))

    return ".".join((f"blk.{layer}.ssm_{MAMBA[module]}", *kind)), Stored(data, put_back)


def _of_shared(config: Any, name: str, parameter: Tensor) -> list[tuple[str, Stored]]:
    """The MLP of Granite 4: gate and up apart."""
    layer, end = name.split(".")[2], "_shexp" if config.num_local_experts else ""
    views = {"down": parameter}
    if "input_linear" in name:
        views = dict(zip(("gate", "up"), parameter.chunk(2), strict=True))
    return [(f"blk.{layer}.ffn_{part}{end}.weight", _as_it_is(view)) for part, view in views.items()]


def _stacked(name: str, parameter: Tensor, architecture: str) -> list[tuple[str, Stored]]:
    """The experts' matrices and biases: gate and up apart but for Gemma 4; gpt-oss has them in turns, lying across."""
    layer, module = name.split(".")[2], name.split(".")[-1]
    transposed = architecture == "gpt-oss"
    if architecture == "gemma4":
        return [(f"blk.{layer}.ffn_{module.removesuffix('_proj')}_exps.weight", _as_it_is(parameter))]
    bias = module.endswith("_bias")
    rows = parameter.transpose(1, 2) if transposed and not bias else parameter
    parts = {module.split("_")[0]: rows}
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
    exact = (".bias", "ffn_gate_inp.weight", "conv.weight", "ssm_a", "ssm_d", "ssm_norm.weight")
    exact += tuple(f"conv1d{part}.weight" for part in ("", "_q", "_k", "_v"))
    kind = KIND.F32 if data.ndim == 1 or name.endswith(exact) else kind
    packed = gguf.quants.quantize(data, kind)
    writer.add_tensor(name, packed, raw_dtype=kind)
    stored.put_back(torch.from_numpy(gguf.quants.dequantize(packed, kind)).view(stored.data.shape))


def by_llama_cpp(file: Path, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    """llama.cpp's logits, with keys and values in float32. It multiplies packed weights with rounded activations.

    Of LongRoPE's factors it takes those that its context asks for, here the short ones up to 256 tokens.
    """
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama.cpp is installed for `kvasir bench` only")

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
