"""What else metadata of families in GGUF can say: keys that few files have, and what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import CheckpointError
from engine.config.model import ModelConfig
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours, relative
from tests.conformance.gguf_converter import by_llama_cpp, convert
from tests.conformance.gguf_families import OPTIONS, random_model
from tests.conformance.gguf_models import KIND, Shape, write

PROMPTS = [[5], list(range(3, 43))]


def config_of(architecture: str, file: Path, options: dict[str, Any] | None = None, **keys: Any) -> ModelConfig:
    """``keys`` have two underscores for a dot."""
    model = random_model(architecture, **(OPTIONS[architecture] | (options or {})))
    convert(model, file, keys={key.replace("__", "."): value for key, value in keys.items()})
    return open_checkpoint(file).config


def is_llama_cpp(file: Path, tolerance: float = 1e-3) -> None:
    torch.set_num_threads(1)
    for found, want in zip(Ours(file).logits(PROMPTS), by_llama_cpp(file, PROMPTS), strict=True):
        assert relative(found, want) <= tolerance


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        (2, (8, None, 8, None, 8, None, 8)),
        (1, (None,) * 7),
        (0, (8,) * 7),
        ([True, True, False, True, False, False, True], (8, 8, None, 8, None, None, 8)),
        (None, (8, 8, 8, 8, 8, None, 8)),
    ],
)
def test_which_layers_have_a_window(pattern: Any, windows: tuple[int | None, ...], tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    config = config_of("gemma3", file, attention__sliding_window_pattern=pattern)
    assert config.attention.windows == windows
    if pattern == 2:  # it ends the process at some of the others
        is_llama_cpp(file)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "gpt-oss"])
def test_without_a_window_or_the_usual_one(architecture: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    assert set(config_of(architecture, file, attention__sliding_window=0).attention.windows) == {None}
    usual = {4096, None} if architecture == "gemma2" else {None}
    assert set(config_of(architecture, file, attention__sliding_window=None).attention.windows) == usual


def test_a_granite_without_rotation(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    assert config_of("granite", file, rope__scaling__finetuned=True).positions.rotary == (True,) * 3
    assert config_of("granite", file, rope__scaling__finetuned=False).positions.rotary == (False,) * 3
    is_llama_cpp(file)


def test_a_granite_with_few_factors(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    config = config_of("granite", file, attention__scale=None, embedding_scale=None, residual_scale=None)
    assert (config.attention.scale, config.scales.embedding, config.scales.residual) == (0.25, 1.0, 1.0)
    is_llama_cpp(file)


def test_another_base_for_the_layers_with_a_window(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    config = config_of("gemma3", file, rope__freq_base_swa=77.0)
    assert config.positions.local_rope is not None
    assert (config.positions.rope.theta, config.positions.local_rope.theta) == (1000000.0, 77.0)
    is_llama_cpp(file)


def test_a_mixtral_with_a_window(tmp_path: Path) -> None:
    assert config_of("llama", tmp_path / "model.gguf", attention__sliding_window=8).attention.windows == (8,) * 3


def test_the_size_of_experts_may_stand_alone(tmp_path: Path) -> None:
    config = config_of("qwen3moe", tmp_path / "model.gguf", feed_forward_length=None)
    assert config.moe is not None
    assert config.moe.intermediate_size == 32


@pytest.mark.parametrize(("stated", "sections"), [([2, 1, 1, 0], (2, 1, 1)), ([0, 0, 0, 0], ()), (None, ())])
def test_rotation_of_three_axes(stated: Any, sections: tuple[int, ...], tmp_path: Path) -> None:
    rope = config_of("qwen35", tmp_path / "model.gguf", rope__dimension_sections=stated).positions.rope
    assert (rope.sections, rope.interleaved) == (sections, bool(sections))


def said(architecture: str, folder: Path, options: dict[str, Any] | None = None, **keys: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        config_of(architecture, folder / "model.gguf", options, **keys)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


REFUSED = [
    (
        "olmo2",
        {"feed_forward_length": 97},
        "ffn_gate.weight has the shape [96, 64] where the metadata implies [97, 64]",
    ),
    ("olmo2", {"attention__layer_norm_rms_epsilon": None}, 'layer_norm_rms_epsilon" is missing'),
    ("smollm3", {"block_count": 2}, "has 3 layers where its metadata says 2"),
    ("smollm3", {"block_count": 20_000}, "20,000 layers are absurd"),
    ("smollm3", {"expert_count": 4}, "mixture of experts"),
    ("granite", {"embedding_scale": -1.0}, "where a positive number is needed"),
    ("granite", {"rope__scaling__finetuned": 1}, "where true or false is needed"),
    ("gemma2", {"final_logit_softcapping": 0.0}, "where a positive number is needed"),
    ("gemma3", {"attention__sliding_window_pattern": [True, False]}, "does not say of each layer"),
    ("gemma3", {"rope__freq_base_swa": 1.0}, "where a number above 1 is needed"),
    ("gemma3", {"attention__value_length": 32}, "keys and values differ"),
    ("phi3", {"rope__dimension_count": 12}, "rope_factors_short.weight has the shape [8] in F32 where 6 numbers"),
    ("phi3", {"rope__dimension_count": 32}, "rope_factors_short.weight has the shape [8] in F32 where 16 numbers"),
    ("phi3", {"rope__scaling__original_context_length": None}, 'original_context_length" is missing'),
    ("phi3", {"rope__scaling__attn_factor": 0.0}, "where a positive number is needed"),
    ("llama", {"expert_count": 5}, "ffn_gate_inp.weight has the shape [6, 64] where the metadata implies [5, 64]"),
    ("llama", {"expert_count": 0}, "lack the tensor blk.0.ffn_gate.weight"),
    ("llama", {"expert_used_count": 7}, "each token is to choose 7 of 6 experts"),
    ("llama", {"expert_used_count": None}, 'expert_used_count" is missing'),
    ("llama", {"expert_count": 1 << 20}, "where a whole number from 1 to 4096 is needed"),
    ("qwen3moe", {"expert_feed_forward_length": None}, 'expert_feed_forward_length" is missing'),
    ("gpt-oss", {"expert_feed_forward_length": 64}, "ffn_gate_exps.weight has the shape [6, 96, 64]"),
    ("deepseek2", {"attention__kv_lora_rank": None}, 'kv_lora_rank" is missing'),
    ("deepseek2", {"attention__kv_lora_rank": 32}, "has the shape"),
    ("deepseek2", {"attention__value_length_mla": 16}, "blk.0.attn_v_b.weight has the shape [4, 32, 64]"),
    ("deepseek2", {"rope__dimension_count": 48}, '"qk_nope_head_dim" is 0'),
    ("deepseek2", {"expert_gating_func": 2}, "lack the tensor blk.1.exp_probs_b.bias"),
    ("deepseek2", {"expert_weights_norm": True}, "normalises its experts' shares"),
    ("deepseek2", {"expert_group_count": 3}, "cannot be chosen"),
    ("deepseek2", {"leading_dense_block_count": 0}, "lack the tensor blk.0.ffn_gate_inp.weight"),
]


@pytest.mark.parametrize(("architecture", "keys", "words"), REFUSED)
def test_refusals(architecture: str, keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in said(architecture, tmp_path, **keys)


def test_a_partial_rotation_that_is_not_one(tmp_path: Path) -> None:
    plain = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "original_max_position_embeddings": 256}
    assert "partial_rotary_factor" in said("phi3", tmp_path, plain, rope__dimension_count=32)
    assert "rotary embedding needs pairs" in said("phi3", tmp_path, plain, rope__dimension_count=3)
    for width in (2, 6, 14):
        config = config_of("phi3", tmp_path / "model.gguf", plain, rope__dimension_count=width)
        assert config.positions.rope.width(config.attention.head_dim) == width


def test_what_no_converter_writes_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(file, Shape("opt", {"": KIND.Q4_0}))
    with pytest.raises(CheckpointError, match=r"the architecture 'opt', and in GGUF Kvasir reads llama, .*, bert\."):
        open_checkpoint(file)
