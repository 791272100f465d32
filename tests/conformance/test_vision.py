"""Vision towers and how pictures are prepared for them, against transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from test_logits import BASE, QWEN3_5, QWEN3_5_MOE
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.checkpoints.open import open_checkpoint
from engine.checkpoints.vision import load_tower
from engine.vision.interface import Picture, Tower

CPU = torch.device("cpu")
SIZES = ((37, 53), (120, 41), (64, 64), (9, 140))
"""Width and height."""


def picture(width: int, height: int) -> Image.Image:
    """Smooth enough that resizing it is no noise, and different everywhere."""
    rows, columns = np.mgrid[0:height, 0:width] / 17
    noise = np.random.default_rng(width * 1000 + height).random((height, width, 3)) * 60
    waves = np.stack([np.sin(rows + columns), np.cos(rows * 1.3), np.sin(columns * 0.7)], -1) * 90 + 95
    return Image.fromarray((waves + noise).clip(0, 255).astype(np.uint8))


class Case(NamedTuple):
    """``model`` makes a random one, ``processor`` prepares its pictures."""

    model: Callable[[], Any]
    processor: Any
    inputs: Callable[[Any, Image.Image], dict[str, Any]]
    pixels: Callable[[Any, Picture], tuple[Tensor, Tensor]]
    """What is compared of the two: theirs, and ours."""


def randomised(model: Any) -> Any:
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name and name.endswith("weight")
            parameter.uniform_(0.5, 1.5) if norm else parameter.normal_(0, 0.15)
    return model.eval()


def save(case: Case, folder: Path) -> Any:
    model = randomised(case.model())
    model.save_pretrained(folder)
    case.processor.save_pretrained(folder)
    return model


def tower(folder: Path) -> Tower:
    opened = open_checkpoint(folder, need_tokenizer=False)
    assert opened.vision is not None, opened.notices
    return load_tower(opened.vision, CPU, torch.float32)


# --- Qwen ---------------------------------------------------------------------------------------------------------

QWEN3 = {"depth": 3, "hidden_size": 40, "intermediate_size": 52, "num_heads": 2, "patch_size": 6,
         "out_hidden_size": 48, "num_position_embeddings": 25}  # fmt: skip
QWEN_SIZE = {"shortest_edge": 30 * 30, "longest_edge": 70 * 70}


def qwen_inputs(processor: Any, image: Image.Image) -> dict[str, Any]:
    return dict(processor(image, return_tensors="pt"))


def qwen_pixels(theirs: dict[str, Any], ours: Picture) -> tuple[Tensor, Tensor]:
    pixels = ours.pixels[:, :, None].expand(-1, -1, 2, -1)
    return theirs["pixel_values"], pixels.reshape(pixels.shape[0], -1)


def qwen(config: Any, model: Any, vision: dict[str, Any], text: dict[str, Any], patch: int, **own: Any) -> Case:
    def make() -> Any:
        return model(config(text_config=BASE | text, vision_config=vision, image_token_id=7))

    processor = Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2, size=QWEN_SIZE, **own)
    return Case(make, processor, qwen_inputs, qwen_pixels)


HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CASES = {
    "qwen3_5": qwen(
        transformers.Qwen3_5Config, transformers.Qwen3_5ForConditionalGeneration, QWEN3, QWEN3_5, 6, **HALF
    ),
    "qwen3_5_moe": qwen(
        transformers.Qwen3_5MoeConfig, transformers.Qwen3_5MoeForConditionalGeneration, QWEN3, QWEN3_5_MOE, 6
    ),
}


@pytest.fixture(params=list(CASES), scope="module")
def saved(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Any, Tower, Path]:
    folder, case = tmp_path_factory.mktemp(request.param), CASES[request.param]
    return case, save(case, folder), tower(folder), folder


def test_pictures_are_prepared_as_by_transformers(saved: tuple[Case, Any, Tower, Path]) -> None:
    case, _, ours, _ = saved
    for size in SIZES:
        image = picture(*size)
        theirs, found = case.pixels(case.inputs(case.processor, image), ours.prepare(image))
        assert theirs.shape == found.shape
        torch.testing.assert_close(found, theirs, rtol=0, atol=1e-6)


def test_embeddings_are_those_of_transformers(saved: tuple[Case, Any, Tower, Path]) -> None:
    case, model, ours, _ = saved
    images = [picture(*size) for size in SIZES]
    prepared = [ours.prepare(image) for image in images]
    for image, shown, found in zip(images, prepared, ours.forward(prepared), strict=True):
        with torch.no_grad():
            expected = model.get_image_features(**case.inputs(case.processor, image))
        embeddings = [part[0] if isinstance(part, list | tuple) else part for part in [expected.pooler_output]]
        embeddings += [part[0] for part in (getattr(expected, "deepstack_features", None) or [])]
        theirs = torch.cat([part.reshape(shown.tokens, -1) for part in embeddings], -1)
        assert shown.tokens == shown.grid[0] * shown.grid[1]
        torch.testing.assert_close(found, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_the_planned_size_is_that_of_the_tower(saved: tuple[Case, Any, Tower, Path]) -> None:
    _, model, ours, folder = saved
    vision = open_checkpoint(folder, need_tokenizer=False).vision
    assert vision is not None
    assert vision.resident_bytes(torch.float32) == ours.storage_size()
    assert vision.weight_bytes == ours.storage_size()  # all that is in the file, in its dtype
