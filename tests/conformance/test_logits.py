"""Each family's logits against transformers, float32 on a CPU, on tiny random checkpoints made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.interface import AttnProblem, AttnSpec
from engine.compute.batch import SequenceRows
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours, relative
from tests.conformance.families import (
    DEEPSEEK,
    ERNIE,
    ERNIE_MOE,
    EXPERTS,
    GEMMA,
    GEMMA4_E,
    GEMMA4_MOE,
    GEMMA4_WIDE,
    GLM_LITE,
    GPT_OSS,
    GRANITE,
    GRANITE_EXPERTS,
    GRANITE_HYBRID,
    GROUPS,
    KIMI,
    LAGUNA,
    LFM2,
    LFM2_MOE,
    LFM3,
    LLAMA3,
    MELLUM,
    MINISTRAL,
    MLA,
    MLA_YARN,
    NEMOTRON,
    NEMOTRON_EXPERTS,
    OLMO_HYBRID,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_MOE,
    QWEN3_NEXT,
    SIGMOID,
    TOLERANCE,
    TWO_ROPES,
    TYPES,
    Case,
    longrope,
    make,
    prompts,
    rope,
    theirs,
)
from tests.kit.examples import some

CASES = [
    Case("llama", "Llama"),
    Case("llama tied", "Llama", {"tie_word_embeddings": True}),
    Case("llama head_dim", "Llama", {"head_dim": 16}),
    Case("llama multi-head", "Llama", {"num_key_value_heads": 4}),
    Case("llama biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
    Case("llama 3 rope", "Llama", LLAMA3),
    Case("llama linear rope", "Llama", rope("linear", factor=4.0)),
    Case("llama yarn", "Llama", rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    Case("llama yarn mscale", "Llama", rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0,
         mscale_all_dim=0.5, beta_fast=16.0, beta_slow=2.0, truncate=False)),
    Case("llama sharded", "Llama", shard="60KB"),
    Case("llama bf16 file", "Llama", dtype=torch.bfloat16),
    Case("llama fp16 file, tied, sharded", "Llama", {"tie_word_embeddings": True}, torch.float16, "30KB"),
    Case("mistral window", "Mistral", {"sliding_window": 8}),
    Case("mistral no window", "Mistral", {"sliding_window": None}),
    Case("qwen2", "Qwen2"),
    Case("qwen2 upper window", "Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    Case("qwen2 yarn", "Qwen2", rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    Case("qwen3", "Qwen3", {"head_dim": 16}),
    Case("qwen3 tied, biases", "Qwen3", {"head_dim": 32, "tie_word_embeddings": True, "attention_bias": True}),
    Case("smollm3", "SmolLM3", {"no_rope_layer_interval": 2}),
    Case("mixtral", "Mixtral", EXPERTS),
    Case("mixtral window, one expert each, tied", "Mixtral", EXPERTS | {"num_experts_per_tok": 1, "sliding_window": 8,
         "tie_word_embeddings": True}),
    Case("mixtral bf16 file", "Mixtral", EXPERTS, torch.bfloat16),
    Case("qwen3 moe", "Qwen3Moe", QWEN3_MOE),
    Case("qwen3 moe normalised, all experts", "Qwen3Moe", QWEN3_MOE | {"norm_topk_prob": True,
         "num_experts_per_tok": 6, "attention_bias": True}),
    Case("qwen3 moe, some layers plain", "Qwen3Moe", QWEN3_MOE | {"num_hidden_layers": 4, "decoder_sparse_step": 2,
         "mlp_only_layers": [1], "norm_topk_prob": True}),
    Case("gpt-oss", "GptOss", GPT_OSS),
    Case("gpt-oss, low limit", "GptOss", GPT_OSS | {"swiglu_limit": 0.2, "swiglu_alpha": 1.2, "num_experts_per_tok": 4,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}),
    Case("gpt-oss bf16 file, default rope", "GptOss", GPT_OSS | rope("default"), torch.bfloat16),
    Case("gemma2", "Gemma2", GEMMA),
    Case("gemma2 without caps, biases", "Gemma2", GEMMA | {"attn_logit_softcapping": None, "attention_bias": True,
         "final_logit_softcapping": None, "query_pre_attn_scalar": 144, "tie_word_embeddings": False}),
    Case("gemma2 without windows, low caps", "Gemma2", GEMMA | {"layer_types": ["full_attention"] * 3,
         "final_logit_softcapping": 2.0, "attn_logit_softcapping": 1.5}, seed=8),
    Case("gemma2 bf16 file", "Gemma2", GEMMA, torch.bfloat16),
    Case("gemma3", "Gemma3Text", GEMMA | {"sliding_window_pattern": 2}),
    Case("gemma3 without windows", "Gemma3Text", GEMMA | {"layer_types": ["full_attention"] * 3}),
    Case("gemma3 scaled, capped, untied", "Gemma3Text", GEMMA | {"final_logit_softcapping": 2.0, "attention_bias": True,
         "tie_word_embeddings": False, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    Case("gemma4 12B", "Gemma4UnifiedText", {key: GEMMA4_WIDE[key] for key in GEMMA4_WIDE if "per_layer" not in key}),
    Case("gemma4 31B", "Gemma4Text", GEMMA4_WIDE | {"final_logit_softcapping": 2.0}),
    Case("gemma4 E, shared caches", "Gemma4Text", GEMMA4_E),
    Case("gemma4 E, bf16 file, biases", "Gemma4Text", GEMMA4_E | {"attention_bias": True, "num_kv_shared_layers": 2,
         "use_double_wide_mlp": False}, torch.bfloat16),
    Case("gemma4 26B-A4B", "Gemma4Text", GEMMA4_MOE),
    Case("gemma4 all at once, plain rotation", "Gemma4Text", GEMMA4_MOE | GEMMA4_E | {"rope_parameters": {
         "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    Case("phi3", "Phi3"),
    Case("phi3 window, tied", "Phi3", {"sliding_window": 8, "tie_word_embeddings": True}),
    Case("phi3 partial", "Phi3", rope("default", partial_rotary_factor=0.5)),
    Case("phi3 longrope", "Phi3", longrope(6) | {"original_max_position_embeddings": 128}),
    Case("phi3 longrope, partial, tied", "Phi3", longrope(6, partial_rotary_factor=0.75) | {
         "original_max_position_embeddings": 128, "hidden_size": 64, "tie_word_embeddings": True}),
    Case("olmo2", "Olmo2"),
    Case("olmo2 biases", "Olmo2", {"attention_bias": True}, seed=84),
    Case("olmo2 multi-head, tied", "Olmo2", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    Case("olmo3", "Olmo3", TYPES),
    Case("olmo3 yarn, tied", "Olmo3", {"num_hidden_layers": 4, "sliding_window": 8, "tie_word_embeddings": True,
         "rope_parameters": {"full_attention": TWO_ROPES["rope_parameters"]["full_attention"] | {
             "partial_rotary_factor": 1.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    Case("olmo hybrid", "OlmoHybrid", OLMO_HYBRID | {"rope_parameters": None}),
    Case("olmo hybrid, rotating, odd widths, bf16 file", "OlmoHybrid", OLMO_HYBRID | {"linear_key_head_dim": 12,
         "linear_value_head_dim": 20, "linear_allow_neg_eigval": False, "linear_conv_kernel_dim": 3},
         torch.bfloat16),
    Case("granite", "Granite", GRANITE),
    Case("granite biases, tied", "Granite", GRANITE | {"attention_bias": True, "mlp_bias": True,
         "tie_word_embeddings": True, "embedding_multiplier": 0.5, "residual_multiplier": 1.5}),
    Case("deepseek v2 lite, dense", "DeepseekV2", MLA),
    Case("deepseek v2, dense", "DeepseekV2", MLA | {"q_lora_rank": 20}),
    Case("deepseek v2, dense, wide values, tied", "DeepseekV2", MLA | {"v_head_dim": 32, "tie_word_embeddings": True}),
    Case("deepseek v2, dense, yarn", "DeepseekV2", MLA | MLA_YARN),
    Case("deepseek v2, dense, yarn of two scales", "DeepseekV2", MLA | rope("yarn", factor=4.0, mscale=1.2,
         mscale_all_dim=0.5, original_max_position_embeddings=64)),
    Case("deepseek v2, dense, yarn without scales", "DeepseekV2", MLA | rope("yarn", factor=4.0,
         original_max_position_embeddings=64)),
    Case("deepseek v2, dense, biases", "DeepseekV2", MLA | {"attention_bias": True, "mlp_bias": True}, seed=1),
    Case("deepseek v2, dense, biases, low queries", "DeepseekV2", MLA | {"attention_bias": True, "q_lora_rank": 20}),
    Case("deepseek v2 lite", "DeepseekV2", DEEPSEEK | MLA_YARN),
    Case("deepseek v2", "DeepseekV2", DEEPSEEK | MLA_YARN | GROUPS | {"q_lora_rank": 20}),
    Case("deepseek v2, one expert each, bf16 file", "DeepseekV2", DEEPSEEK | {"num_experts_per_tok": 1,
         "first_k_dense_replace": 0, "n_shared_experts": 1}, torch.bfloat16),
    Case("deepseek v3", "DeepseekV3", MLA | SIGMOID | MLA_YARN | {"first_k_dense_replace": 1, "n_group": 4,
         "topk_group": 2, "q_lora_rank": 20}),
    Case("deepseek v3, shares as they are, bf16 file", "DeepseekV3", MLA | SIGMOID | {"first_k_dense_replace": 0,
         "n_group": 1, "topk_group": 1, "norm_topk_prob": False}, torch.bfloat16),
    Case("glm 4.7 flash", "Glm4MoeLite", GLM_LITE | {"q_lora_rank": 20}),
    Case("glm 4.5", "Glm4Moe", SIGMOID | {"head_dim": 16, "first_k_dense_replace": 1, "use_qk_norm": True}),
    Case("glm 4.5 air, biases, groups", "Glm4Moe", SIGMOID | {"head_dim": 16, "attention_bias": True, "n_group": 2,
         "topk_group": 1, "first_k_dense_replace": 0}),
    Case("kimi linear", "KimiLinear", KIMI),
    Case("kimi linear, odd widths, low queries, groups, bf16 file", "KimiLinear", KIMI | {"linear_head_dim": 12,
         "linear_num_heads": 5, "linear_conv_kernel_dim": 3, "q_lora_rank": 20, "n_group": 4, "topk_group": 2},
         torch.bfloat16),
    Case("qwen3 next", "Qwen3Next", QWEN3_NEXT),
    Case("qwen3 next, some layers plain, bf16 file", "Qwen3Next", QWEN3_NEXT | {"mlp_only_layers": [1],
         "norm_topk_prob": False, "linear_num_value_heads": 2, "linear_key_head_dim": 12}, torch.bfloat16),
    Case("seed oss", "SeedOss", {"head_dim": 16}),
    Case("seed oss, other biases, tied", "SeedOss", {"head_dim": 32, "attention_bias": False, "mlp_bias": True,
         "attention_out_bias": True, "tie_word_embeddings": True}),
    Case("ernie 4.5", "Ernie4_5", ERNIE),
    Case("ernie 4.5 biases, tied, bf16 file", "Ernie4_5", ERNIE | {"use_bias": True, "tie_word_embeddings": True},
         torch.bfloat16),
    Case("ernie 4.5 moe", "Ernie4_5_Moe", ERNIE_MOE),
    Case("ernie 4.5 moe, some layers, no shared experts, bf16 file", "Ernie4_5_Moe", ERNIE_MOE | {
         "num_hidden_layers": 5, "moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2,
         "moe_num_shared_experts": 0, "tie_word_embeddings": True}, torch.bfloat16),
    Case("mellum 2", "Mellum", MELLUM),
    Case("mellum 2, some layers plain, scaled, tied", "Mellum", MELLUM | {"tie_word_embeddings": True,
         "mlp_layer_types": ["dense", "sparse", "sparse", "dense"], "norm_topk_prob": False, "rope_parameters": {
             "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
                                "original_max_position_embeddings": 64},
             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    Case("laguna", "Laguna", LAGUNA),
    Case("laguna, gates of elements, scaled, tied, bf16 file", "Laguna", LAGUNA | TWO_ROPES | {
         "gating": "per-element", "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
         "tie_word_embeddings": True, "num_attention_heads_per_layer": None}, torch.bfloat16),
    Case("lfm3", "Lfm3", LFM3),
    Case("lfm3 without gates, untied, shorter kernel", "Lfm3", LFM3 | {"use_attention_gate": False, "conv_L_cache": 3,
         "tie_word_embeddings": False, "attention_bias": True}),
    Case("ministral 3", "Ministral3", MINISTRAL),
    Case("ministral 3 window, tied", "Ministral3", MINISTRAL | {"sliding_window": 8, "tie_word_embeddings": True}),
    Case("lfm2", "Lfm2", LFM2),
    Case("lfm2 wider kernel, inner as it is, untied, bf16 file", "Lfm2", LFM2 | {"conv_L_cache": 5,
         "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False}, torch.bfloat16),
    Case("lfm2 moe", "Lfm2Moe", LFM2_MOE),
    Case("lfm2 moe without a bias", "Lfm2Moe", LFM2_MOE | {"use_expert_bias": False, "norm_topk_prob": False,
         "num_dense_layers": 0, "routed_scaling_factor": 1.5}),
    Case("qwen3.5", "Qwen3_5Text", QWEN3_5),
    Case("qwen3.5 unequal heads, tied, biases", "Qwen3_5Text", QWEN3_5 | {"linear_num_key_heads": 3,
         "linear_num_value_heads": 9, "linear_key_head_dim": 8, "linear_value_head_dim": 24,
         "linear_conv_kernel_dim": 3, "num_key_value_heads": 1, "attention_bias": True, "tie_word_embeddings": True,
         **rope("default", partial_rotary_factor=0.5)}),
    Case("qwen3.5 every second layer, bf16 file", "Qwen3_5Text", QWEN3_5 | {"layer_types": ["full_attention",
         "linear_attention", "full_attention"], "num_hidden_layers": 3}, torch.bfloat16),
    Case("qwen3.5 moe", "Qwen3_5MoeText", QWEN3_5_MOE),
    Case("qwen3.5 moe, one expert each, tied", "Qwen3_5MoeText", QWEN3_5_MOE | {"num_experts_per_tok": 1,
         "shared_expert_intermediate_size": 8, "tie_word_embeddings": True}),
    Case("granite 4", "GraniteMoeHybrid", GRANITE_HYBRID),
    Case("granite 4, one group, auto heads, all biases, rotated, tied", "GraniteMoeHybrid", GRANITE_HYBRID | {
         "mamba_n_groups": 1, "mamba_d_head": "auto", "mamba_proj_bias": True, "attention_bias": True,
         "position_embedding_type": "rope", "tie_word_embeddings": True, "embedding_multiplier": 0.5}),
    Case("granite 4, a group a head, no bias, wider kernel, bf16 file", "GraniteMoeHybrid", GRANITE_HYBRID | {
         "mamba_n_groups": 6, "mamba_conv_bias": False, "mamba_d_conv": 7}, torch.bfloat16),
    Case("granite 4 without states", "GraniteMoeHybrid", GRANITE_HYBRID | {"layer_types": ["attention"] * 4,
         "position_embedding_type": "rope"}),
    Case("granite 4, limited steps", "GraniteMoeHybrid", GRANITE_HYBRID | {"time_step_limit": (0.5, 0.9)}),
    Case("granite 4 experts", "GraniteMoeHybrid", GRANITE_EXPERTS),
    Case("granite 4 experts, one each, bf16 file", "GraniteMoeHybrid", GRANITE_EXPERTS | {"num_experts_per_tok": 1},
         torch.bfloat16),
    Case("nemotron h", "NemotronH", NEMOTRON),
    Case("nemotron h, one group, biases, bf16 file", "NemotronH", NEMOTRON | {"n_groups": 1, "use_bias": True,
         "mlp_bias": True, "use_conv_bias": False}, torch.bfloat16),
    Case("nemotron 3", "NemotronH", NEMOTRON_EXPERTS),
    Case("nemotron 3 super, groups of experts", "NemotronH", NEMOTRON_EXPERTS | {"moe_latent_size": 20, "n_group": 4,
         "topk_group": 2, "norm_topk_prob": False}),
    Case("opt", "OPT", {"ffn_dim": 96}),
    Case("opt untied, gelu", "OPT", {"ffn_dim": 96, "tie_word_embeddings": False,
         "activation_function": "gelu"}, seed=4),
    Case("opt without biases", "OPT", {"ffn_dim": 96, "enable_bias": False}, seed=4),
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits_and_greedy_text_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    """64 tokens of text. Where the texts part, both candidates must have been tied within the tolerance."""
    reference = make(case, tmp_path)
    assert ("sharded" in case.name) == (tmp_path / "model.safetensors.index.json").is_file()
    ours = Ours(tmp_path)
    texts = prompts()
    expected = [theirs(reference, text) for text in texts]
    for found, want in zip(ours.logits(texts), expected, strict=True):
        assert relative(found, want) <= TOLERANCE
    for chunk in some(7, 16, more=(1,)):
        assert relative(ours.chunked(texts[-1], chunk, sequence=3), expected[-1]) <= TOLERANCE
    assert open_checkpoint(tmp_path, need_tokenizer=False).resident_bytes(torch.float32) == ours.model.storage_size()

    prompt = texts[2]
    found = ours.greedy(prompt, 64)
    logits = theirs(reference, prompt + found)[len(prompt) - 1 : -1]
    chosen = logits.gather(1, torch.tensor(found)[:, None])[:, 0]
    gap = (logits.max(1).values - chosen) / logits.abs().max()
    assert float(gap.max()) <= TOLERANCE, f"token {int(gap.argmax())} differs by more than a near-tie"
    assert len(set(found)) > 4, "the text is too monotonous to show anything"


def test_native_attention_caps_scores_as_transformers_does(tmp_path: Path) -> None:
    """Of heads that it serves, and keys in 16 bits, by which logits are off (with a cap of 50 they are by 1.5)."""
    own = {"head_dim": 32, "attn_logit_softcapping": 0.3}
    reference = make(Case("gemma2 wide heads", "Gemma2", GEMMA | own), tmp_path)
    ours = Ours(tmp_path, kv_dtype=torch.bfloat16)
    problem = AttnProblem("cpu", torch.float32, AttnSpec(1.0, softcap=0.3), head_dims=(32, 32), kv_dtype=torch.bfloat16)
    assert NativeAttention().declines(problem) is None
    text = prompts()[-1]
    expected = theirs(reference, text)
    assert relative(ours.logits([text])[0], expected) <= 0.02
    assert relative(ours.chunked(text, 1), expected) <= 0.02


OWN = {
    "Mistral": {"sliding_window": 8},
    "Gemma2": GEMMA,
    "Gemma3Text": GEMMA | {"sliding_window_pattern": 2},
    "Phi3": longrope(6, partial_rotary_factor=0.75) | {"original_max_position_embeddings": 128, "hidden_size": 64},
    "Granite": GRANITE,
    "Mixtral": EXPERTS,
    "Qwen3Moe": QWEN3_MOE,
    "GptOss": GPT_OSS,
    "GraniteMoeHybrid": GRANITE_EXPERTS,
    "NemotronH": NEMOTRON_EXPERTS | {"moe_latent_size": 24},
    "OlmoHybrid": OLMO_HYBRID,
    "Qwen3Next": QWEN3_NEXT,
    "Ernie4_5_Moe": ERNIE_MOE,
    "Laguna": LAGUNA,
    "Lfm3": LFM3,
    "KimiLinear": KIMI,
    "OPT": {"ffn_dim": 96, "activation_function": "gelu"},
    "DeepseekV2": DEEPSEEK | MLA_YARN | GROUPS | {"q_lora_rank": 20},
    "Qwen3_5Text": QWEN3_5,
    "Qwen3_5MoeText": QWEN3_5_MOE,
}
"""Options with which a family shows what sets it apart."""


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "SmolLM3", "Olmo2", *OWN])
def test_batch_invariant_logits_are_those_of_transformers_and_equal_bits(family: str, tmp_path: Path) -> None:
    """The same row alone, in one chunk, in chunks, and among others: the very same logits, in float32."""
    reference = make(Case(family, family, OWN.get(family, {})), tmp_path)
    texts = prompts()
    for dtype in (torch.float32, torch.bfloat16):
        ours = Ours(tmp_path, dtype, invariant=True)
        batch = ours.logits(texts)
        assert batch[0].dtype == torch.float32
        for text, together in zip(texts, batch, strict=True):
            if dtype == torch.float32:
                assert relative(together, theirs(reference, text)) <= TOLERANCE
            assert torch.equal(ours.logits([text])[0], together), dtype
            for chunk in (1, 7, 16) if len(text) < 20 else some(7, 16, more=(1,)):
                assert torch.equal(ours.chunked(text, chunk, sequence=5), together), (dtype, chunk)


def test_longrope_goes_by_the_length_of_each_sequence(tmp_path: Path) -> None:
    """Prompts on both sides of the original context in one batch; what follows them; and chunks that stay on one side.

    The sequence that crosses keeps its cached keys, as transformers' forward with a cache does.
    """
    reference = make(Case("longrope", "Phi3", longrope(6) | {"original_max_position_embeddings": 16}), tmp_path)
    ours = Ours(tmp_path)
    assert ours.config.positions.max_position == 16
    texts = prompts()
    expected = [theirs(reference, text) for text in texts]
    for found, want in zip(ours.logits(texts), expected, strict=True):
        assert relative(found, want) <= TOLERANCE
    assert relative(ours.chunked(texts[-1], 20, sequence=3), expected[-1]) <= TOLERANCE
    assert relative(ours.chunked(texts[-1], 16, sequence=3), cached(reference, texts[-1], 16)) <= TOLERANCE
    assert relative(cached(reference, texts[-1], 16), expected[-1]) > 10 * TOLERANCE
    found = ours.greedy(texts[-1], 64)
    logits = theirs(reference, texts[-1] + found)[len(texts[-1]) - 1 : -1]
    assert logits.argmax(1).tolist() == found


def test_longrope_reads_on_when_a_longer_context_is_asked_for(tmp_path: Path) -> None:
    """Beyond the original context the logits are those of transformers, however the text was cut into chunks."""
    reference = make(Case("longer", "Phi3", longrope(6) | {"original_max_position_embeddings": 16}), tmp_path)
    checkpoint = open_checkpoint(tmp_path, need_tokenizer=False)
    assert checkpoint.for_context(16) is checkpoint
    assert checkpoint.for_context(17).config.positions.max_position == 256
    assert "16" in checkpoint.for_context(17).notices[0]
    ours, text = Ours(tmp_path, context=200), prompts()[-1]
    expected = theirs(reference, text)
    assert relative(ours.logits([text])[0], expected) <= TOLERANCE
    for chunk in (1, 7, 16):
        assert relative(ours.chunked(text, chunk, sequence=5), expected) <= TOLERANCE


@torch.inference_mode()
def cached(model: transformers.PreTrainedModel, text: list[int], chunk: int) -> Tensor:
    """All logits of a text that transformers reads in chunks."""
    cache = transformers.DynamicCache(config=model.config)
    return torch.cat([model(part[None], past_key_values=cache).logits[0] for part in torch.tensor(text).split(chunk)])


def test_older_files_put_the_rope_elsewhere(tmp_path: Path) -> None:
    """``rope_scaling`` beside ``rope_theta``, with "type" for "rope_type"."""
    reference = make(Case("older", "Llama", LLAMA3), tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    file.write_text(json.dumps(config | {"rope_scaling": scaling, "torch_dtype": "float32"}))
    text = prompts()[-1]
    assert relative(Ours(tmp_path).logits([text])[0], theirs(reference, text)) <= TOLERANCE


def test_older_gemma_3_files_have_two_bases(tmp_path: Path) -> None:
    """And no ``layer_types``, but how often a layer sees all."""
    reference = make(Case("older gemma", "Gemma3Text", GEMMA | {"sliding_window_pattern": 2, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}), tmp_path)  # fmt: skip
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["rope_parameters"], config["layer_types"], config["tie_word_embeddings"]
    config |= {"rope_theta": 5000.0, "rope_local_base_freq": 100.0, "sliding_window_pattern": 2}
    file.write_text(json.dumps(config | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}))
    text = prompts()[-1]
    assert relative(Ours(tmp_path).logits([text])[0], theirs(reference, text)) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["Olmo2", *OWN])
def test_16_bit_logits_are_as_good_as_those_of_transformers(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Both round, each in its own places: ours are not further from float32. (Unless an expert is chosen otherwise.)"""
    seed = {"Qwen3_5MoeText": 4, "Ernie4_5_Moe": 1}.get(family, 0)
    reference = make(Case(family, family, OWN.get(family, {}), dtype, seed=seed), tmp_path)
    text = prompts()[-1]
    exact = theirs(reference, text)
    found, rounded = Ours(tmp_path, dtype).logits([text])[0], theirs(reference.to(dtype), text)
    assert found.dtype == dtype
    assert mean_error(found, exact) <= 1.3 * mean_error(rounded, exact)


@pytest.mark.parametrize("family", ["Gemma2", "Gemma3Text", "Granite", "OPT"])
def test_the_stream_begins_with_the_bits_of_transformers(family: str, tmp_path: Path) -> None:
    """Scales are rounded to bfloat16 where transformers rounds them (6.9375 for the root of 48)."""
    reference = make(Case(family, family, OWN[family], torch.bfloat16), tmp_path).to(torch.bfloat16)
    ours, text = Ours(tmp_path, torch.bfloat16), prompts()[-1]
    with torch.inference_mode():
        expected = reference(torch.tensor([text]), output_hidden_states=True).hidden_states[0][0]
    rows = [SequenceRows(text, 0, ours.pages(0))]
    assert torch.equal(ours.runner.forward(rows, want_hidden=frozenset({0})).hidden[0], expected)


def mean_error(found: Tensor, exact: Tensor) -> float:
    return float((found.float() - exact).abs().mean())


def test_opt_beyond_its_positions_only_drafts(tmp_path: Path) -> None:
    """As a draft of a model with a longer context."""
    reference = make(Case("opt short", "OPT", {"ffn_dim": 96, "max_position_embeddings": 24}), tmp_path)
    text = prompts()[-1]
    found = Ours(tmp_path).logits([text])[0]
    assert relative(found[:24], theirs(reference, text[:24])) <= TOLERANCE
    assert bool(found.isfinite().all())


def test_opts_layers_are_counted(tmp_path: Path) -> None:
    make(Case("opt layers", "OPT", {"ffn_dim": 96}), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_hidden_layers": 2}))
    with pytest.raises(CheckpointError, match=r"3 layers where config\.json says 2"):
        open_checkpoint(tmp_path, need_tokenizer=False)


@pytest.mark.parametrize("family", ["DeepseekV32", "GlmMoeDsa"])
def test_models_with_an_indexer_are_refused_by_the_field(family: str, tmp_path: Path) -> None:
    """Before a weight is read."""
    indexer = {"index_topk": 8, "index_head_dim": 16, "index_n_heads": 2, "q_lora_rank": 20, "n_group": 1}
    make(Case("indexer", family, MLA | SIGMOID | indexer | {"first_k_dense_replace": 1, "topk_group": 1}), tmp_path)
    with pytest.raises(CheckpointError, match='"index_topk"'):
        open_checkpoint(tmp_path, need_tokenizer=False).resident_bytes(torch.float32)


def test_layer_ranges_make_up_the_whole(tmp_path: Path) -> None:
    make(Case("ranges", "Llama"), tmp_path)
    ours = Ours(tmp_path)
    text = prompts()[-1]
    whole = ours.logits([text])[0]
    rows = [SequenceRows(text, 0, ours.pages(1), len(text))]
    first = ours.runner.forward(rows, layers=(0, 2))
    assert first.logits.shape[0] == 0
    second = ours.runner.forward(rows, layers=(2, 3), hidden_in=first.hidden[2], want_hidden=frozenset({2, 3}))
    assert torch.equal(second.logits, whole)
    assert torch.equal(second.hidden[2], first.hidden[2])
    early = ours.model.logits(second.hidden[3], torch.arange(len(text)))
    assert torch.equal(early, whole)
