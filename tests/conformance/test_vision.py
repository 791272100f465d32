"""Vision towers and how pictures are prepared for them, against transformers."""

from __future__ import annotations

import ast
import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.checkpoints.open import open_checkpoint
from engine.checkpoints.safetensors import TensorFiles
from engine.checkpoints.vision import find_vision, load_tower
from engine.model_config.raw import RawConfig
from engine.vision.interface import Picture, PictureError, Tower
from tests.conformance.test_logits import BASE, GEMMA, GEMMA4_MOE, GEMMA4_WIDE, QWEN3_5, QWEN3_5_MOE
from tests.conformance.test_nested import newer, older, rename

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


def tower(folder: Path) -> Tower:
    opened = open_checkpoint(folder, need_tokenizer=False)
    assert opened.vision is not None, opened.notices
    return load_tower(opened.vision, TOKENS.get, CPU, torch.float32)


# --- Qwen ---------------------------------------------------------------------------------------------------------

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


# --- Gemma --------------------------------------------------------------------------------------------------------

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


# --- Mistral ------------------------------------------------------------------------------------------------------

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
    _, _, ours, folder = saved
    vision = open_checkpoint(folder, need_tokenizer=False).vision
    assert vision is not None
    assert vision.resident_bytes(torch.float32) == ours.storage_size()
    # All that is in the file, in its dtype; and ones where a norm has no weight.
    assert 0 <= ours.storage_size() - vision.weight_bytes < 512


# --- How checkpoints hold them -------------------------------------------------------------------------------------


def int8(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """As bitsandbytes' LLM.int8 saves a layer."""
    largest = weight.abs().amax(1)
    codes = (weight / largest[:, None] * 127).round()
    parts = {"weight": codes.to(torch.int8), "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return parts, codes * largest[:, None] / 127


def fp8(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """As in a checkpoint in FP8 with one block to a layer."""
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale_inv": scale.view(1, 1)}, codes.float() * scale


@pytest.mark.parametrize(
    ("pack", "stated"),
    [
        (int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
        (fp8, {"quant_method": "fp8", "weight_block_size": [256, 256]}),
    ],
)
def test_linear_layers_of_a_tower_may_be_packed(pack: Any, stated: dict[str, Any], tmp_path: Path) -> None:
    case = CASES["qwen3_5"]
    model = save(case, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and ".blocks." in name:
            parts, stands_for = pack(module.weight.detach())
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{end}": part.contiguous() for end, part in parts.items()}
            module.weight.data.copy_(stands_for)
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": stated}))
    image, ours = picture(*SIZES[0]), tower(tmp_path)
    with torch.no_grad():
        theirs = model.get_image_features(**case.inputs(case.processor, image)).pooler_output[0]
    found = ours.forward([ours.prepare(image)])[0]
    torch.testing.assert_close(found, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


@pytest.mark.parametrize("names", [newer, older])
@pytest.mark.parametrize("name", ["qwen3_5", "gemma3", "mistral3"])
def test_older_and_newer_names_of_tensors_are_the_same_tower(name: str, names: Any, tmp_path: Path) -> None:
    save(CASES[name], tmp_path)
    before = tower(tmp_path)
    rename(tmp_path, names)
    after, image = tower(tmp_path), picture(*SIZES[0])
    assert torch.equal(*(each.forward([each.prepare(image)])[0] for each in (before, after)))


def test_a_model_whose_tower_cannot_be_used_serves_text_and_says_why(tmp_path: Path) -> None:
    save(CASES["qwen3_5"], tmp_path)

    def reason() -> str:
        opened = open_checkpoint(tmp_path, need_tokenizer=False)
        assert opened.vision is None
        (notice, *_) = opened.notices
        assert notice.startswith(f"{tmp_path.name} also understands pictures; Kvasir serves its text part, because ")
        assert notice.endswith(".")
        return notice

    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(open_checkpoint(tmp_path, need_tokenizer=False).notices) == 0
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["depth"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "lack the tensor visual.blocks.3" in reason()
    (tmp_path / "config.json").write_bytes(files[tmp_path / "config.json"])
    (tmp_path / "preprocessor_config.json").write_text("{")
    assert "not valid JSON" in reason()
    (tmp_path / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json, which says how pictures are prepared, is missing" in reason()
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if "visual" not in name}, tmp_path / "model.safetensors")
    assert "hold no vision tower" in reason()


def test_a_tower_that_kvasir_does_not_have_is_named(tmp_path: Path) -> None:
    save(CASES["qwen3_5"], tmp_path)
    config = open_checkpoint(tmp_path, need_tokenizer=False).config
    raw = RawConfig({"architectures": ["SomeForConditionalGeneration"], "vision_config": {}}, tmp_path)
    part, reason = find_vision(raw, tmp_path, TensorFiles.open(tmp_path), config)
    assert part is None
    assert reason == "Kvasir does not have the vision tower of SomeForConditionalGeneration"


def test_newer_files_have_the_processor_in_another_file(tmp_path: Path) -> None:
    """What transformers 5 writes with a whole processor; it holds before the older file."""
    save(CASES["qwen3_5"], tmp_path)
    file = tmp_path / "preprocessor_config.json"
    values = json.loads(file.read_text())
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": values | {"size": {
        "shortest_edge": 24 * 24, "longest_edge": 24 * 24}}}))  # fmt: skip
    assert tower(tmp_path).prepare(picture(64, 64)).tokens == 4
    file.unlink()
    assert tower(tmp_path).prepare(picture(64, 64)).tokens == 4


STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 1 << 33), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.integers(-1, 5), max_size=3), st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)  # fmt: skip


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl", "gemma3", "gemma4_clipped", "gemma4_unified", "mistral3"])
def test_strange_configurations_end_in_a_tower_or_a_reason(name: str, tmp_path: Path) -> None:
    save(CASES[name], tmp_path)
    opened = open_checkpoint(tmp_path, need_tokenizer=False)
    values = json.loads((tmp_path / "config.json").read_text())
    processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
    files = TensorFiles.open(tmp_path)

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def changed(data: st.DataObject) -> None:
        config = json.loads(json.dumps(values))
        pictures = dict(processor)
        for place in (config, config["vision_config"], config["text_config"], pictures):
            if data.draw(st.booleans()):
                place[data.draw(st.sampled_from([*place, "rope_parameters"]))] = data.draw(STRANGE)
        config["architectures"] = values["architectures"]
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(pictures))
        part, reason = find_vision(RawConfig(config, tmp_path / "config.json"), tmp_path, files, opened.config)
        assert (part is None) == bool(reason) or config.get("vision_config") is None
        if part is not None:
            shown = load_tower(part, TOKENS.get, CPU, torch.float32)
            with contextlib.suppress(PictureError):
                assert shown.forward([shown.prepare(picture(13, 11), 40)])[0].shape[0] > 0

    changed()
