"""Models in GGUF: logits against transformers' models of the weights that the gguf package reads from the same file."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

from engine.base.errors import CheckpointError
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.rotary import inverse_frequencies
from engine.config.positions import RopeConfig
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.quantised.quantise import Method, Module, Quantiser
from engine.protocol import LoadOptions, Sampling
from engine.services.client import EngineClient
from tests.conformance.engine_support import Ours, relative
from tests.conformance.gguf_models import KIND, LAYERS, VOCABULARY, Shape, write

TOLERANCE = 1e-4
QKV = ("attn_q", "attn_k", "attn_v")
Q4_K_M = {"": KIND.Q4_K, "attn_v": KIND.Q6_K, "ffn_down": KIND.Q6_K, "output": KIND.Q6_K}
UD_IQ1 = {"": KIND.IQ1_M, "attn_q": KIND.IQ1_S, "attn_v": KIND.Q4_K, "ffn_down": KIND.IQ2_XXS, "output": KIND.Q5_K}
UD_IQ2 = {"": KIND.IQ2_XS, "attn_k": KIND.IQ2_S, "attn_output": KIND.IQ3_XXS, "ffn_down": KIND.IQ3_S}
MIXED = {"": KIND.Q8_0, "attn_k": KIND.F16, "ffn_gate": KIND.BF16, "ffn_down": KIND.F32, "token_embd": KIND.Q5_1}
CASES = {
    "llama q4_0": Shape("llama", {"": KIND.Q4_0}),
    "llama q4_1": Shape("llama", {"": KIND.Q4_1}, kv_heads=4),
    "llama q4_k_m": Shape("llama", Q4_K_M),
    "llama q4_k_m tied": Shape("llama", Q4_K_M, tied=True),
    "llama q4_0 tied": Shape("llama", {"": KIND.Q4_0}, tied=True),
    "qwen2vl": Shape("qwen2vl", {"": KIND.Q8_0}, biases=QKV),
    "qwen3vl": Shape("qwen3vl", {"": KIND.Q8_0}),
    "llama ud-iq1": Shape("llama", UD_IQ1),
    "qwen3 ud-iq2 tied": Shape("qwen3", UD_IQ2 | {"token_embd": KIND.IQ3_S}, tied=True),
    "llama tq": Shape("llama", {"": KIND.TQ2_0, "attn": KIND.TQ1_0, "output": KIND.Q6_K, "token_embd": KIND.Q4_K}),
    "llama f16": Shape("llama", {"": KIND.F16}, tied=True),
    "llama mixed": Shape("llama", MIXED),
    "llama biases": Shape("llama", {"": KIND.Q5_0}, biases=(*QKV, "attn_output")),
    "llama head_dim": Shape("llama", {"": KIND.Q8_0}, head_dim=32),
    "llama one kv head": Shape("llama", {"": KIND.Q3_K, "attn_output": KIND.Q5_K}, kv_heads=1),
    "qwen2 q4_k_m": Shape("qwen2", Q4_K_M, biases=QKV),
    "qwen2 iq4_nl tied": Shape("qwen2", {"": KIND.IQ4_NL, "token_embd": KIND.Q8_0}, biases=QKV, tied=True),
    "qwen3 q4_k_m": Shape("qwen3", Q4_K_M, head_dim=128),
    "qwen3 mixed tied": Shape("qwen3", {"": KIND.IQ4_XS, "attn_q": KIND.BF16, "token_embd": KIND.Q6_K}, tied=True),
}
FAMILIES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen2vl": "Qwen2", "qwen3vl": "Qwen3"}


def theirs(file: Path, shape: Shape, **options: Any) -> transformers.PreTrainedModel:
    """transformers' model in float32, its weights read by the gguf package and turned as transformers does."""
    family = FAMILIES[shape.architecture]
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    head_dim = {} if family == "Qwen2" else {"head_dim": shape.head_dim}
    config = getattr(transformers, f"{family}Config")(
        **rope | {"attention_bias": bool(shape.biases)} | head_dim | options, vocab_size=VOCABULARY,
        hidden_size=shape.hidden, intermediate_size=shape.inner, num_hidden_layers=LAYERS, rms_norm_eps=1e-5,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, max_position_embeddings=256,
        tie_word_embeddings=shape.tied, attn_implementation="eager",
    )  # fmt: skip
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[shape.architecture]
    names = gguf.get_tensor_name_map(arch, LAYERS)
    read = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors
    }
    turn = LlamaTensorProcessor({"num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            own = names.get_name(name, (".weight", ".bias"))
            assert own is not None
            if shape.architecture == "llama":
                read[own] = turn.process(read[own], own).weights
            parameter.copy_(torch.from_numpy(np.array(read.pop(own), dtype=np.float32)).view(parameter.shape))
    assert set(read) <= {"rope_freqs.weight"}
    return model


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in (1, 5, 17, 40)]


@torch.inference_mode()
def compare(ours: Ours, model: transformers.PreTrainedModel, tolerance: float = TOLERANCE) -> None:
    texts = prompts()
    expected = [model(torch.tensor([text])).logits[0] for text in texts]
    for found, want in zip(ours.logits(texts), expected, strict=True):
        assert relative(found, want) <= tolerance
    assert relative(ours.chunked(texts[-1], 7, sequence=3), expected[-1]) <= tolerance


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(file, CASES[name])
    model = theirs(file, CASES[name])
    compare(Ours(file), model)
    compare(Ours(file, weights="4bit_torch"), model)
    compare(Ours(file, weights="16bit"), model)
    compare(Ours(file, invariant=True), model)


@pytest.mark.parametrize("weights", ["4bit", "4bit_torch", "16bit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_loading_holds(name: str, dtype: torch.dtype, weights: str, tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", CASES[name])
    checkpoint = open_checkpoint(tmp_path)
    stages = []
    model = load_model(
        checkpoint,
        torch.device("cpu"),
        dtype,
        weights,
        lambda stage, fraction: stages.append(fraction),
        numerics=Numerics(),
    )
    assert model.storage_size() == checkpoint.resident_bytes(dtype, weights)
    assert stages == sorted(stages)
    assert stages[-1] == 1


def test_two_level_weights_stay_packed(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", CASES["llama q4_k_m"])
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    assert checkpoint.quantisation_title == "GGUF Q4_K with Q6_K"
    assert checkpoint.packed
    model = load_model(checkpoint, torch.device("cpu"), torch.float32)
    held = sum(linear.storage_size() for _, linear in model.linears())
    assert held + model.embedding.storage_size() < 1.02 * checkpoint.weight_bytes


def test_llama_3_factors(tmp_path: Path) -> None:
    """llama.cpp's converter stores what Llama 3.1's scaling divides each frequency by."""
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    plain, _ = inverse_frequencies(RopeConfig(500.0), 64)
    scaled, _ = inverse_frequencies(RopeConfig(500.0, "llama3", original_max_position=32, **scaling), 64)
    factors = tuple((plain / scaled).tolist())
    assert factors[0] == 1
    assert factors[-1] == 8
    file = tmp_path / "model.gguf"
    shape = replace(CASES["llama q4_0"], rope_factors=factors)
    write(file, shape)
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "original_max_position_embeddings": 32} | scaling
    compare(Ours(file), theirs(file, shape, rope_parameters=rope))


@pytest.mark.parametrize(
    ("values", "rope"),
    [
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 64},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
    ],
)
def test_rope_scaling(values: dict[str, Any], rope: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    shape = replace(CASES["qwen2 q4_k_m"], values={f"qwen2.rope.scaling.{key}": value for key, value in values.items()})
    write(file, shape)
    compare(Ours(file), theirs(file, shape, rope_parameters={"rope_theta": 500.0} | rope))


def test_gguf_and_safetensors_are_one_model(tmp_path: Path) -> None:
    """The same bits through both readers give the same configuration and the same logits."""
    shape = Shape("qwen3", {"": KIND.F32})
    write(tmp_path / "model.gguf", shape)
    folder = tmp_path / "folder"
    theirs(tmp_path / "model.gguf", shape).save_pretrained(folder)
    ours, other = Ours(tmp_path / "model.gguf"), Ours(folder)
    assert replace(ours.config, rms_norm_eps=0.0) == replace(other.config, rms_norm_eps=0.0)
    for found, want in zip(ours.logits(prompts()), other.logits(prompts()), strict=True):
        assert relative(found, want) < 1e-6


# --- what cannot be opened -----------------------------------------------------------------------------------------


def refusal(file: Path, shape: Shape) -> str:
    write(file, shape)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(file)
    return str(caught.value)


def test_refusals(tmp_path: Path) -> None:
    file, llama = tmp_path / "model.gguf", CASES["llama q4_0"]

    def said(**values: Any) -> str:
        return refusal(file, replace(llama, values={f"llama.{key.replace('__', '.')}": v for key, v in values.items()}))

    assert "'rwkv7', and in GGUF Kvasir reads llama, qwen2, qwen3" in refusal(
        file, replace(llama, architecture="rwkv7")
    )
    assert 'expert_used_count" is missing' in said(expert_count=8)
    assert "rotates only a part" in said(rope__dimension_count=32)
    assert "'longrope'" in said(rope__scaling__type="longrope")
    assert 'no "factor"' in said(rope__scaling__type="linear")
    assert "has the shape [31]" in refusal(file, replace(llama, rope_factors=(1.0,) * 31))
    assert "no frequency can be divided" in refusal(file, replace(llama, rope_factors=(0.0,) * 32))
    assert "lack the tensor blk.0.attn_q.bias" in refusal(file, Shape("qwen2", {"": KIND.Q4_0}))
    for kind in (KIND.Q8_K, KIND.NVFP4, KIND.Q1_0):
        said_of_type = refusal(file, replace(llama, types={"": KIND.Q4_0, "ffn_up": kind}))
        assert f"is stored as {kind.name}, and Kvasir reads F32" in said_of_type
        assert "such as Q4_K_M." in said_of_type


def test_what_is_no_model_says_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    assert "holds only what a model sees or hears with" in refusal(file, Shape("clip", {"": KIND.Q4_0}))
    for kind, words in {"mmproj": "a projector", "adapter": "an adapter", "imatrix": "an importance matrix"}.items():
        shape = replace(CASES["llama q4_0"], values={"general.type": kind})
        assert words in refusal(file, shape)
    write(file, replace(CASES["llama q4_0"], values={"general.type": "model"}))
    open_checkpoint(file)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("feed_forward_length", 513, "ffn_gate.weight has the shape [512, 256] where the metadata implies [513, 256]"),
        ("attention.head_count", 8, "attn_q.weight has the shape [256, 256] where the metadata implies [512, 256]"),
        ("attention.head_count", 0, '"llama.attention.head_count" is missing'),
        ("attention.head_count_kv", 3, "4 attention heads cannot share 3"),
        ("attention.key_length", 1 << 20, "a head dimension of 1,048,576 is absurd"),
        ("attention.value_length", 32, "keys and values differ"),
        ("block_count", 1, "has 2 layers where its metadata says 1"),
        ("block_count", 3, "lack the tensor blk.2.attn_q.weight"),
        ("embedding_length", 128, "token_embd.weight has the shape [160, 256]"),
    ],
)
def test_metadata_that_contradicts_the_tensors(key: str, value: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(file, CASES["llama q4_0"])
    raw, found = bytearray(file.read_bytes()), f"llama.{key}".encode()
    at = raw.index(struct.pack("<Q", len(found)) + found) + 8 + len(found) + 4
    raw[at : at + 4] = struct.pack("<I", value)
    file.write_bytes(raw)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(file)
    assert said in str(caught.value)


def test_folders_of_gguf(tmp_path: Path) -> None:
    shape = CASES["llama q4_0"]
    write(tmp_path / "a.gguf", shape)
    beside = ("mmproj-a", "mmproj", "a-mmproj-F16", "google_a-it.mmproj-Q8_0", "a-imatrix", "imatrix_unsloth")
    for name in beside:
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    assert open_checkpoint(tmp_path).path == tmp_path
    for name in ("a-imatrix-Q4_K_M", "a-Q4_K_M-imatrix", "a.IQ4_XS.imatrix"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
        with pytest.raises(CheckpointError, match="2 GGUF models"):
            open_checkpoint(tmp_path)
        (tmp_path / f"{name}.gguf").unlink()
    write(tmp_path / "b.gguf", shape)
    with pytest.raises(CheckpointError, match=r"2 GGUF models \(a.gguf, b.gguf\)"):
        open_checkpoint(tmp_path)
    assert open_checkpoint(tmp_path / "b.gguf").path == tmp_path / "b.gguf"
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(CheckpointError, match="hidden_size"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("where", ["model.gguf", ""])
def test_a_file_is_loaded_and_answers(where: str, tmp_path: Path) -> None:
    """The whole way: the file alone has all that a chat needs."""
    shape = CASES["llama q4_k_m"]
    write(tmp_path / "model.gguf", shape)
    greedy = Sampling(temperature=0.0, max_tokens=12)
    with EngineClient() as client:
        client.load(str(tmp_path / where), options=LoadOptions(dtype="float32"))
        loaded = client.engine.loaded
        assert loaded is not None
        ids = client.answer(prompts()[2], greedy).ids
    assert loaded.card.quantisation == "GGUF Q4_K with Q6_K"
    assert loaded.card.eos_ids == [2]
    assert loaded.reads.packed
    assert loaded.files.tokenizer.vocabulary == VOCABULARY
    expected = Ours(tmp_path / "model.gguf", loaded.model.dtype).greedy(prompts()[2], 12)
    assert ids == expected[: len(ids)]
    assert len(ids) > 0


@pytest.mark.parametrize("method", ["nf4", "int4", "int8"])
@pytest.mark.parametrize("weights", ["4bit", "16bit"])
def test_a_file_of_16_bits_is_quantised_while_it_is_loaded(method: Method, weights: str, tmp_path: Path) -> None:
    shape, file = CASES["llama f16"], tmp_path / "model.gguf"
    write(file, shape)
    reference = theirs(file, shape)
    for name, module in reference.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            weight = module.weight.detach().half()
            packed = Quantiser(method, weight.device).packed(Module("m", *weight.shape, lambda weight=weight: weight))
            assert packed is not None
            packed.layout.write(packed.read(), module.weight.data)
    ours = Ours(file, weights=weights, quantise=method)
    checkpoint = open_checkpoint(file).quantised(method)
    assert checkpoint.resident_bytes(torch.float32, weights) == ours.model.storage_size()
    assert checkpoint.quantisation_title.endswith("quantised from GGUF F16 while loading")
    with torch.inference_mode():
        expected = [reference(torch.tensor([text])).logits[0] for text in prompts()]
    assert max(relative(a, b) for a, b in zip(ours.logits(prompts()), expected, strict=True)) < TOLERANCE


def test_sampling_is_that_of_the_file_or_llama_cpps(tmp_path: Path) -> None:
    found = []
    for number, values in enumerate(({}, {"general.sampling.temp": 0.6})):
        file = tmp_path / f"{number}.gguf"
        write(file, replace(CASES["llama q4_0"], values=values))
        found.append(open_checkpoint(file).generation_config.sampling)
    usual, stated = ((each.temperature, each.top_k, each.top_p, each.min_p) for each in found)
    assert usual == (0.8, 40, 0.95, 0.05)
    assert stated == (pytest.approx(0.6), 0, 1.0, 0.0), "what it does not say is left out"
