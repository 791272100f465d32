"""Every family in GGUF, converted as llama.cpp's converter does it: logits against transformers, and llama.cpp's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import pytest
import torch
import transformers
from torch import Tensor

from engine.compute.models.heads.mtp import QWEN
from engine.decoding.speculation.mtp.files import multi_token_layout
from engine.formats.open import open_checkpoint
from tests.conformance import gguf_converter
from tests.conformance.engine_support import Ours, relative
from tests.conformance.gguf_converter import by_llama_cpp, convert
from tests.conformance.gguf_families import (
    DEEPSEEK,
    DEEPSEEK3,
    ERNIE_MOE,
    EXPERTS,
    FAMILIES,
    GEMMA,
    GEMMA3,
    GEMMA3_SCALED,
    GEMMA4,
    GEMMA4_E,
    GEMMA4_MOE,
    GLM4_MOE,
    GPT_OSS,
    GRANITE,
    GRANITE_HYBRID,
    GRANITE_HYBRID_MOE,
    GROUPS,
    KIMI,
    LFM2,
    LFM2_MOE,
    LONGROPE,
    MINISTRAL,
    MLA_YARN,
    NEMOTRON_H,
    NEMOTRON_H_MOE,
    OLMO3,
    PARTIAL,
    QWEN3_MOE,
    QWEN35,
    QWEN35MOE,
    random_model,
    rope_of,
    unabsorbed,
)
from tests.conformance.gguf_models import KIND, VOCABULARY
from tests.kit.pairs import each_value

TOLERANCE = 1e-4
LLAMA_CPP = 1e-3
"""It sums in another order, and has its activation functions in tables of float16."""


class Case(NamedTuple):
    architecture: str
    options: dict[str, Any] = {}
    llama_cpp: float = LLAMA_CPP
    """How far llama.cpp may be off; 0 where it computes something else than transformers."""
    older: bool = False
    """As files of deepseek2 and of mixtures of experts were."""


CASES = {
    "gemma2": Case("gemma2", GEMMA),
    "gemma2 wide heads": Case("gemma2", GEMMA | {"head_dim": 32, "query_pre_attn_scalar": 32}),
    "gemma3": Case("gemma3", GEMMA3),
    "gemma2 27B": Case("gemma2", GEMMA | {"num_hidden_layers": 46, "head_dim": 32}, llama_cpp=3e-3),
    "gemma3 27B": Case("gemma3", GEMMA3 | {"num_hidden_layers": 62, "head_dim": 32}, llama_cpp=3e-3),
    "gemma3 scaled": Case("gemma3", GEMMA3 | {"rope_parameters": GEMMA3_SCALED}),
    "gemma4": Case("gemma4", GEMMA4, llama_cpp=2e-2),
    "gemma4 E": Case("gemma4", GEMMA4_E, llama_cpp=2e-2),
    "gemma4 experts": Case("gemma4", GEMMA4_MOE, llama_cpp=2e-2),
    "phi3": Case("phi3", {"sliding_window": None}),
    "phi3 window": Case("phi3", {"sliding_window": 8}, llama_cpp=0),
    "phi3 partial, tied": Case("phi3", rope_of("default", partial_rotary_factor=0.5) | {"tie_word_embeddings": True}),
    "phi3 longrope": Case("phi3", LONGROPE),
    "phi3 longrope, partial": Case("phi3", LONGROPE | rope_of("longrope", **PARTIAL)),
    "olmo2": Case("olmo2"),
    "olmo2 multi-head": Case("olmo2", {"num_key_value_heads": 4}),
    "kimi linear": Case("kimi-linear", KIMI),
    "kimi linear, low queries": Case("kimi-linear", KIMI | {"q_lora_rank": 32, "linear_conv_kernel_dim": 3}),
    "olmo3": Case("olmo3", OLMO3),
    "olmo3 yarn": Case("olmo3", OLMO3 | {"rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
                           "original_max_position_embeddings": 64},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    "seed oss": Case("seed_oss", {"head_dim": 32}),
    "seed oss, other biases": Case("seed_oss", {"head_dim": 16, "attention_bias": False, "tie_word_embeddings": True}),
    "ernie 4.5": Case("ernie4_5", {"head_dim": 32, "tie_word_embeddings": True}),
    "ernie 4.5 experts": Case("ernie4_5-moe", ERNIE_MOE),
    "granite": Case("granite", GRANITE),
    "granite biases, tied": Case("granite", GRANITE | {"attention_bias": True, "tie_word_embeddings": True}),
    "granite 4": Case("granitehybrid", GRANITE_HYBRID),
    "granite 4, one group, no bias, rotated, tied": Case("granitehybrid", GRANITE_HYBRID | {"mamba_n_groups": 1,
        "mamba_conv_bias": False, "position_embedding_type": "rope", "tie_word_embeddings": True}),
    "granite 4 experts": Case("granitehybrid", GRANITE_HYBRID_MOE),
    "nemotron h": Case("nemotron_h", NEMOTRON_H),
    "nemotron 3": Case("nemotron_h_moe", NEMOTRON_H_MOE),
    "nemotron 3 super": Case("nemotron_h_moe", NEMOTRON_H_MOE | {"moe_latent_size": 32}),
    "smollm3": Case("smollm3", {"num_hidden_layers": 5, "tie_word_embeddings": True}),
    "mixtral": Case("llama", EXPERTS),
    "mixtral older": Case("llama", EXPERTS, llama_cpp=0, older=True),
    "qwen3 moe": Case("qwen3moe", QWEN3_MOE),
    "qwen3 moe, all experts, tied": Case("qwen3moe", QWEN3_MOE | {"num_experts_per_tok": 6,
                                                                   "tie_word_embeddings": True}),
    "qwen3.5": Case("qwen35", QWEN35),
    "qwen3.5 equal heads, other layers, tied": Case("qwen35", QWEN35 | {"linear_num_key_heads": 4,
        "tie_word_embeddings": True, "layer_types": ["linear_attention", "full_attention"] * 2}),
    "qwen3.5 moe": Case("qwen35moe", QWEN35MOE),
    "gpt-oss": Case("gpt-oss", GPT_OSS | rope_of("default")),
    "gpt-oss yarn": Case("gpt-oss", GPT_OSS, llama_cpp=0),
    "deepseek2": Case("deepseek2", DEEPSEEK),
    "deepseek2 yarn": Case("deepseek2", DEEPSEEK | MLA_YARN),
    "deepseek2 older": Case("deepseek2", DEEPSEEK, older=True),
    "deepseek2 groups": Case("deepseek2", DEEPSEEK | GROUPS, llama_cpp=0),
    "deepseek2 lite": Case("deepseek2", DEEPSEEK | {"q_lora_rank": None, "num_hidden_layers": 27}),
    "deepseek v3": Case("deepseek3", DEEPSEEK3 | MLA_YARN),
    "glm 4.7 flash": Case("deepseek3", DEEPSEEK3 | {"n_group": 1, "topk_group": 1}),
    "glm 4.5": Case("glm4moe", GLM4_MOE),
    "glm 4.5 air": Case("glm4moe", GLM4_MOE | {"use_qk_norm": False}),
    "ministral 3": Case("mistral3", MINISTRAL),
    "lfm2": Case("lfm2", LFM2),
    "lfm2 moe": Case("lfm2moe", LFM2_MOE),
    "smollm3 yarn": Case("smollm3", {"num_hidden_layers": 5, "original_max_position_embeddings": 64}
                         | rope_of("yarn", factor=4.0, original_max_position_embeddings=64)),
}  # fmt: skip


DEEP = ("gemma2 27B", "gemma3 27B", "deepseek2 lite")
"""Named by their many layers, which are packed as those of the same family with few."""


def mixed(name: str) -> KIND:
    """As quantisers choose: some tensors better than others."""
    local = name.split(".")[-2]
    return {
        "attn_v": KIND.F16,
        "attn_qkv": KIND.Q5_1,
        "ffn_down": KIND.BF16,
        "token_embd": KIND.Q8_0,
        "ffn_gate_exps": KIND.MXFP4,
        "ffn_gate_up_exps": KIND.Q8_0,
        "per_layer_token_embd": KIND.Q5_1,
        "ffn_up_exps": KIND.Q8_0,
    }.get(local, KIND.Q4_0)


def write(
    case: Case, model: transformers.PreTrainedModel, file: Path, kind: Callable[[str], KIND] = lambda name: KIND.F32
) -> None:
    older = unabsorbed(model.config) if case.older and case.architecture == "deepseek2" else {}
    convert(model, file, kind, older, experts_apart=case.older and not older)


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in (1, 5, 17, 40)]


pytestmark = pytest.mark.usefixtures("one_thread")


@torch.inference_mode()
def theirs(model: transformers.PreTrainedModel) -> list[Tensor]:
    return [model(torch.tensor([text])).logits[0] for text in prompts()]


def compare(ours: Ours, expected: Sequence[Tensor]) -> None:
    texts = prompts()
    for found, want in zip(ours.logits(texts), expected, strict=True):
        assert relative(found, want) <= TOLERANCE
    assert relative(ours.chunked(texts[-1], 7, sequence=3), expected[-1]) <= TOLERANCE


class Made(NamedTuple):
    """``file`` holds the weights of ``model``, in float32; ``expected`` are its logits."""

    model: transformers.PreTrainedModel
    file: Path
    expected: list[Tensor]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """By the names of cases, each made once: nobody may change it."""
    folder = tmp_path_factory.mktemp("made")

    @cache
    def make(name: str) -> Made:
        case, file = CASES[name], folder / f"{list(CASES).index(name)}.gguf"
        model = random_model(case.architecture, **case.options)
        write(case, model, file)
        return Made(model, file, theirs(model))

    return make


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str, made: Callable[[str], Made]) -> None:
    compare(Ours(made(name).file), made(name).expected)


def test_a_text_model_with_experts_whose_whole_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Qwen3-VL, whose text differs from Qwen3's by name alone."""
    family, file = FAMILIES["qwen3moe"]._replace(architecture="qwen3vlmoe"), tmp_path / "model.gguf"
    monkeypatch.setattr(gguf_converter, "family_of", lambda model: family)
    model = random_model("qwen3moe", **QWEN3_MOE)
    convert(model, file)
    assert gguf.GGUFReader(file).get_field("general.architecture").contents() == "qwen3vlmoe"
    compare(Ours(file), theirs(model))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.llama_cpp])
def test_logits_are_those_of_llama_cpp(name: str, made: Callable[[str], Made]) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is installed for `kvasir bench` only")
    file, texts = made(name).file, prompts()
    for found, want in zip(Ours(file).logits(texts), by_llama_cpp(file, texts), strict=True):
        assert relative(found, want) <= CASES[name].llama_cpp


@each_value(seldom=lambda name, **_: name in DEEP, name=list(CASES), other=["4bit_torch", "16bit", "batch-invariant"])
def test_packed_weights(name: str, other: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """As they are held without being asked for, and in another way."""
    file = tmp_path / "model.gguf"
    model = copy.deepcopy(made(name).model)
    write(CASES[name], model, file, mixed)
    expected = theirs(model)
    for weights, invariant in (("4bit", False), ("4bit", True) if other == "batch-invariant" else (other, False)):
        ours = Ours(file, weights=weights, invariant=invariant)
        compare(ours, expected)
        planned = open_checkpoint(file).resident_bytes(torch.float32, weights)
        assert planned == ours.model.storage_size()


def test_every_expert_stays_packed(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(CASES["gpt-oss"], random_model("gpt-oss", **CASES["gpt-oss"].options), file, mixed)
    held = [linear for name, linear in Ours(file).model.linears() if ".experts." in name]
    assert len(held) == 3 * 6 * 2
    stored = [tensor for tensor in gguf.GGUFReader(file).tensors if "_exps." in tensor.name]
    # Native code holds output features in blocks of 64.
    padded = sum(tensor.n_bytes * (-(-int(tensor.shape[1]) // 64) * 64) / int(tensor.shape[1]) for tensor in stored)
    assert sum(tensor.n_bytes for tensor in stored) <= sum(linear.storage_size() for linear in held) < 1.04 * padded


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_gguf_and_safetensors_are_one_model(name: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """The same weights through both readers: the same configuration, and the same logits in bfloat16 to the bit."""
    case, file = CASES[name], tmp_path / "model.gguf"
    model = copy.deepcopy(made(name).model)
    write(case, model.bfloat16().float(), file)
    model.bfloat16().save_pretrained(tmp_path / "folder")
    ours, other = Ours(file, torch.bfloat16), Ours(tmp_path / "folder", torch.bfloat16)
    for found, want in zip(ours.logits(prompts()), other.logits(prompts()), strict=True):
        if case.architecture.startswith("qwen35") and "equal" not in name:  # its output sums heads in another order
            assert relative(found, want) < 0.05
        else:
            assert torch.equal(found, want)


def test_a_nemotrons_multi_token_layer_is_left_out(tmp_path: Path) -> None:
    """It is counted among the layers, and holds attention and experts in one."""
    file, model = tmp_path / "model.gguf", random_model("nemotron_h_moe", **NEMOTRON_H_MOE)
    layers, size = model.config.num_hidden_layers, model.config.hidden_size
    own = FAMILIES["nemotron_h_moe"].keys(model.config)
    keys = {"block_count": layers + 1, "nextn_predict_layers": 1} | {
        key: [*own[key], last] for key, last in (("attention.head_count_kv", 2), ("feed_forward_length", 64))
    }
    convert(model, file, keys=keys, more={f"blk.{layers}.nextn.eh_proj.weight": torch.ones(size, 2 * size)})
    checkpoint = open_checkpoint(file, need_tokenizer=False)
    assert checkpoint.has_tensor(QWEN.mark)
    assert multi_token_layout(checkpoint) is None
    compare(Ours(file), theirs(model))
