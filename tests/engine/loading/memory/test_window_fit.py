"""What keys and values take, layer by layer, from configurations alone; and how memory is divided with windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cache.stores.kinds import KVKind
from engine.compute.models.arenas import new_store, window_of
from engine.compute.models.registry import family
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import state_bytes
from engine.loading.memory.estimate import MemoryPlan, OutOfMemory, kv_bytes_per_token, plan

WINDOWED = KVKind(windowed=True)
BF16 = torch.bfloat16
GEMMA_27B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "vocab_size": 262_208, "hidden_size": 5376, "intermediate_size": 21_504,
    "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
    "sliding_window": 1024, "sliding_window_pattern": 6, "query_pre_attn_scalar": 168, "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "max_position_embeddings": 131_072,
}  # fmt: skip
QWEN_27B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 248_320, "hidden_size": 5120, "intermediate_size": 17_408,
    "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48, "max_position_embeddings": 262_144,
}  # fmt: skip
DEEPSEEK_V3_1: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129_280, "hidden_size": 7168,
    "intermediate_size": 18_432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "max_position_embeddings": 163_840, "rope_theta": 10_000.0,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                     "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
}  # fmt: skip
TEXT = 32_768


def read(values: dict[str, Any]) -> ModelConfig:
    return family(values["architectures"][0]).read_config(RawConfig(values, Path("config.json")))


def bytes_of(config: ModelConfig, tokens: int) -> float:
    """Keys, values and state of one text, as the fit counts them."""
    window = window_of(config, WINDOWED)
    whole, rolling = (kv_bytes_per_token(config, BF16, WINDOWED, in_window) for in_window in (False, True))
    state = 0 if config.recurrent is None else state_bytes(config.recurrent, BF16)
    assert whole + rolling == kv_bytes_per_token(config, BF16, WINDOWED)
    return whole * tokens + rolling * min(tokens, window) + state


@pytest.mark.parametrize(
    ("values", "per_token", "text"),
    [
        # 10 layers see everything and 52 the last 1,024 tokens; 16 heads of 128, keys and values of two bytes.
        (GEMMA_27B, 62 * 2 * 16 * 128 * 2, (10 * TEXT + 52 * 1024) * 2 * 16 * 128 * 2),
        # Every fourth of 64 layers attends, 4 heads of 256; the others have 48 matrices of 128 x 128 in float32.
        (QWEN_27B, 16 * 2 * 4 * 256 * 2, TEXT * 16 * 2 * 4 * 256 * 2 + 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)),
        # A latent of 512 and a key of 64 in each layer, whatever the heads.
        (DEEPSEEK_V3_1, 61 * 576 * 2, TEXT * 61 * 576 * 2),
    ],
    ids=["Gemma 3 27B", "Qwen3.5 27B", "DeepSeek-V3.1"],
)
def test_of_large_models_from_their_configurations(values: dict[str, Any], per_token: int, text: int) -> None:
    config = read(values)
    assert kv_bytes_per_token(config, BF16) == pytest.approx(per_token, rel=0.05)
    assert bytes_of(config, TEXT) == pytest.approx(text, rel=0.05)


def divided(room: float, windowed: bool = True, context: int = 131_072) -> MemoryPlan:
    """Gemma 3 27B's cache in so many bytes."""
    config = read(GEMMA_27B)
    parts = [kv_bytes_per_token(config, BF16, WINDOWED, part) for part in ((False, True) if windowed else (None,))]
    window = {"window": 1024, "window_bytes": parts[1]} if windowed else {}
    return plan(
        weights=0, kv_bytes=parts[0], activations=0, context=context, free=int(room), memory=1.0, rows=2048, **window
    )  # type: ignore[arg-type]


def test_memory_is_divided_between_windows_and_the_other_layers() -> None:
    for gigabytes in (1, 2, 4, 8, 24, 64):
        made, plain = divided(gigabytes * 1e9), divided(gigabytes * 1e9, windowed=False)
        assert made.fit.kv <= made.fit.budget
        assert made.fit.kv == int(made.pages * 16 * 10 * 8192 + made.window_pages * 16 * 52 * 8192)
        assert made.window_pages >= 1 + 65 + 1 + 16, "an answer's window and rows always have room"
        assert made.context >= min(131_072, 2 * plain.context)
    assert divided(8e9).context > 4 * divided(8e9, windowed=False).context
    assert plain.window_pages == 0


def test_more_memory_than_texts_can_use_is_left_alone() -> None:
    """The other layers have eight contexts then, and windows those of 32 answers and a step's rows."""
    made = divided(500e9, context=8192)
    assert made.pages == 8 * 512 + 1
    assert made.window_pages == 1 + 32 * 65 + 128


def test_a_window_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OutOfMemory):
        divided(0.4e9)


def test_where_all_layers_have_a_window_pages_cost_nothing() -> None:
    made = plan(
        weights=0, kv_bytes=0, activations=0, context=32_768, free=10**9, memory=1.0, rows=2048, window=4096,
        window_bytes=131_072.0,
    )  # fmt: skip
    assert (made.pages, made.context) == (8 * 2048 + 1, 32_768)
    assert made.fit.kv == made.window_pages * 16 * 131_072 <= 10**9
    with pytest.raises(OutOfMemory):
        plan(
            weights=0, kv_bytes=0, activations=0, context=32_768, free=5 * 10**8, memory=1.0, rows=2048, window=4096,
            window_bytes=131_072.0,
        )  # fmt: skip


TINY = GEMMA_27B | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 50, "sliding_window": 40}  # fmt: skip


@pytest.mark.parametrize("name", ["16bit", "int8", "int4", "kivi"])
def test_what_is_planned_is_allocated(name: str) -> None:
    config, kind = read(TINY), KVKind(name, windowed=True)
    whole, rolling = (kv_bytes_per_token(config, BF16, kind, part) for part in (False, True))
    recent_bytes, free = kv_bytes_per_token(config, BF16), 3_000_000 if kind.residual else 1_000_000
    made = plan(
        weights=0, kv_bytes=whole, activations=0, context=1024, free=free, memory=1.0, rows=64, window=40,
        window_bytes=rolling, residual=kind.residual, recent_bytes=recent_bytes,
    )  # fmt: skip
    recent = made.recent_pages or None
    store = new_store(config, made.pages, BF16, kind=kind, recent_pages=recent, window_pages=made.window_pages)
    assert store.storage_size() == made.fit.kv
    assert made.window_pages < made.pages


def test_which_layers_keep_a_window() -> None:
    config = read(TINY)
    assert config.arena_windows == (40, 40, 40, 40, 40, None)
    assert window_of(config, WINDOWED) == 40
    assert window_of(config, KVKind()) == window_of(config, KVKind("kivi")) == 0
    assert window_of(read(QWEN_27B), WINDOWED) == window_of(read(DEEPSEEK_V3_1), WINDOWED) == 0
