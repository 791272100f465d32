"""Configurations of small towers, one of each kind, and weights for them that nobody trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.numerics import Numerics
from engine.compute.vision.interface import Tower
from engine.compute.vision.registry import read_tower
from engine.compute.vision.settings import TowerConfig
from engine.config.raw import RawConfig

WIDTH = 32
TOKENS = {"<|image_pad|>": 7, "<start_of_image>": 5, "<|image|>": 7, "[IMG]": 7, "[IMG_BREAK]": 8, "[IMG_END]": 9}
QWEN = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": WIDTH,
}
QWEN_PICTURES = {"size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}, "patch_size": 4, "merge_size": 2}
PLAIN = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4}
GEMMA4 = PLAIN | {"num_key_value_heads": 1, "head_dim": 16, "position_embedding_size": 420}
TOWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Qwen3_5": ({"vision_config": QWEN | {"num_position_embeddings": 16}, "image_token_id": 7}, QWEN_PICTURES),
    "Qwen3VL": (
        {"vision_config": QWEN | {"num_position_embeddings": 16, "deepstack_visual_indexes": [1]}, "image_token_id": 7},
        QWEN_PICTURES,
    ),
    "Qwen2_5_VL": (
        {"vision_config": QWEN | {"window_size": 16, "fullatt_block_indexes": [1]}, "image_token_id": 7},
        QWEN_PICTURES,
    ),
    "Gemma3": (
        {"vision_config": PLAIN | {"image_size": 32}, "mm_tokens_per_image": 16, "image_token_index": 7,
         "boi_token_index": 5, "eoi_token_index": 6},
        {"size": {"height": 32, "width": 32}},
    ),
    "Gemma4": (
        {"vision_config": GEMMA4, "text_config": {"use_bidirectional_attention": "vision"}, "image_token_id": 7,
         "boi_token_id": 5, "eoi_token_id": 6},
        {"patch_size": 4, "max_soft_tokens": 70},
    ),
    "Gemma4Unified": (
        {"vision_config": {"mm_embed_dim": 32, "patch_size": 4, "mm_posemb_size": 140}, "text_config": {},
         "image_token_id": 7, "boi_token_id": 5, "eoi_token_id": 6},
        {"patch_size": 4, "max_soft_tokens": 70},
    ),
    "Mistral3": (
        {"vision_config": PLAIN, "text_config": {}, "image_token_index": 7, "spatial_merge_size": 2},
        {"size": {"longest_edge": 64}},
    ),
}  # fmt: skip
"""By the architecture, without its end: config.json, and how pictures are prepared."""


class RandomWeights:
    """A weight source: all that is asked of it is there."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype, self.numerics = device, dtype, Numerics()
        self.bytes = 0

    def _made(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.rand(shape, dtype=dtype or self.dtype, device=self.device) * 0.2 - 0.1

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        return Dense(self._made(sum(sizes), in_features), self._made(sum(sizes)) if bias else None, self.numerics)

    def vector(self, name: str, size: int) -> Tensor:
        return self._made(size)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._made(*shape, dtype=torch.float32)


def described(
    name: str, vision: dict[str, Any], processor: dict[str, Any], token_id: Callable[[str], int | None] = TOKENS.get
) -> TowerConfig:
    """The configuration of a tower with other values of ``vision_config`` and of its processor."""
    values, pictures = TOWERS[name]
    values = values | {
        "architectures": [f"{name}ForConditionalGeneration"],
        "vision_config": values["vision_config"] | vision,
    }
    return TowerConfig(
        RawConfig(values, Path("config.json")), RawConfig(pictures | processor, Path("preprocessor_config.json")),
        WIDTH, token_id,
    )  # fmt: skip


def tiny(name: str, device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> Tower:
    """A tower of random weights."""
    torch.manual_seed(4)
    source = RandomWeights(device or torch.device("cpu"), dtype)
    return read_tower(described(name, {}, {}), source)  # type: ignore[arg-type]
