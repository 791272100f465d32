"""Vision towers and how pictures are prepared for them, against transformers."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.compute.vision.interface import PictureError, Tower
from engine.config.raw import RawConfig
from engine.formats.open import open_checkpoint
from engine.formats.safetensors import TensorFiles
from engine.formats.vision import find_vision, load_tower
from tests.conformance.tensor_names import newer, older, rename
from tests.conformance.vision_models import CASES, CPU, SIZES, TOKENS, Case, picture, save
from tests.kit.examples import examples


def tower(folder: Path) -> Tower:
    opened = open_checkpoint(folder, need_tokenizer=False)
    assert opened.vision is not None, opened.notices
    return load_tower(opened.vision, TOKENS.get, CPU, torch.float32)


# --- Qwen ---------------------------------------------------------------------------------------------------------


# --- Gemma --------------------------------------------------------------------------------------------------------


# --- Mistral ------------------------------------------------------------------------------------------------------


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

    @examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
