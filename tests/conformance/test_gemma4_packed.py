"""Gemma 4 in the layouts of Google's quantisation-aware checkpoints: compressed-tensors, in groups of 32.

``-qat-w4a16-ct`` packs the linear layers in 4 bits and leaves some out by name; ``-mobile-ct`` mixes 2, 4 and 8 bits.
Packed by compressed-tensors' own compressor, compared with transformers on the weights that the codes stand for.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from engine.formats.open import open_checkpoint
from tests.conformance.assistant_models import DENSE, SMALL_E
from tests.conformance.compressed_packer import quantise
from tests.conformance.engine_support import Ours, relative

pytestmark = pytest.mark.usefixtures("one_thread")
VOCABULARY, TOLERANCE = 160, 2e-4
SHAPES = {"small": SMALL_E | {"hidden_size_per_layer_input": 32}, "dense": DENSE}
IGNORED = ("lm_head", "re:.*per_layer_model_projection", "re:.*layers\\.1\\.self_attn.*")
WAYS = {
    "w4a16": {"re:.*": 4},
    "mobile": {"re:.*(gate|up)_proj": 2, "re:.*self_attn.*": 8, "re:.*": 4},
}


def bits_of(name: str, way: str) -> int:
    """0 where a module is left out."""
    if any(re.match(rule[3:], name) if rule.startswith("re:") else rule == name for rule in IGNORED):
        return 0
    return next(bits for rule, bits in WAYS[way].items() if re.match(rule[3:], name))


@torch.no_grad()
def write(folder: Path, kind: str, way: str) -> Any:
    """The checkpoint; returns transformers' model of the weights that it stands for."""
    torch.manual_seed(5)
    words = {"vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY}
    config = transformers.Gemma4TextConfig(**SHAPES[kind], **words)
    model = transformers.Gemma4ForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        norm = "norm" in name.rsplit(".", 2)[-2]
        parameter.uniform_(0.7, 1.3) if norm else parameter.normal_(0, 0.1)
        parameter.copy_(parameter.bfloat16())
    tensors = {name: tensor.bfloat16() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    for name, module in model.named_modules():
        bits = bits_of(name, way) if isinstance(module, torch.nn.Linear) else 0
        if bits:
            parts, stands_for = quantise(module.weight, bits, 32, True, torch.bfloat16)
            module.weight.copy_(stands_for)
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{key}": value.contiguous() for key, value in parts.items()}
    save_file(tensors, folder / "model.safetensors")
    groups = {
        f"group_{number}": {
            "targets": [rule if way == "mobile" else "Linear"],
            "weights": {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32},
        }
        for number, (rule, bits) in enumerate(WAYS[way].items())
    }
    stated = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups,
              "ignore": list(IGNORED), "quantization_status": "compressed"}  # fmt: skip
    values = config.to_dict() | {"architectures": ["Gemma4ForCausalLM"], "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(values | {"quantization_config": stated}))
    return model


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("kind", list(SHAPES))
def test_logits(kind: str, way: str, tmp_path: Path) -> None:
    model = write(tmp_path, kind, way)
    ours = Ours(tmp_path)
    kinds = {name: linear.kind for name, linear in ours.model.linears()}
    assert kinds["layers.0.down"] == kinds["layers.2.output"].replace("int8", "int4") == "int4"
    assert kinds["layers.0.gate_up"] == ("int2" if way == "mobile" else "int4")
    assert kinds["layers.2.qkv"] == ("int8" if way == "mobile" else "int4")
    assert kinds["layers.1.qkv"] == kinds["layers.1.output"] == kinds["head"] == "dense"
    assert kinds.get("layer_inputs", "dense") == "dense"
    title = "2/4/8-bit" if way == "mobile" else "4-bit"
    assert title in open_checkpoint(tmp_path, need_tokenizer=False).quantisation_title
    texts = [[(11 * place + place * place) % VOCABULARY for place in range(length)] for length in (3, 45)]
    with torch.no_grad():
        expected = [model(torch.tensor([text])).logits[0] for text in texts]
    for found, wanted in zip(ours.logits(texts), expected, strict=True):
        assert relative(found, wanted) <= TOLERANCE
