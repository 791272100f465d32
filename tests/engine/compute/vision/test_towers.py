"""Towers by themselves: what they say of wrong configurations, what stands for a picture in a prompt, and its key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine.base.errors import CheckpointError
from engine.compute.vision.interface import PictureError
from engine.compute.vision.registry import read_tower
from tests.engine.compute.vision.tiny_towers import TOKENS, TOWERS, WIDTH, RandomWeights, described, tiny

Changed = dict[str, Any]


def image(width: int = 40, height: int = 24, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("name", list(TOWERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_picture_has_its_embeddings_whatever_others_are_shown(name: str, dtype: torch.dtype) -> None:
    tower = tiny(name, dtype=dtype)
    pictures = [tower.prepare(image(*size, seed)) for seed, size in enumerate([(40, 24), (30, 50), (40, 24)])]
    together = tower.forward(pictures)
    for shown, found in zip(pictures, together, strict=True):
        assert (tuple(found.shape), found.dtype) == ((shown.tokens, (1 + tower.deep) * WIDTH), dtype)
        assert found.isfinite().all()
        assert torch.equal(tower.forward([shown])[0], found)
    assert not torch.equal(together[0], together[2])
    assert tower.forward([]) == []


@pytest.mark.parametrize("name", list(TOWERS))
def test_the_layout_has_a_placeholder_for_each_embedding(name: str) -> None:
    tower = tiny(name)
    picture = tower.prepare(image())
    layout = tower.layout(picture)
    assert tower.marker in TOKENS
    assert layout.count(tower.placeholder) == picture.tokens == picture.grid[0] * picture.grid[1]
    others = [token for token in layout if token != tower.placeholder]
    rows = picture.grid[0]
    expected = {"Gemma3": [5, 6], "Gemma4": [5, 6], "Gemma4Unified": [5, 6], "Mistral3": [8] * (rows - 1) + [9]}
    assert others == expected.get(name, [])
    if name == "Mistral3":
        assert [index for index, token in enumerate(layout) if token != 7] == [
            (row + 1) * (picture.grid[1] + 1) - 1 for row in range(rows)
        ]


@pytest.mark.parametrize("name", list(TOWERS))
def test_the_same_picture_has_the_same_key_and_another_one_another(name: str) -> None:
    tower = tiny(name)
    first, again, other = tower.prepare(image()), tower.prepare(image()), tower.prepare(image(seed=1))
    assert first.key == again.key != other.key
    assert len(first.key) == 32
    assert torch.equal(first.pixels, again.pixels)
    brighter = read_tower(described(name, {}, {"image_mean": [0.1] * 3, "do_normalize": True}), weights())
    assert brighter.prepare(image()).key != first.key


@pytest.mark.parametrize("name", [name for name in TOWERS if name != "Gemma3"])
def test_a_picture_may_be_shown_in_fewer_tokens(name: str) -> None:
    stepped = name.startswith("Gemma4")
    tower = read_tower(described(name, {}, {"max_soft_tokens": 140}), weights()) if stepped else tiny(name)
    whole = tower.prepare(image(200, 150))
    most = 70 if stepped else 9
    less = tower.prepare(image(200, 150), most)
    assert 0 < less.tokens <= most < whole.tokens
    assert tower.prepare(image(200, 150), 100_000).key == whole.key
    assert tower.forward([less])[0].shape[0] == less.tokens


@pytest.mark.parametrize("name", list(TOWERS))
def test_bytes_are_counted(name: str) -> None:
    small, large = (tiny(name, dtype=dtype).storage_size() for dtype in (torch.bfloat16, torch.float32))
    assert 0.5 <= small / large < 0.55  # a few are always held in float32


@pytest.mark.parametrize("name", list(TOWERS))
@pytest.mark.parametrize("size", [(1, 1), (3, 190), (190, 3)])
def test_pictures_of_any_shape_are_shown(name: str, size: tuple[int, int]) -> None:
    tower = tiny(name)
    picture = tower.prepare(image(*size))
    assert picture.tokens > 0
    assert tower.forward([picture])[0].isfinite().all()


def test_a_picture_that_is_a_line_is_refused_where_the_model_takes_none() -> None:
    with pytest.raises(PictureError, match="201 x 1 pixels"):
        tiny("Qwen3_5").prepare(image(201, 1))


def weights() -> Any:
    return RandomWeights(torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("name", "vision", "processor", "said"),
    [
        ("Qwen3_5", {"depth": "many"}, {}, '"vision_config": "depth" is'),
        ("Qwen3_5", {"num_heads": 3}, {}, "does not divide into 3 heads"),
        ("Qwen3_5", {"num_position_embeddings": 17}, {}, '"num_position_embeddings" is 17, where a square'),
        ("Qwen3_5", {"out_hidden_size": 31}, {}, '"out_hidden_size" is 31, and the language model has 32'),
        ("Qwen3_5", {"hidden_act": "tanh"}, {}, "activation 'tanh'"),
        ("Qwen3_5", {"rope_parameters": {"rope_theta": -1}}, {}, '"rope_theta" is -1'),
        ("Qwen3_5", {}, {"patch_size": 14}, '"patch_size" is 14, and the vision tower has 4'),
        ("Qwen3_5", {}, {"image_mean": [0.5, 0.5]}, '"image_mean" is'),
        ("Qwen3_5", {}, {"image_std": [0.5, 0.5, 0]}, '"image_std" is'),
        ("Qwen3_5", {}, {"size": 4}, '"size" is not a JSON object'),
        ("Qwen3_5", {}, {"max_pixels": 1 << 40}, '"max_pixels" is'),
        ("Qwen3_5", {}, {"max_pixels": 100}, "at least 256 pixels and at most 100"),
        ("Qwen3_5", {}, {"do_resize": False}, '"do_resize" is false'),
        ("Qwen3_5", {}, {"rescale_factor": 1e300}, "numbers that are too large"),
        ("Qwen3_5", {}, {"resample": 0}, '"resample" is 0'),
        ("Qwen3VL", {"deepstack_visual_indexes": [2]}, {}, '"deepstack_visual_indexes" is not a list'),
        ("Qwen3VL", {"deepstack_visual_indexes": [1, 1]}, {}, "names a layer twice"),
        ("Qwen2_5_VL", {"window_size": 4}, {}, '"window_size" is less than one token'),
        ("Gemma3", {"image_size": 30}, {}, "do not divide into"),
        ("Gemma3", {}, {"do_pan_and_scan": True}, '"do_pan_and_scan" is true'),
        ("Gemma3", {}, {"size": {"height": 16, "width": 32}}, '"height" is 16, and the vision tower has 32'),
        ("Gemma4", {}, {"max_soft_tokens": 71}, '"max_soft_tokens" is 71'),
        ("Gemma4", {"position_embedding_size": 100}, {}, '"position_embedding_size" is 100'),
        ("Gemma4", {"num_key_value_heads": 3}, {}, "cannot share 3 key-value heads"),
        ("Mistral3", {"patch_size": 0}, {}, '"patch_size" is 0'),
        ("Mistral3", {}, {"size": {"longest_edge": 1 << 20}}, '"longest_edge" is'),
    ],
)
def test_a_wrong_value_is_named(name: str, vision: Changed, processor: Changed, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        read_tower(described(name, vision, processor), weights())


@pytest.mark.parametrize("name", list(TOWERS))
def test_a_tokenizer_without_the_tokens_of_pictures_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="The tokenizer lacks the token"):
        read_tower(described(name, {}, {}, {}.get), weights())
