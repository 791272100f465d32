"""Tiny models of packed experts: gpt-oss in MXFP4, and GPTQ's modules of each expert."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.conformance.gptq_packer import Packing, quantise

SHAPE = {"vocab_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256, "num_local_experts": 4, "num_experts_per_tok": 2}  # fmt: skip
GPT_OSS = SHAPE | {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32, "sliding_window": 8}


def packed(*shape: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random blocks, and exponents about those of weights near 0.2."""
    blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
    return blocks, torch.randint(120, 124, shape, generator=generator).to(torch.uint8)


@torch.no_grad()
def save_gpt_oss(folder: Path) -> transformers.PreTrainedModel:
    """Save a gpt-oss whose experts are packed, and return what transformers makes of that folder, in float32."""
    # Here, as it brings torch's compiler.
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(3)
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**GPT_OSS))
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.normal_(0, 1.0 if name.endswith("sinks") else 0.15)
    model.to(torch.bfloat16).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(8)
    hidden, inner, experts = GPT_OSS["hidden_size"], GPT_OSS["intermediate_size"], GPT_OSS["num_local_experts"]
    for layer in range(2):
        for name, shape in (("gate_up_proj", (2 * inner, hidden // 32)), ("down_proj", (hidden, inner // 32))):
            stem = f"model.layers.{layer}.mlp.experts.{name}"
            del tensors[stem]
            tensors[f"{stem}_blocks"], tensors[f"{stem}_scales"] = packed(experts, *shape, generator=generator)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    (folder / "config.json").write_text(json.dumps(config))
    expanded = transformers.Mxfp4Config(dequantize=True)
    kind = transformers.GptOssForCausalLM
    read = kind.from_pretrained(folder, quantization_config=expanded, attn_implementation="eager")
    read = read.float().eval()
    # The dequantised weights are exact in bfloat16; that they are those of the file shows that nothing was left out.
    stem = "model.layers.1.mlp.experts.down_proj"
    exact = convert_moe_packed_tensors(tensors[f"{stem}_blocks"], tensors[f"{stem}_scales"], dtype=torch.float32)
    assert torch.equal(read.model.layers[1].mlp.experts.down_proj, exact)
    return read


FAMILIES = {
    "Mixtral": (SHAPE | {"hidden_size": 64, "intermediate_size": 96}, "block_sparse_moe", ("w1", "w3", "w2")),
    "Qwen3Moe": (
        SHAPE | {"hidden_size": 64, "moe_intermediate_size": 32, "head_dim": 32, "mlp_only_layers": [0]},
        "mlp",
        ("gate_proj", "up_proj", "down_proj"),
    ),
}


@torch.no_grad()
def save_gptq(folder: Path, family: str, packing: Packing) -> transformers.PreTrainedModel:
    """Save a model whose experts alone are packed, and return transformers' with the weights that they stand for."""
    torch.manual_seed(1)
    options, block, names = FAMILIES[family]
    model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(**options)).eval()
    for parameter in model.parameters():
        parameter.uniform_(0.5, 1.5) if parameter.dim() == 1 else parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for layer, module in enumerate(model.model.layers):
        experts = getattr(module.mlp, "experts", None)
        for expert in range(0 if experts is None else SHAPE["num_local_experts"]):
            gate, up = experts.gate_up_proj[expert].chunk(2)
            for name, weight in zip(names, (gate, up, experts.down_proj[expert]), strict=True):
                stem = f"model.layers.{layer}.{block}.experts.{expert}.{name}"
                del tensors[f"{stem}.weight"]
                # GPTQ gives modules that read the same input one order.
                parts, stands_for = quantise(weight.numpy(), packing, np.random.default_rng(expert))
                tensors |= {f"{stem}.{key}": torch.from_numpy(part) for key, part in parts.items()}
                weight.copy_(torch.from_numpy(stands_for))
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": packing.act_order,
                                     "sym": packing.symmetric, "checkpoint_format": "gptq"}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return model
