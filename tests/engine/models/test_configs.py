"""What each family reads out of config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.checkpoints.config import RawConfig
from engine.checkpoints.errors import CheckpointError
from engine.models.base import ModelConfig
from engine.models.registry import FAMILIES, family

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
}


def read(architecture: str, **values: Any) -> ModelConfig:
    raw = RawConfig(BASE | {"architectures": [architecture]} | values, Path("config.json"))
    return family(architecture).read_config(raw)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_reads_the_plain_fields(architecture: str) -> None:
    config = read(architecture, num_key_value_heads=2, rms_norm_eps=1e-5)
    assert (config.num_heads, config.num_kv_heads, config.rms_norm_eps) == (4, 2, 1e-5)
    assert len(config.windows) == len(config.rotary) == 4
    assert config.head_dim == (128 if architecture.startswith("Qwen3") else 16)
    assert config.qk_norm == architecture.startswith("Qwen3")
    assert config.qkv_bias == architecture.startswith("Qwen2")
    assert config.tie_word_embeddings == architecture.startswith("SmolLM3")


def test_unstated_key_value_heads_are_the_heads() -> None:
    assert read("LlamaForCausalLM").num_kv_heads == 4


def test_mistral_windows() -> None:
    assert read("MistralForCausalLM", sliding_window=32).windows == (32,) * 4
    assert read("MistralForCausalLM", sliding_window=None).windows == (None,) * 4
    assert read("MistralForCausalLM").windows == (4096,) * 4


def test_qwen_windows() -> None:
    stated = {"sliding_window": 32, "max_window_layers": 3}
    assert read("Qwen2ForCausalLM", **stated).windows == (None,) * 4
    assert read("Qwen2ForCausalLM", use_sliding_window=True, **stated).windows == (None, None, None, 32)
    types = ["sliding_attention", "full_attention"] * 2
    assert read("Qwen2ForCausalLM", use_sliding_window=True, layer_types=types, **stated).windows == (32, None) * 2
    with pytest.raises(CheckpointError, match="linear_attention"):
        read("Qwen3ForCausalLM", layer_types=["linear_attention"] * 4)


def test_smollm3_layers_without_rotation() -> None:
    assert read("SmolLM3ForCausalLM").rotary == (True, True, True, False)
    assert read("SmolLM3ForCausalLM", no_rope_layers=[1, 0, 1, 0]).rotary == (True, False, True, False)
    with pytest.raises(CheckpointError, match="no_rope_layers"):
        read("SmolLM3ForCausalLM", no_rope_layers=[1])


def test_rope_from_either_place() -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
    new = read("LlamaForCausalLM", rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **llama3})
    old = read("LlamaForCausalLM", rope_theta=5e5, rope_scaling={"type": "llama3", **llama3})
    assert new.rope == old.rope
    assert (new.rope.theta, new.rope.kind, new.rope.factor) == (5e5, "llama3", 8.0)


def test_yarn_takes_its_factor_from_the_contexts() -> None:
    rope = read("Qwen2ForCausalLM", rope_scaling={"type": "yarn", "original_max_position_embeddings": 1024}).rope
    assert rope.factor == 4.0
    assert read("LlamaForCausalLM", rope_scaling=None).rope.kind == "default"
