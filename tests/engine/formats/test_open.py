"""Opening checkpoints: what is wrong is said in one sentence that names it, before anything large is read."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.base.errors import CheckpointError
from engine.compute.sampling.params import SamplingParams, resolve
from engine.formats.open import open_checkpoint
from engine.protocol import Sampling
from tests.engine.formats.sound_folders import CONFIG, compressed, refusal, tensors


def configure(folder: Path, **values: Any) -> None:
    config = {key: value for key, value in (CONFIG | values).items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    held = tensors()
    change(held)
    save_file(held, folder / "model.safetensors")


def test_a_sound_checkpoint_opens(folder: Path) -> None:
    opened = open_checkpoint(folder)
    assert opened.parameters == sum(tensor.numel() for tensor in tensors().values())
    assert opened.weight_bytes == 4 * opened.parameters
    assert opened.quantisation_title == "fp32"
    assert opened.config.attention.head_dim == 8


def test_missing_things(folder: Path) -> None:
    assert "There is no model at" in refusal(folder / "nowhere")
    assert "is a file" in refusal(folder / "config.json")
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer.json" in refusal(folder)
    open_checkpoint(folder, need_tokenizer=False)
    (folder / "model.safetensors").unlink()
    assert "holds no weights" in refusal(folder)
    (folder / "config.json").unlink()
    assert "no config.json" in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_refused(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    assert "pickled" in refusal(folder)


def test_gguf_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.gguf")
    assert "GGUF" in refusal(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": ' + "[" * 100_000, "\udcff"])
def test_unreadable_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "config.json" in refusal(folder)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, ["GPT2LMHeadModel", "Llama", "Qwen3"]),
        ({"architectures": []}, ["architecture"]),
        ({"hidden_size": "absent"}, ['"hidden_size" is missing']),
        ({"hidden_size": -4}, ['"hidden_size" is -4']),
        ({"hidden_size": "32"}, ["'32'"]),
        ({"vocab_size": True}, ["True"]),
        ({"num_key_value_heads": 3}, ["4 attention heads", "3 key-value heads"]),
        ({"hidden_act": "gelu"}, ["gelu"]),
        ({"dtype": "float8"}, ["float8"]),
        ({"rope_theta": "ten"}, ["rope_theta", "ten"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["'dynamic'", "yarn"]),
        ({"rope_parameters": {"rope_type": "longrope"}}, ["'longrope'"]),
        ({"rope_scaling": {"type": "linear"}}, ["factor"]),
        ({"rope_scaling": 4}, ["rope"]),
        ({"partial_rotary_factor": 0.5}, ["part of each head"]),
        ({"rms_norm_eps": "tiny"}, ["rms_norm_eps"]),
        ({"attention_bias": 1}, ["attention_bias"]),
    ],
)
def test_configurations_that_cannot_be(folder: Path, values: dict[str, Any], names: list[str]) -> None:
    configure(folder, **values)
    text = refusal(folder)
    assert all(name in text for name in names), text


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"hidden_size": 64, "head_dim": 8}, ["model.embed_tokens.weight", "[40, 32]", "[40, 64]"]),
        ({"vocab_size": 50}, ["model.embed_tokens.weight", "[40, 32]", "[50, 32]"]),
        ({"num_key_value_heads": 4}, ["k_proj.weight", "[16, 32]", "[32, 32]"]),
        ({"intermediate_size": 72}, ["gate_proj.weight", "[64, 32]", "[72, 32]"]),
        ({"num_hidden_layers": 3}, ["lack", "model.layers.2."]),
        ({"num_hidden_layers": 1}, ["2 layers", "says 1"]),
        ({"attention_bias": True}, ["lack", "q_proj.bias"]),
        ({"architectures": ["Qwen3ForCausalLM"], "head_dim": 8}, ["lack", "q_norm.weight"]),
    ],
)
def test_configurations_that_contradict_the_tensors(folder: Path, values: dict[str, Any], names: list[str]) -> None:
    configure(folder, **values)
    text = refusal(folder)
    assert all(name in text for name in names), text


def test_missing_and_odd_tensors(folder: Path) -> None:
    rewrite(folder, lambda held: held.pop("lm_head.weight"))
    assert "lm_head.weight" in refusal(folder)
    configure(folder, tie_word_embeddings=True)
    open_checkpoint(folder)
    configure(folder)
    rewrite(folder, lambda held: held.update({"model.norm.weight": torch.ones(32, dtype=torch.int32)}))
    assert "model.norm.weight is stored as int32" in refusal(folder)
    rewrite(folder, lambda held: held.update({"lm_head.weight": torch.ones(40, 32).to(torch.float8_e4m3fn)}))
    assert "float8_e4m3fn" in refusal(folder)
    rewrite(folder, lambda held: held.update({"lm_head.qweight": held.pop("lm_head.weight").int()}))
    assert "no quantization_config" in refusal(folder)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"quant_method": "hqq", "bits": 4}, ["'hqq'", "AWQ"]),
        ({"quant_method": ["gptq"], "bits": 4}, ["['gptq']"]),
        ({"bits": 4}, ["None"]),
        ({"quant_method": "gptq", "bits": 5}, ["5 bits", "2, 3, 4 and 8"]),
        ({"quant_method": "gptq", "bits": "4"}, ["'4'"]),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, ["group_size"]),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, ["'marlin'"]),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": {"a": 1}}, ["{'a': 1}"]),
        ({"quant_method": "gptq", "bits": 4, "pack_dtype": "int16"}, ["int16"]),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {".*down": {"bits": 7}}}, ["7 bits"]),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {str(i): {"group_size": i} for i in range(1, 99)}}, ["98"]),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, ["AWQ", "'gemv'", "gemm"]),
        ({"quant_method": "awq", "bits": 4, "version": "gemv_fast"}, ["'gemv_fast'"]),
        ({"quant_method": "awq", "bits": 4, "version": 7}, ["7"]),
        ({"quant_method": "awq", "bits": 8}, ["8 bits"]),
        ({"quant_method": "awq"}, ['"w_bit" is missing']),
        ({"quant_method": "awq", "bits": 4, "group_size": 0}, ["group_size"]),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:exl2"}, ["'auto_round:exl2'"]),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"}, ["AutoRound", "'mx_fp'"]),
        ({"quant_method": "auto-round", "bits": 6}, ["6 bits"]),
        ({"quant_method": "auto-round", "bits": 4, "extra_config": {"a": {"bits": 5}}}, ["5 bits"]),
        (
            {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "extra_config": {"a": {"bits": 8}}},
            ["several kinds"],
        ),
        ({"quant_method": "bitsandbytes"}, ["4 or 8 bits"]),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True}, ["4 or 8 bits"]),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "af4"}, ["'af4'"]),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": ["nf4"]}, ["['nf4']"]),
        ({"quant_method": "compressed-tensors"}, ["config_groups"]),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, ["config_groups"]),
        ({"quant_method": "compressed-tensors", "config_groups": {"W4A16": ["Linear"]}}, ["config_groups"]),
        (compressed(format="mxfp8-quantized"), ["'mxfp8-quantized'", "compressed-tensors"]),
        (compressed(format=["pack-quantized"]), ["['pack-quantized']", "compressed-tensors"]),
        (compressed(sparsity_config={"format": "sparse-24-bitmask"}), ["sparse-24-bitmask"]),
        (compressed({"input_activations": {"num_bits": 8}}), ["activations"]),
        (compressed({"weights": None}), ["weights"]),
        (compressed({"weights": {"num_bits": 4, "type": "float"}}), ["4-bit", "'float'"]),
        (compressed({"weights": {"num_bits": 9}}), ["9-bit"]),
        (compressed({"weights": {"num_bits": 4, "strategy": "block"}}), ["'block'"]),
        (compressed({"weights": {"num_bits": 4, "strategy": {}, "group_size": "x"}}), ["'x'"]),
        (compressed({"weights": {"num_bits": 4, "strategy": "group", "group_size": 0}}), ["group_size"]),
    ],
)
def test_packings_that_are_not_read(folder: Path, values: dict[str, Any], names: list[str]) -> None:
    configure(folder, quantization_config=values)
    text = refusal(folder)
    assert all(name in text for name in names), text


def _header(file: Path) -> tuple[dict[str, Any], bytes]:
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _write(file: Path, header: Any, data: bytes) -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def test_damaged_files(folder: Path) -> None:
    file = folder / "model.safetensors"
    header, data = _header(file)
    sound = file.read_bytes()
    for cut in (0, 5, 8, 200, len(sound) - 1, len(sound) - 4000):
        file.write_bytes(sound[:cut])
        assert "model.safetensors" in refusal(folder)
    file.write_bytes(sound[:-4])
    assert f"{len(sound):,}" in refusal(folder)
    file.write_bytes(b"\xff" * 8 + sound[8:])
    assert "header length" in refusal(folder)
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    assert "git lfs pull" in refusal(folder)
    _write(file, b"{not json", data)
    assert "not valid JSON" in refusal(folder)
    _write(file, b"[" * 50_000, data)
    assert "not valid JSON" in refusal(folder)
    _write(file, [1, 2], data)
    assert "not a JSON object" in refusal(folder)
    name = "model.norm.weight"
    for change, said in [
        ({"dtype": "Q7"}, "'Q7'"),
        ({"shape": [33]}, "[33]"),
        ({"shape": [-32]}, "whole numbers"),
        ({"shape": [32.0]}, "whole numbers"),
        ({"data_offsets": [0, 1 << 60]}, "offsets span"),
        ({"data_offsets": [1 << 60, (1 << 60) + 128]}, "truncated"),
        ({"data_offsets": [128, 0]}, "offsets span"),
        ({"data_offsets": [0]}, "incomplete"),
        ({"shape": None}, "incomplete"),
    ]:
        _write(file, header | {name: header[name] | change}, data)
        text = refusal(folder)
        assert name in text or "truncated" in text
        assert said in text, text


def test_every_byte_of_the_header_may_be_wrong(folder: Path) -> None:
    """Flipping bytes gives a refusal or another sound checkpoint, never another exception."""
    file = folder / "model.safetensors"
    sound = file.read_bytes()
    (length,) = struct.unpack("<Q", sound[:8])
    refused = 0
    for place in range(0, 8 + length, 7):
        file.write_bytes(sound[:place] + bytes([sound[place] ^ 0x15]) + sound[place + 1 :])
        try:
            open_checkpoint(folder)
        except CheckpointError:
            refused += 1
    assert refused > 100


def test_shards(folder: Path) -> None:
    held = tensors()
    names = sorted(held)
    table = {}
    for index, part in enumerate((names[:9], names[9:])):
        save_file({name: held[name] for name in part}, folder / f"model-{index}.safetensors")
        table |= dict.fromkeys(part, f"model-{index}.safetensors")
    (folder / "model.safetensors").unlink()
    assert "no index" in refusal(folder)
    index_file = folder / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"weight_map": table}))
    open_checkpoint(folder)
    for name in ("../model-0.safetensors", "/etc/passwd", "..", ""):
        index_file.write_text(json.dumps({"weight_map": table | {"model.norm.weight": name}}))
        assert "not a file next to it" in refusal(folder)
    index_file.write_text(json.dumps({"weight_map": [1]}))
    assert "weight_map" in refusal(folder)
    index_file.write_text(json.dumps({"weight_map": table}))
    (folder / "model-1.safetensors").unlink()
    assert "lacks model-1.safetensors" in refusal(folder)


def test_generation_defaults(folder: Path) -> None:
    silent = open_checkpoint(folder).generation_config
    assert silent.eos_ids == []
    assert (silent.sampling.temperature, silent.sampling.top_p, silent.sampling.top_k) == (1.0, 1.0, 0)
    file = folder / "generation_config.json"
    file.write_text(
        json.dumps({"eos_token_id": [7, 9, 7], "bos_token_id": 1, "temperature": 0.6, "top_p": 0.9, "top_k": 20})
    )
    stated = open_checkpoint(folder).generation_config
    assert stated.eos_ids == [7, 9]
    assert stated.bos_id == 1
    assert (stated.sampling.temperature, stated.sampling.top_p, stated.sampling.top_k) == (0.6, 0.9, 20)
    file.write_text(json.dumps({"do_sample": False, "temperature": 0.6}))
    assert open_checkpoint(folder).generation_config.sampling.temperature == 0.0
    file.write_text("{broken")
    configure(folder, eos_token_id=5)
    broken = open_checkpoint(folder)
    assert broken.generation_config.eos_ids == [5]
    assert broken.notices == (
        f"The model's own sampling settings are left out. {file} is not valid JSON (line 1, column 2). "
        "Download the model again, or repair the file.",
    )


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("top_k", "-3", "-3"),
        ("top_k", "2.5", "2.5"),
        ("top_p", "1e400", "inf"),
        ("top_p", "NaN", "nan"),
        ("temperature", '"hot"', "'hot'"),
        ("temperature", "true", "True"),
        ("temperature", "1" + "0" * 400, "1" + "0" * 39),
        ("repetition_penalty", "0", "0"),
        ("min_p", "[]", "[]"),
    ],
)
def test_a_sampling_default_that_cannot_be_is_left_out(folder: Path, name: str, value: str, shown: str) -> None:
    (folder / "generation_config.json").write_text(f'{{"{name}": {value}}}')
    opened = open_checkpoint(folder)
    neutral = getattr(SamplingParams(seed=0), name)
    assert getattr(opened.generation_config.sampling, name) == neutral
    says = f"generation_config.json sets {name} to {shown}, which cannot be: {neutral:g} is used instead."
    assert opened.notices == (f"{folder.name}'s {says}",)
    resolve(Sampling(), opened.generation_config.sampling)


@pytest.mark.parametrize("off", [0, -1, 0.0])
def test_a_top_k_that_is_off_is_no_mistake(folder: Path, off: float) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"top_k": off, "eos_token_id": [-1, 10**30, 3, True]}))
    opened = open_checkpoint(folder)
    assert (opened.generation_config.sampling.top_k, opened.notices) == (0, ())
    assert opened.generation_config.eos_ids == [3]
