"""Write the trained models as GPTQ-format 4-bit checkpoints in Hugging Face's layout.

Layout of one linear layer with K inputs, N outputs and groups of G (AutoGPTQ, format "gptq", version 1): qweight int32
[K / 8, N], packed along K, low nibble first; qzeros int32 [K / G, N / 8], packed along N, holding the zero point less
one; scales fp16 [K / G, N]; g_idx int32 [K]. The grid is the one the training ended on, so nothing is rounded anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import fields
from pathlib import Path

import torch
from model import DRAFT, TARGET, ZERO_POINT, Llama, Shape, grid
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

HERE = Path(__file__).resolve().parent
TARGET_FOLDER, DRAFT_FOLDER = HERE / "kvasir-guide", HERE / "kvasir-guide-draft"


def pack_nibbles(codes: Tensor) -> Tensor:
    """int32 [R / 8, C] of codes 0..15 [R, C]; eight consecutive rows in a word, the first in the low nibble."""
    shifts = torch.arange(0, 32, 4).view(1, 8, 1)
    words = (codes.long().view(-1, 8, codes.shape[1]) << shifts).sum(1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def unpack_nibbles(words: Tensor) -> Tensor:
    """Codes 0..15 [R * 8, C] of int32 words [R, C]; the inverse of ``pack_nibbles``."""
    shifts = torch.arange(0, 32, 4).view(1, 8, 1)
    return ((words.long().unsqueeze(1) >> shifts) & 15).reshape(-1, words.shape[1])


def pack_linear(weight: Tensor, group_size: int) -> dict[str, Tensor]:
    """The four tensors of one layer, from its weight [N, K]."""
    codes, scales = grid(weight, group_size)
    zeros = torch.full((scales.shape[0], scales.shape[1]), ZERO_POINT - 1)
    return {
        "qweight": pack_nibbles(codes.T.contiguous()),
        "qzeros": pack_nibbles(zeros).T.contiguous(),
        "scales": scales.T.contiguous().half(),
        "g_idx": (torch.arange(weight.shape[1]) // group_size).int(),
    }


def unpack_linear(tensors: dict[str, Tensor]) -> Tensor:
    """The weight [N, K] that the four tensors of one layer stand for."""
    codes = unpack_nibbles(tensors["qweight"])
    zeros = (unpack_nibbles(tensors["qzeros"].T.contiguous()) + 1 & 15).T
    groups = tensors["g_idx"].long()
    return ((codes - zeros[groups]) * tensors["scales"].float()[groups]).T.contiguous()


def config(shape: Shape, end_ids: list[int]) -> dict[str, object]:
    """config.json as transformers and AutoGPTQ write it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "rms_norm_eps": shape.rms_norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": end_ids,
        "pad_token_id": end_ids[-1],
        "torch_dtype": "float16",
        "quantization_config": {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": shape.group_size,
            "sym": True,
            "desc_act": False,
            "checkpoint_format": "gptq",
            "pack_dtype": "int32",
            "lm_head": False,
            "true_sequential": True,
            "damp_percent": 0.01,
            "quantizer": "quantisation-aware training, assets/demo/train.py",
        },
    }


def tensors_of(model: Llama) -> dict[str, Tensor]:
    """Every tensor of the checkpoint: linear layers packed, the embedding and the norms in fp16."""
    packed: dict[str, Tensor] = {}
    for name, layer in model.linears():
        for kind, tensor in pack_linear(layer.weight.detach().cpu(), layer.group_size).items():
            packed[f"{name}.{kind}"] = tensor
    linear = {f"{name}.weight" for name, _ in model.linears()}
    for name, tensor in model.state_dict().items():
        if name not in linear:
            packed[name] = tensor.detach().cpu().half()
    return packed


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def write(model: Llama, build: Path, folder: Path) -> None:
    """Write the whole checkpoint folder of ``model``; the tokenizer files come from ``build``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(build / name, folder / name)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end_ids = [tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")]
    weights = folder / "model.safetensors"
    save_file(tensors_of(model), weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    write_json(folder / "config.json", config(model.shape, end_ids))
    sampling = {
        "do_sample": True,
        "temperature": 0.2,
        "top_p": 0.95,
        "eos_token_id": end_ids,
        "pad_token_id": end_ids[-1],
    }
    write_json(folder / "generation_config.json", sampling)


def read(folder: Path) -> Llama:
    """The model as the files say it is: packed weights unpacked, everything in float32."""
    tensors = load_file(folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text("utf-8"))
    said |= said["quantization_config"]
    model = Llama(Shape(**{field.name: said[field.name] for field in fields(Shape)}))
    state = {
        name: tensor.float() for name, tensor in tensors.items() if name.endswith(("norm.weight", "tokens.weight"))
    }
    for name, _ in model.linears():
        kinds = ("qweight", "qzeros", "scales", "g_idx")
        state[f"{name}.weight"] = unpack_linear({kind: tensors[f"{name}.{kind}"] for kind in kinds})
    model.load_state_dict(state)
    return model.eval()


def trained(path: Path) -> tuple[Llama, Llama]:
    """Target and draft of a training checkpoint, with their full-precision weights."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    models = Llama(TARGET), Llama(DRAFT)
    for model, name in zip(models, ("target", "draft"), strict=True):
        model.load_state_dict(state[name])
        model.eval()
    return models


def main(arguments: list[str] | None = None) -> int:
    """Export a training checkpoint to the two model folders."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--build", type=Path, default=HERE / "build", help="tokenizer and checkpoint")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--draft", type=Path, default=DRAFT_FOLDER)
    options = parser.parse_args(arguments)
    target, draft = trained(options.build / options.checkpoint)
    write(target, options.build, options.target)
    write(draft, options.build, options.draft)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
