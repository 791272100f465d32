"""Tiny random models of every family that sees, and pictures for them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.compute.vision.interface import Picture
from tests.conformance.families import BASE, GEMMA, GEMMA4_MOE, GEMMA4_WIDE, QWEN3_5, QWEN3_5_MOE

CPU = torch.device("cpu")
TOKENS = {"<|image_pad|>": 7, "<start_of_image>": 5, "<|image|>": 7, "[IMG]": 7, "[IMG_BREAK]": 8, "[IMG_END]": 9}
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


QWEN3 = {"depth": 3, "hidden_size": 40, "intermediate_size": 52, "num_heads": 2, "patch_size": 6,
         "out_hidden_size": 48, "num_position_embeddings": 25}  # fmt: skip
QWEN2_5 = {"depth": 3, "hidden_size": 40, "intermediate_size": 52, "num_heads": 2, "patch_size": 4,
           "out_hidden_size": 48, "window_size": 24, "fullatt_block_indexes": [1]}  # fmt: skip
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


SIGLIP = {"hidden_size": 40, "intermediate_size": 52, "num_hidden_layers": 3, "num_attention_heads": 2,
          "image_size": 48, "patch_size": 6, "layer_norm_eps": 1e-5,
          "vision_use_head": False}  # fmt: skip
GEMMA4_VISION = {"hidden_size": 40, "intermediate_size": 52, "num_hidden_layers": 3, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 12, "position_embedding_size": 240, "patch_size": 4,
                 "rms_norm_eps": 1e-5}  # fmt: skip


def in_patches(pixels: Tensor, patch: int) -> Tensor:
    """``[3, height, width]`` -> ``[n, 3 * patch * patch]``, row by row."""
    channels, height, width = pixels.shape
    grid = pixels.view(channels, height // patch, patch, width // patch, patch)
    return grid.permute(1, 3, 0, 2, 4).reshape(-1, channels * patch * patch)


def gemma3() -> Case:
    def make() -> Any:
        text = transformers.Gemma3TextConfig(**(BASE | GEMMA | {"sliding_window_pattern": 2}))
        config = transformers.Gemma3Config(
            text_config=text, vision_config=SIGLIP, mm_tokens_per_image=16, image_token_index=7
        )
        return transformers.Gemma3ForConditionalGeneration(config)

    def inputs(processor: Any, image: Image.Image) -> dict[str, Any]:
        return {"pixel_values": processor(image, return_tensors="pt")["pixel_values"]}

    processor = Gemma3ImageProcessorPil(size={"height": 48, "width": 48})
    return Case(make, processor, inputs, lambda theirs, ours: (in_patches(theirs["pixel_values"][0], 6), ours.pixels))


def gemma4(**own: bool) -> Case:
    def make() -> Any:
        config = transformers.Gemma4Config(
            text_config=BASE | GEMMA4_MOE, vision_config=GEMMA4_VISION | own, audio_config=None, image_token_id=7
        )
        model = transformers.Gemma4ForConditionalGeneration(config)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if "std_" in name:
                    buffer.uniform_(0.5, 2)
                elif name.endswith("_min"):
                    buffer.fill_(-2.0)
                elif name.endswith("_max"):
                    buffer.fill_(1.5)
        return model

    def inputs(processor: Any, image: Image.Image) -> dict[str, Any]:
        found = processor(image, return_tensors="pt")
        return {name: found[name] for name in ("pixel_values", "image_position_ids")}

    def pixels(theirs: Any, ours: Picture) -> tuple[Tensor, Tensor]:
        return theirs["pixel_values"][0][: len(ours.pixels)], ours.pixels

    return Case(make, Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70), inputs, pixels)


UNIFIED_VISION = {"mm_embed_dim": 40, "output_proj_dims": 40, "patch_size": 4, "mm_posemb_size": 80}


def theirs_of_torchvision(name: str) -> Any:
    """A function of transformers' module for the pictures of Gemma 4 12B, which asks for torchvision: the function does
    not."""
    file = Path(transformers.__file__).parent / "models/gemma4_unified/image_processing_gemma4_unified.py"
    nodes = [node for node in ast.parse(file.read_text("utf-8")).body if getattr(node, "name", "") == name]
    found: dict[str, Any] = {"torch": torch, "math": math}
    exec(compile(ast.Module(nodes, []), str(file), "exec"), found)
    return found[name]


class UnifiedProcessor:
    """Patches as transformers prepares them by Pillow for Gemma 4, merged as it merges them for Gemma 4 12B."""

    def __init__(self) -> None:
        self.inner = Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70)
        self.merge, self.pad = map(theirs_of_torchvision, ("patches_merge", "pad_along_first_dim"))
        self.save_pretrained = self.inner.save_pretrained

    def __call__(self, images: Any, return_tensors: str) -> dict[str, Tensor]:
        found = self.inner(images, return_tensors=return_tensors)
        done = []
        for pixels, places in zip(found["pixel_values"], found["image_position_ids"], strict=True):
            real = (places[:, 0] >= 0).sum()
            pixels, places = self.merge(pixels[None, :real], places[None, :real], int(real) // 9)
            done.append(self.pad(pixels[0], places[0], 70))
        pixels, places = (torch.stack(part) for part in zip(*done, strict=True))
        return {"pixel_values": pixels, "image_position_ids": places}


def gemma4_unified() -> Case:
    def make() -> Any:
        text = BASE | {key: GEMMA4_WIDE[key] for key in GEMMA4_WIDE if "per_layer" not in key}
        config = transformers.Gemma4UnifiedConfig(
            text_config=text, vision_config=UNIFIED_VISION, audio_config=None, image_token_id=7
        )
        return transformers.Gemma4UnifiedForConditionalGeneration(config)

    def inputs(processor: Any, image: Image.Image) -> dict[str, Any]:
        return dict(processor(image, return_tensors="pt"))

    def pixels(theirs: Any, ours: Picture) -> tuple[Tensor, Tensor]:
        return theirs["pixel_values"][0][: len(ours.pixels)], ours.pixels

    return Case(make, UnifiedProcessor(), inputs, pixels)


PIXTRAL = {"hidden_size": 40, "intermediate_size": 52, "num_hidden_layers": 3, "num_attention_heads": 2,
           "image_size": 96, "patch_size": 6}  # fmt: skip


def mistral3(text: Any = transformers.MistralConfig, **own: Any) -> Case:
    def make() -> Any:
        vision = transformers.PixtralVisionConfig(**PIXTRAL)
        config = transformers.Mistral3Config(
            text_config=text(**(BASE | {"sliding_window": None})),
            vision_config=vision, image_token_index=7, spatial_merge_size=2, **own,
        )  # fmt: skip
        return transformers.Mistral3ForConditionalGeneration(config)

    def inputs(processor: Any, image: Image.Image) -> dict[str, Any]:
        found = processor(image, return_tensors="pt", patch_size={"height": 12, "width": 12})
        return {"pixel_values": found["pixel_values"], "image_sizes": found["image_sizes"]}

    def pixels(theirs: Any, ours: Picture) -> tuple[Tensor, Tensor]:
        rows, columns = ours.grid
        squares = in_patches(theirs["pixel_values"][0], 6).view(rows, 2, columns, 2, -1).transpose(1, 2)
        return squares.reshape(ours.pixels.shape), ours.pixels

    processor = PixtralImageProcessorPil(size={"longest_edge": 96}, patch_size={"height": 6, "width": 6})
    return Case(make, processor, inputs, pixels)


HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CASES = {
    "qwen3_5": qwen(
        transformers.Qwen3_5Config, transformers.Qwen3_5ForConditionalGeneration, QWEN3, QWEN3_5, 6, **HALF
    ),
    "gemma3": gemma3(),
    "gemma4": gemma4(),
    "gemma4_unified": gemma4_unified(),
    "gemma4_clipped": gemma4(use_clipped_linears=True, standardize=True),
    "qwen3_vl": qwen(
        transformers.Qwen3VLConfig,
        transformers.Qwen3VLForConditionalGeneration,
        QWEN3 | {"deepstack_visual_indexes": [0, 2]},
        {},
        6,
        **HALF,
    ),
    "qwen2_5_vl": qwen(transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration, QWEN2_5, {}, 4),
    "mistral3": mistral3(),
    "ministral3": mistral3(transformers.Ministral3Config, multimodal_projector_bias=True),
    "qwen3_5_moe": qwen(
        transformers.Qwen3_5MoeConfig, transformers.Qwen3_5MoeForConditionalGeneration, QWEN3, QWEN3_5_MOE, 6
    ),
}
