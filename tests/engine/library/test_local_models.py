"""What the list of this machine's models says of how each is packed, and of what it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import msgspec
import pytest

from engine.base.files import POOLING_FILE
from engine.library import bundled, curated, paths
from engine.library.local import REPORT, stored_models, with_purposes
from engine.library.paths import find_model
from engine.protocol import KnownModel, MakeReport, ModelQuality, StoredModel

PLAIN = {"dtype": "bfloat16", "vocab_size": 1000, "hidden_size": 64}


def listed(path: Path) -> StoredModel:
    (found,) = stored_models([KnownModel(name=path.name, path=str(path))], Path("/none"))
    return found


def folder(place: Path, config: Any, **others: Any) -> Path:
    place.mkdir()
    for name, value in {"config": config, **others}.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    return place


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.library.others.models_of_others", list)


@pytest.mark.parametrize(
    ("config", "others", "quantisation", "tables"),
    [
        (PLAIN, {}, "bfloat16", 1),
        ({**PLAIN, "tie_word_embeddings": False}, {}, "bfloat16", 2),
        ({"torch_dtype": "float16", "text_config": {"vocab_size": 1000, "hidden_size": 64}}, {}, "float16", 1),
        ({**PLAIN, "dtype": "float32"}, {}, "float32", 2),  # twice as wide
        ({**PLAIN, "quantization_config": {"quant_method": "awq"}}, {}, "awq", 1),
        (PLAIN, {"quantize_config": {"bits": 4}}, "gptq", 1),
        ({}, {}, "", 0),
        ([], {}, "", 0),
        ({**PLAIN, "text_config": [1]}, {}, "", 0),
        ({**PLAIN, "vocab_size": "many"}, {}, "", 0),
    ],
)
def test_how_it_is_packed(tmp_path, config, others, quantisation, tables):
    model = listed(folder(tmp_path / "model", config, **others))
    assert (model.quantisation, model.embedding_bytes) == (quantisation, tables * 1000 * 64 * 2)


def test_what_quantising_packs_is_the_layers_of_the_language_model(tmp_path):
    seeing = listed(Path(find_model("kvasir-seeing").path))
    with (Path(find_model("kvasir-seeing").path) / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    sizes = {name: each["data_offsets"][1] - each["data_offsets"][0] for name, each in header.items() if name[0] != "_"}
    tower = sum(size for name, size in sizes.items() if ".visual." in name)
    norms = sum(size for name, size in sizes.items() if "visual" not in name and len(header[name]["shape"]) == 1)
    assert seeing.packable_bytes == sum(sizes.values()) - tower - norms - seeing.embedding_bytes
    assert listed(Path(find_model("kvasir-guide").path)).packable_bytes == 0, "it is packed"
    broken = folder(tmp_path / "broken", PLAIN)
    (broken / "model.safetensors").write_bytes(b"\xff" * 100)
    assert (listed(broken).quantisation, listed(broken).packable_bytes) == ("bfloat16", 0)
    for offsets, shape in (([0, 1e300], [2, 2]), ([0.5, 9], [2, 2]), ([16, 0], [2, 2]), ([0, 4], "ab"), (None, [2, 2])):
        header = json.dumps({"model.layers.0.mlp.weight": {"shape": shape, "data_offsets": offsets}}).encode()
        (broken / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        assert listed(broken).packable_bytes == 0


def test_a_gguf_file_says_it_in_its_name(tmp_path):
    (tmp_path / "model-Q4_K_M.gguf").write_bytes(b"GGUF")
    assert listed(tmp_path / "model-Q4_K_M.gguf").quantisation == "Q4_K_M"


def test_what_it_was_made_of(tmp_path):
    quality = ModelQuality(bytes=1, perplexity=1.0, tokens_per_second=1.0)
    report = MakeReport(
        name="m", path="/elsewhere/m-Q4_0.gguf", source="big", to="gguf-q4_0", before=quality, after=quality, kl=0.0,
        same_top=1.0, tokens=1,
    )  # fmt: skip
    place = folder(tmp_path / "model", PLAIN)
    assert listed(place).made_of == ""
    (place / REPORT).write_bytes(b"no report")
    assert listed(place).made_of == ""
    (place / REPORT).write_bytes(msgspec.json.encode(report))
    assert (listed(place).made_of, listed(place).report) == ("big", report)
    for name, source in (("m-Q4_0.gguf", "big"), ("m-Q8_0.gguf", "")):  # it is about one file of a folder
        (place / name).write_bytes(b"GGUF")
        assert listed(place / name).made_of == source


def test_what_sees_is_told_by_its_tower(tmp_path):
    assert not listed(folder(tmp_path / "blind", PLAIN)).sees
    assert listed(folder(tmp_path / "sees", {**PLAIN, "vision_config": {"depth": 3}})).sees
    for name in ("model-Q4_K_M.gguf", "other.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert not listed(tmp_path / "model-Q4_K_M.gguf").sees
    (tmp_path / "mmproj-model-F16.gguf").write_bytes(b"GGUF")
    assert listed(tmp_path / "model-Q4_K_M.gguf").sees


def test_what_embeds_is_told_by_its_pooling_or_its_family(tmp_path):
    for name, config, embeds in (
        ("plain", PLAIN, False),
        ("bert", {**PLAIN, "architectures": ["BertModel"]}, True),
        ("ranks", {**PLAIN, "architectures": ["BertForSequenceClassification"]}, False),
        ("odd", {**PLAIN, "architectures": "BertModel"}, False),
    ):
        assert listed(folder(tmp_path / name, config)).embeds is embeds
        (tmp_path / name / POOLING_FILE).parent.mkdir()
        (tmp_path / name / POOLING_FILE).write_text("{}")
        assert listed(tmp_path / name).embeds is (name != "ranks")
    for pooling, embeds in ((None, False), (0, False), (1, True), (2, True), (3, True), (4, False)):
        writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "bert")
        writer.add_block_count(2)
        if pooling is not None:
            writer.add_pooling_type(gguf.PoolingType(pooling))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        assert listed(tmp_path / "model.gguf").embeds is embeds


def test_every_bundled_model_says_what_it_is_for(monkeypatch):
    known = [model for model in paths.known_models() if paths.bundled_folder() in Path(model.path).parents]
    recommended = curated.models(paths.models_file())
    found = with_purposes(stored_models(known, paths.bundled_folder()), recommended)
    assert {model.name for model in found} == set(bundled.ABOUT)
    assert all(model.about for model in found)
    assert [model.name for model in found if model.sees] == ["kvasir-seeing"]
    listed = StoredModel(name="x", path="/x", format="gguf", bytes=1, repository=recommended[0].repository)
    assert [model.about for model in with_purposes([listed], recommended)] == [recommended[0].about]
