"""Text models inside multimodal checkpoints, and names of older layouts, against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.base.errors import CheckpointError
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours, relative
from tests.conformance.families import (
    BASE,
    GEMMA,
    GEMMA4_MOE,
    QWEN3_5,
    QWEN3_5_MOE,
    TOLERANCE,
    Case,
    make,
    prompts,
    theirs,
)
from tests.conformance.tensor_names import newer, older, rename

VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 32, "patch_size": 16}  # fmt: skip


def gemma(folder: Path) -> transformers.PreTrainedModel:
    # (The conditional class of transformers leaves the cap of the logits away, which no file of Gemma 3 has.)
    own = {"sliding_window_pattern": 2, "final_logit_softcapping": None}
    text = transformers.Gemma3TextConfig(**(BASE | GEMMA | own))
    config = transformers.Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=1)
    return saved(transformers.Gemma3ForConditionalGeneration(config), folder)


def gemma4(folder: Path) -> transformers.PreTrainedModel:
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 2, "head_dim": 8, "position_embedding_size": 16}  # fmt: skip
    config = transformers.Gemma4Config(text_config=BASE | GEMMA4_MOE, vision_config=vision, audio_config=None)
    return saved(transformers.Gemma4ForConditionalGeneration(config), folder)


def qwen_moe(folder: Path) -> transformers.PreTrainedModel:
    """Its experts are stacked in the file."""
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
              "out_hidden_size": 48, "num_position_embeddings": 16}  # fmt: skip
    config = transformers.Qwen3_5MoeConfig(text_config=BASE | QWEN3_5_MOE, vision_config=vision)
    return saved(transformers.Qwen3_5MoeForConditionalGeneration(config), folder)


def mistral(folder: Path) -> transformers.PreTrainedModel:
    text = transformers.MistralConfig(**(BASE | {"sliding_window": None}))
    vision = transformers.PixtralVisionConfig(**VISION)
    config = transformers.Mistral3Config(text_config=text, vision_config=vision)
    return saved(transformers.Mistral3ForConditionalGeneration(config), folder)


def qwen(folder: Path) -> transformers.PreTrainedModel:
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
              "out_hidden_size": 48, "num_position_embeddings": 16}  # fmt: skip
    config = transformers.Qwen3_5Config(text_config=BASE | QWEN3_5, vision_config=vision)
    return saved(transformers.Qwen3_5ForConditionalGeneration(config), folder)


def qwen_vl(folder: Path) -> transformers.PreTrainedModel:
    """Its text part is rotated as if it had one axis."""
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
              "out_hidden_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 2, 2], "mrope_interleaved": True}
    config = transformers.Qwen3VLConfig(text_config=BASE | {"rope_parameters": rope}, vision_config=vision)
    return saved(transformers.Qwen3VLForConditionalGeneration(config), folder)


def qwen_vl_moe(folder: Path) -> transformers.PreTrainedModel:
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
              "out_hidden_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 2, 2], "mrope_interleaved": True}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "rope_parameters": rope}
    config = transformers.Qwen3VLMoeConfig(text_config=BASE | experts, vision_config=vision)
    model = saved(transformers.Qwen3VLMoeForConditionalGeneration(config), folder)
    file = folder / "model.safetensors"  # its experts lie the other way round in the files of the hub
    tensors = load_file(file)
    save_file({name: t.mT.contiguous() if ".experts." in name else t for name, t in tensors.items()}, file)
    return model


def qwen2_vl(folder: Path) -> transformers.PreTrainedModel:
    """With the configuration of the first files: all in one, and a name of its own for the rotation."""
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
              "out_hidden_size": 48}  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 2, 2]}
    config = transformers.Qwen2_5_VLConfig(text_config=BASE | {"rope_parameters": rope}, vision_config=vision)
    model = saved(transformers.Qwen2_5_VLForConditionalGeneration(config), folder)
    file = folder / "config.json"
    values = json.loads(file.read_text())
    text = values.pop("text_config")
    del text["rope_parameters"]
    older = {"rope_theta": 500.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}
    file.write_text(json.dumps(text | values | older))
    return model


def saved(model: Any, folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(0.5, 1.5) if name.endswith("norm.weight") else parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.mark.parametrize("names", [newer, older])
@pytest.mark.parametrize("model", [gemma, gemma4, mistral, qwen, qwen_moe, qwen_vl, qwen_vl_moe, qwen2_vl])
def test_the_text_part_has_the_logits_of_transformers(model: Any, names: Any, tmp_path: Path) -> None:
    reference = model(tmp_path)
    rename(tmp_path, names)
    text = prompts()[-1]
    assert relative(Ours(tmp_path).logits([text])[0], theirs(reference, text)) <= TOLERANCE
    assert "pictures" in open_checkpoint(tmp_path, need_tokenizer=False).notices[0]


def test_a_silent_gemma_3_file_has_the_defaults_of_its_family(tmp_path: Path) -> None:
    """As the files of the 4B model: only what differs from the defaults is written."""
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}  # fmt: skip
    expected = transformers.Gemma3TextConfig(**config["text_config"])  # type: ignore[arg-type]
    from engine.compute.models.families.gemma3 import read_config
    from engine.config.raw import RawConfig
    from engine.formats.quantised.nested import text_config

    read = read_config(text_config(RawConfig(config, tmp_path / "config.json")))
    heads = read.attention
    assert (heads.num_heads, heads.num_kv_heads, heads.head_dim, read.vocab_size, read.positions.max_position) == (
        expected.num_attention_heads, expected.num_key_value_heads, expected.head_dim, expected.vocab_size,
        expected.max_position_embeddings)  # fmt: skip
    assert heads.scale == expected.query_pre_attn_scalar**-0.5
    assert [window is not None for window in heads.windows] == [
        kind == "sliding_attention" for kind in expected.layer_types
    ]


def test_opts_first_files_lack_a_prefix(tmp_path: Path) -> None:
    reference = make(Case("opt", "OPT", {"ffn_dim": 96}), tmp_path)
    rename(tmp_path, lambda name: name.removeprefix("model."))
    text = prompts()[-1]
    assert relative(Ours(tmp_path).logits([text])[0], theirs(reference, text)) <= TOLERANCE


def test_one_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    make(Case("opt", "OPT", {"ffn_dim": 96}), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "model.decoder.final_layer_norm.weight"
    save_file(tensors | {name.removeprefix("model."): tensors[name].clone()}, file)
    with pytest.raises(CheckpointError, match="the same tensor"):
        open_checkpoint(tmp_path, need_tokenizer=False)


def test_a_text_config_that_is_none_is_refused(tmp_path: Path) -> None:
    gemma(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"text_config": [1]}))
    with pytest.raises(CheckpointError, match="text_config"):
        open_checkpoint(tmp_path, need_tokenizer=False)
