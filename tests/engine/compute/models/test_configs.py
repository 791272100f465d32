"""What each family reads out of config.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import CheckpointError
from engine.compute.models.arenas import new_store
from engine.compute.models.registry import FAMILIES, family
from engine.config.attention import HeadGate, LatentShape
from engine.config.model import ModelConfig
from engine.config.positions import RopeConfig
from engine.config.raw import RawConfig
from engine.config.states import MambaShape, RecurrentShape
from engine.loading.memory.estimate import kv_bytes_per_token

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
}


EXPERTS = {"num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "num_experts": 8,
           "moe_intermediate_size": 128, "hidden_size_per_layer_input": 0}  # fmt: skip


MAMBA: dict[str, dict[str, Any]] = {
    "GraniteMoeHybridForCausalLM": {
        "layer_types": ["mamba", "mamba", "attention", "mamba"], "shared_intermediate_size": 128, "mamba_n_heads": 8,
        "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 32},
    "NemotronHForCausalLM": {
        "hybrid_override_pattern": "ME*-", "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
        "ssm_state_size": 32, "moe_shared_expert_intermediate_size": 64},
}  # fmt: skip


OWN: dict[str, dict[str, Any]] = {
    "KimiLinearForCausalLM": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "Ernie4_5_MoeForCausalLM": {"moe_num_experts": 8},
}
"""What else other families' files say."""


def read(architecture: str, **values: Any) -> ModelConfig:
    raw = RawConfig(BASE | {"architectures": [architecture]} | values, Path("config.json"))
    return family(architecture).read_config(raw)


ENCODERS = ("BertModel", "RobertaModel", "XLMRobertaModel")


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_reads_the_plain_fields(architecture: str) -> None:
    latent = architecture.startswith(("Deepseek", "Glm4MoeLite", "KimiLinear"))
    kv_heads = 4 if latent else 2
    values = EXPERTS | MAMBA.get(architecture, {}) | OWN.get(architecture, {})
    config = read(architecture, num_key_value_heads=kv_heads, rms_norm_eps=1e-5, ffn_dim=128, norm_eps=1e-5,
                  block_auto_adjust_ff_dim=False, layer_norm_eps=1e-5, **values)  # fmt: skip
    heads, whole = config.attention, architecture.startswith(("OPT", *ENCODERS))
    assert (heads.num_heads, heads.num_kv_heads) == (4, 1 if latent else 4 if whole else 2)
    assert heads.bidirectional == (architecture in ENCODERS)
    assert (config.hidden_size, config.mlp.intermediate_size, config.rms_norm_eps) == (64, 128, 1e-5)
    assert len(heads.windows) == len(config.positions.rotary) == config.num_layers == 4
    own = {
        "Qwen3_5ForCausalLM": 256,
        "Qwen3_5MoeForCausalLM": 256,
        "Qwen3ForCausalLM": 128,
        "Gemma2ForCausalLM": 256,
        "Gemma3ForCausalLM": 256,
        "Gemma4ForCausalLM": 256,
        "Gemma4UnifiedForCausalLM": 256,
        "GptOssForCausalLM": 64,
        "Ministral3ForCausalLM": 128,
        "NemotronHForCausalLM": 128,
        "Qwen3NextForCausalLM": 256,
        "Lfm3ForCausalLM": 128,
        "SeedOssForCausalLM": 128,
        "Ernie4_5ForCausalLM": 128,
        "MellumForCausalLM": 128,
        "LagunaForCausalLM": 128,
    }
    assert heads.head_dim == own.get(architecture, 192 if latent else 16)
    assert (heads.latent is not None) == latent
    assert heads.qk_norm == architecture.startswith(("Qwen3", "Gemma3", "Gemma4", "Lfm", "Mellum", "Laguna"))
    assert heads.qkv_bias == architecture.startswith(("Qwen2", "MiMo", "OPT", "GptOss", "SeedOss", *ENCODERS))
    assert config.tie_word_embeddings == architecture.startswith(("SmolLM3", "Gemma", "OPT", "Lfm", "Ernie", *ENCODERS))
    activations = {"Gemm": "gelu_tanh", "OPTF": "relu", "Nemo": "relu2"} | {name[:4]: "gelu" for name in ENCODERS}
    assert config.mlp.activation == activations.get(architecture[:4], "silu")
    assert heads.fused_qkv == architecture.startswith("Phi3")


GEMMA4 = {"num_key_value_heads": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 100,
          "vocab_size": 100}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"use_bidirectional_attention": "all"}, "see those after them"),
        ({"vocab_size_per_layer_input": 90}, "own token table has 90 tokens"),
        ({"num_kv_shared_layers": 3, "layer_types": ["sliding_attention"] * 4}, "none is of a kind"),
        ({"num_kv_shared_layers": 4}, "from 0 to 3"),
        ({"attention_k_eq_v": True, "num_global_key_value_heads": 3}, "cannot share 3 key-value heads"),
        ({"global_head_dim": 15}, "heads of 15"),
        ({"per_layer_config": {"0": 1}}, "not a JSON object of objects"),
        ({"per_layer_config": {"0": {"head_dim": 32}}}, "layers of one type"),
        ({"per_layer_config": {"0": {}, "00": {}}}, "names layer '00' twice"),
        ({"per_layer_config": {"4": {}}}, "names layer '4' where they are numbered from 0 to 3"),
        ({"per_layer_config": {"full_attention": {}}}, "where they are numbered from 0 to 3"),
        ({"per_layer_config": {"0": {"intermediate_size": 5}}}, "layer 0 has 'intermediate_size' of its own"),
        ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8}, "5 of 4"),
        ({"rope_parameters": {"full_attention": {"partial_rotary_factor": 2}}}, "a share up to 1"),
    ],
)
def test_what_a_gemma_4_cannot_be(values: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        read("Gemma4ForCausalLM", **(GEMMA4 | values))


def test_layers_of_a_gemma_4_as_transformers_writes_them() -> None:
    """Of twelve layers: their numbers have two digits there."""
    transformers = pytest.importorskip("transformers")
    shape = {"num_hidden_layers": 12, "num_attention_heads": 4, "head_dim": 16, "global_head_dim": 32}
    written = json.loads(transformers.Gemma4TextConfig(**GEMMA4, **shape).to_json_string())
    config = read("Gemma4ForCausalLM", **written)
    assert sorted(written["per_layer_config"]) == ["05", "11"]
    assert [config.attention.heads_of(layer).width for layer in range(12)] == ([16] * 5 + [32]) * 2
    alike = read("Gemma4ForCausalLM", **(written | {"per_layer_config": {}}))
    assert {alike.attention.heads_of(layer).width for layer in range(12)} == {16}


def test_layers_of_their_own_kind_are_refused_elsewhere() -> None:
    assert read("LlamaForCausalLM", per_layer_config={"00": {"head_dim": 16}}, head_dim=16).attention.head_dim == 16
    with pytest.raises(CheckpointError, match="layer 3 has 'intermediate_size' of its own"):
        read("LlamaForCausalLM", per_layer_config={"03": {"intermediate_size": 5}})


def test_what_gemma_4s_layers_are() -> None:
    """As the config.json of its checkpoints says it: E4B's and 31B's ways."""
    small = read("Gemma4ForCausalLM", **GEMMA4, num_kv_shared_layers=2, use_double_wide_mlp=True,
                 layer_types=["sliding_attention", "full_attention"] * 2)  # fmt: skip
    assert [small.attention.heads_of(layer).width for layer in range(4)] == [256, 512] * 2
    assert small.attention.kv_sources == (0, 1, 0, 1)
    assert small.attention_layers == (0, 1)
    assert [small.mlp.inner_of(layer) for layer in range(4)] == [128, 128, 256, 256]
    assert small.cached_elements == 2 * 2 * (256 + 512)
    assert (small.rotated_dim(), small.rotated_dim(local=True)) == (512, 256)
    large = read("Gemma4ForCausalLM", **(GEMMA4 | {"hidden_size_per_layer_input": 0}), attention_k_eq_v=True,
                 num_global_key_value_heads=1)  # fmt: skip
    assert [large.attention.heads_of(layer) for layer in (0, 3)] == [(2, 256), (1, 512)]
    assert large.attention.keys_as_values == (False, False, False, True)
    assert large.attention.windows == (512, 512, 512, None)


@pytest.mark.parametrize(
    ("architecture", "values", "said"),
    [
        ("DeepseekV3ForCausalLM", {"rope_interleave": False}, "rotates halves"),
        ("DeepseekV3ForCausalLM", {"n_group": 8, "topk_group": 4}, "no two best ones"),
        ("Glm4MoeForCausalLM", {"n_group": 4, "topk_group": 5}, "in 5 of 4 groups"),
        ("Glm4MoeLiteForCausalLM", {"mlp_layer_types": ["dense", "other", "sparse", "sparse"]}, "'other' is not one"),
        ("Glm4MoeForCausalLM", {"partial_rotary_factor": 0.0}, "a share up to 1"),
        ("Lfm2ForCausalLM", {"conv_bias": True}, "convolutions have biases"),
        ("Lfm2ForCausalLM", {"layer_types": ["conv"] * 4}, "none of its layers has attention"),
        ("Lfm2ForCausalLM", {"full_attn_idxs": 3}, "not a list of layers"),
        ("Lfm2ForCausalLM", {"layer_types": ["conv"] * 3 + ["full_attention"], "conv_L_cache": 1}, "from 2 to 64"),
        ("Ministral3ForCausalLM", {"rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.1}}, "where on"),
    ],
)
def test_what_this_years_families_cannot_be(architecture: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        read(architecture, num_key_value_heads=4, **(EXPERTS | {"first_k_dense_replace": 1} | values))


def test_an_unknown_architecture_is_named_beside_those_known() -> None:
    with pytest.raises(CheckpointError, match=r"MambaForCausalLM.*Llama, .*Gemma2, .*Phi3, .*OPT, .*BertModel"):
        family("MambaForCausalLM")


def test_unstated_key_value_heads_are_the_heads() -> None:
    assert read("LlamaForCausalLM").attention.num_kv_heads == 4


def test_mistral_windows() -> None:
    assert read("MistralForCausalLM", sliding_window=32).attention.windows == (32,) * 4
    assert read("MistralForCausalLM", sliding_window=None).attention.windows == (None,) * 4
    assert read("MistralForCausalLM").attention.windows == (4096,) * 4


def test_qwen_windows() -> None:
    stated = {"sliding_window": 32, "max_window_layers": 3}
    assert read("Qwen2ForCausalLM", **stated).attention.windows == (None,) * 4
    assert read("Qwen2ForCausalLM", use_sliding_window=True, **stated).attention.windows == (None, None, None, 32)
    types = ["sliding_attention", "full_attention"] * 2
    assert (
        read("Qwen2ForCausalLM", use_sliding_window=True, layer_types=types, **stated).attention.windows
        == (32, None) * 2
    )
    with pytest.raises(CheckpointError, match="linear_attention"):
        read("Qwen3ForCausalLM", layer_types=["linear_attention"] * 4)


def test_smollm3_layers_without_rotation() -> None:
    assert read("SmolLM3ForCausalLM").positions.rotary == (True, True, True, False)
    assert read("SmolLM3ForCausalLM", no_rope_layers=[1, 0, 1, 0]).positions.rotary == (True, False, True, False)
    with pytest.raises(CheckpointError, match="no_rope_layers"):
        read("SmolLM3ForCausalLM", no_rope_layers=[1])


def test_rope_from_either_place() -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
    new = read("LlamaForCausalLM", rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **llama3})
    old = read("LlamaForCausalLM", rope_theta=5e5, rope_scaling={"type": "llama3", **llama3})
    assert new.positions.rope == old.positions.rope
    rope = new.positions.rope
    assert (rope.theta, rope.kind, rope.factor) == (5e5, "llama3", 8.0)


def test_yarn_takes_its_factor_from_the_contexts() -> None:
    rope = read(
        "Qwen2ForCausalLM", rope_scaling={"type": "yarn", "original_max_position_embeddings": 1024}
    ).positions.rope
    assert rope.factor == 4.0
    assert read("LlamaForCausalLM", rope_scaling=None).positions.rope.kind == "default"


def test_gemma_2_caps_and_windows() -> None:
    config = read("Gemma2ForCausalLM", query_pre_attn_scalar=144)
    assert config.attention.windows == (4096, None) * 2
    assert (config.attention.softcap, config.scales.logit_softcap, config.attention.scale) == (50.0, 30.0, 1 / 12)
    assert config.unit_offset_norms
    plain = read("Gemma2ForCausalLM", attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=None)
    assert (plain.attention.softcap, plain.scales.logit_softcap, plain.attention.windows) == (None, None, (None,) * 4)


def test_gemma_3_rotations_from_either_place() -> None:
    """Older files: one scaling, which belongs to the layers without a window, beside two bases."""
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = read("Gemma3ForCausalLM", rope_theta=5e5, rope_scaling=scaling, rope_local_base_freq=300.0)
    new = read("Gemma3ForCausalLM", rope_parameters={
        "full_attention": scaling | {"rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    })  # fmt: skip
    assert (new.positions.rope, new.positions.local_rope) == (old.positions.rope, old.positions.local_rope)
    rope = old.positions.rope
    assert (rope.kind, rope.factor, rope.theta) == ("linear", 8.0, 5e5)
    assert old.positions.local_rope == RopeConfig(300.0)
    silent = read("Gemma3ForCausalLM", num_hidden_layers=6, attn_logit_softcapping=50.0)
    assert (silent.positions.rope.theta, silent.positions.local_rope) == (1e6, RopeConfig(1e4))
    assert silent.positions.local == (True,) * 5 + (False,)
    assert silent.attention.windows == (4096,) * 5 + (None,)
    assert (silent.attention.softcap, silent.scales.logit_softcap) == (None, None)
    assert read("Gemma3ForCausalLM", sliding_window_pattern=2).positions.local == (True, False) * 2
    types = ["full_attention", "sliding_attention"] * 2
    assert read("Gemma3ForCausalLM", layer_types=types, sliding_window=None).positions.local == (False, True) * 2


def test_which_layers_have_experts() -> None:
    def sparse(**values: Any) -> tuple[bool, ...]:
        moe = read("Qwen3MoeForCausalLM", **EXPERTS, **values).moe
        assert moe is not None
        return moe.sparse

    assert sparse() == (True,) * 4
    assert sparse(decoder_sparse_step=2) == (False, True) * 2
    assert sparse(decoder_sparse_step=2, mlp_only_layers=[1]) == (False, False, False, True)


def test_experts_of_either_name() -> None:
    new = read("Qwen3MoeForCausalLM", num_local_experts=16, moe_intermediate_size=32, norm_topk_prob=True).moe
    old = read("Qwen3MoeForCausalLM", num_experts=16, moe_intermediate_size=32, norm_topk_prob=True).moe
    assert new == old
    assert old is not None
    assert (old.num_experts, old.experts_per_token, old.intermediate_size, old.normalised) == (16, 8, 32, True)
    mixtral = read("MixtralForCausalLM", num_local_experts=8).moe
    assert mixtral is not None
    assert (mixtral.experts_per_token, mixtral.intermediate_size, mixtral.names.experts) == (2, 128, ("w1", "w3", "w2"))


def test_gpt_oss_where_the_file_is_silent() -> None:
    config = read("GptOssForCausalLM", num_local_experts=32)
    assert config.attention.windows == (128, None) * 2
    rope = config.positions.rope
    assert (rope.kind, rope.theta, rope.factor, rope.truncate) == ("yarn", 15e4, 32, False)
    assert config.attention.sinks
    assert config.moe is not None
    assert (config.moe.experts_per_token, config.moe.swiglu_limit, config.moe.routing) == (4, 7.0, "chosen")


LONG = {"short_factor": [1.0] * 8, "long_factor": [4] * 8}


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_phi_3_longrope(kind: str) -> None:
    """Served up to the original context; the factor is the extension where the file has none."""
    old = read("Phi3ForCausalLM", rope_scaling={"type": kind, **LONG}, original_max_position_embeddings=1024)
    rope, longest = old.positions.rope, old.positions.max_position
    assert (rope.kind, rope.factor, rope.original_max_position, longest) == ("longrope", 4, 1024, 1024)
    assert (rope.factors, rope.long_factors) == ((1.0,) * 8, (4.0,) * 8)
    new = read("Phi3ForCausalLM", rope_parameters={
        "rope_type": kind, "rope_theta": 10000.0, "original_max_position_embeddings": 1024, **LONG
    })  # fmt: skip
    assert new.positions.rope == old.positions.rope


def test_phi_3_rotates_a_part_of_each_head() -> None:
    assert read("Phi3ForCausalLM", partial_rotary_factor=0.75).positions.rope.width(16) == 12
    assert read("Phi3ForCausalLM").attention.windows == (None,) * 4
    assert read("Phi3ForCausalLM").positions.max_position == 4096
    with pytest.raises(CheckpointError, match="only a part"):
        read("LlamaForCausalLM", partial_rotary_factor=0.75)


V2_LITE: dict[str, Any] = {
    "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 27, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
    "first_k_dense_replace": 1, "n_routed_experts": 64,
    "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408, "topk_method": "greedy",
    "norm_topk_prob": False, "scoring_func": "softmax", "n_group": 1, "topk_group": 1,
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707,
    "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096},
}  # fmt: skip


def test_deepseek_v2_lite() -> None:
    """The softmax scale is that of the release: 192^-0.5 times the square of 0.1 * 0.707 * ln 40 + 1."""
    config = read("DeepseekV2ForCausalLM", **V2_LITE)
    assert config.attention.latent == LatentShape(512, 128, 64, 128, None)
    assert (config.attention.head_dim, config.attention.num_kv_heads, config.rotated_dim()) == (192, 1, 64)
    assert config.attention.scale == pytest.approx(192**-0.5 * (0.1 * 0.707 * math.log(40) + 1) ** 2)
    assert config.moe is not None
    assert read("DeepseekV2ForCausalLM", **V2_LITE | {"first_k_dense_replace": 27}).moe is None
    assert read("DeepseekV2ForCausalLM", **V2_LITE | {"n_routed_experts": None}).moe is None
    assert (config.moe.shared_size, config.moe.groups, config.moe.share_scale) == (2816, 1, 1.0)
    assert config.moe.sparse == (False, *[True] * 26)
    assert kv_bytes_per_token(config, torch.bfloat16) == 31_104
    assert new_store(config, 2, torch.bfloat16, "meta").bytes_per_token() == 31_104
    assert read("DeepseekV2ForCausalLM", **V2_LITE | {"rope_scaling": None}).attention.scale == 192**-0.5


@pytest.mark.parametrize(
    ("architecture", "values", "said"),
    [
        ("Gemma2ForCausalLM", {"use_bidirectional_attention": True}, "left to right"),
        ("Gemma2ForCausalLM", {"hidden_activation": "silu"}, "silu"),
        ("Gemma2ForCausalLM", {"hidden_activation": ["gelu"]}, "gelu"),
        ("Gemma2ForCausalLM", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ("Gemma2ForCausalLM", {"attn_logit_softcapping": 0.0}, "attn_logit_softcapping"),
        ("Gemma2ForCausalLM", {"final_logit_softcapping": "high"}, "final_logit_softcapping"),
        ("Gemma3ForCausalLM", {"rope_parameters": {"sliding_attention": 7}}, "rope parameters"),
        ("Gemma3ForCausalLM", {"rope_local_base_freq": -1.0}, "rope_local_base_freq"),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.07}, "pairs"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope"}}, "short_factor"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "su", **LONG, "long_factor": [0.0] * 8}}, "long_factor"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "su", **LONG, "long_factor": [1.0] * 7}}, "7 numbers where 8"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "su", **LONG, "attention_factor": "x"}}, "attention_factor"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "su", **LONG, "short_factor": [10**400] * 8}}, "short_factor"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "su", **LONG}, "original_max_position_embeddings": 1},
            "original",
        ),
        ("MixtralForCausalLM", {}, "num_local_experts"),
        ("MixtralForCausalLM", {"num_local_experts": 0}, "num_local_experts"),
        ("MixtralForCausalLM", {"num_local_experts": 10**6}, "num_local_experts"),
        ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 5}, "choose 5 of 4 experts"),
        ("Qwen3MoeForCausalLM", {"num_experts": 4}, "choose 8 of 4 experts"),
        ("Qwen3MoeForCausalLM", EXPERTS | {"mlp_only_layers": [4]}, "mlp_only_layers"),
        ("Qwen3MoeForCausalLM", EXPERTS | {"mlp_only_layers": 1}, "mlp_only_layers"),
        ("Qwen3MoeForCausalLM", EXPERTS | {"moe_intermediate_size": 0}, "moe_intermediate_size"),
        ("GptOssForCausalLM", EXPERTS | {"swiglu_limit": 0}, "swiglu_limit"),
        ("GptOssForCausalLM", EXPERTS | {"layer_types": ["full_attention"]}, "layer_types"),
        ("LlamaForCausalLM", {"rope_theta": 10**400}, "rope_theta"),
        ("LlamaForCausalLM", {"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2.0}}, "too small"),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "llama3", "factor": 2.0, "low_freq_factor": 0}}, "too small"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("DeepseekV2ForCausalLM", {"num_key_value_heads": 2}, "share keys and values"),
        ("DeepseekV2ForCausalLM", EXPERTS | {"topk_method": "noaux_tc"}, "noaux_tc"),
        ("DeepseekV2ForCausalLM", EXPERTS | {"scoring_func": "sigmoid"}, "sigmoid"),
        ("DeepseekV2ForCausalLM", EXPERTS | {"norm_topk_prob": True}, "normalises"),
        ("DeepseekV2ForCausalLM", EXPERTS | {"moe_layer_freq": 2}, "spreads"),
        ("DeepseekV2ForCausalLM", EXPERTS | {"topk_method": "group_limited_greedy"}, "n_group"),
        (
            "DeepseekV2ForCausalLM",
            EXPERTS | {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 1},
            "3 groups",
        ),
        ("DeepseekV2ForCausalLM", {}, "n_routed_experts"),
        ("DeepseekV2ForCausalLM", {"qk_rope_head_dim": 7}, "pairs"),
        ("DeepseekV2ForCausalLM", {"kv_lora_rank": None, "v_head_dim": "wide"}, "v_head_dim"),
        ("DeepseekV2ForCausalLM", {"q_lora_rank": 0}, "q_lora_rank"),
        ("GraniteForCausalLM", {"logits_scaling": 0}, "logits_scaling"),
        ("GraniteForCausalLM", {"hidden_act": "relu"}, "relu"),
        ("OPTForCausalLM", {"do_layer_norm_before": False, "ffn_dim": 8}, "OPT-350m.*Choose another size"),
        ("OPTForCausalLM", {"word_embed_proj_dim": 32, "ffn_dim": 8}, "OPT-350m.*Choose another size"),
        ("OPTForCausalLM", {"layer_norm_elementwise_affine": False, "ffn_dim": 8}, "norms have no weights"),
        ("OPTForCausalLM", {"ffn_dim": 8, "num_attention_heads": 3}, "divide"),
        ("OPTForCausalLM", {}, "ffn_dim"),
        ("BertModel", {"num_attention_heads": 3}, "divide"),
        ("BertModel", {"is_decoder": True}, "it is a decoder"),
        ("BertModel", {"position_embedding_type": "relative_key"}, "relative positions"),
        ("BertModel", {"type_vocab_size": 3}, "types of tokens"),
        ("RobertaModel", {"pad_token_id": 5}, "begin in another way"),
    ],
)
def test_what_a_family_cannot_be_is_refused(architecture: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        read(architecture, **values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"linear_num_key_heads": 5, "linear_num_value_heads": 8}, "8 value heads cannot share 5 key heads"),
        ({"layer_types": ["linear_attention"] * 4}, "none of its layers has attention"),
        ({"layer_types": ["linear_attention", "mamba"] * 2}, "'mamba'"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim"),
        ({"linear_key_head_dim": "wide"}, "linear_key_head_dim"),
        ({"full_attention_interval": 0}, "full_attention_interval"),
    ],
)
def test_states_that_cannot_be_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        read("Qwen3_5ForCausalLM", **values)


def test_every_fourth_layer_of_qwen_attends_where_the_file_is_silent() -> None:
    shape = read("Qwen3_5ForCausalLM", num_hidden_layers=8).recurrent
    assert shape is not None
    assert shape.layers == (True, True, True, False) * 2


def test_olmo_hybrids_states_where_the_file_is_silent() -> None:
    config = read("OlmoHybridForCausalLM", num_hidden_layers=8)
    assert config.positions.rotary == (False,) * 8
    assert config.recurrent == RecurrentShape((True, True, True, False) * 2, 4, 4, 12, 24, 4, share_scale=2.0)
    assert read("OlmoHybridForCausalLM", rope_theta=500.0).positions.rotary == (True,) * 4
    with pytest.raises(CheckpointError, match="2 value heads have 4 key heads"):
        read("OlmoHybridForCausalLM", linear_num_value_heads=2)


KIMI = EXPERTS | {
    "linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1, 2, 4], "num_heads": 3, "head_dim": 16,
                           "short_conv_kernel_size": 5},
    "model_max_length": 77, "moe_renormalize": True, "num_expert_group": 2, "topk_group": 1, "num_experts_per_token": 3,
    "num_shared_experts": 2, "first_k_dense_replace": 1, "head_dim": 72, "n_routed_experts": None,
    "max_position_embeddings": None,
}  # fmt: skip
"""As the config.json of its checkpoints says it."""


def test_what_kimi_linear_is() -> None:
    config = read("KimiLinearForCausalLM", **KIMI)
    layers = True, True, False, True
    assert config.recurrent == RecurrentShape(layers, 3, 3, 16, 16, 5, channel_decays=True)
    positions = config.positions
    assert (positions.rotary, positions.max_position, config.attention.head_dim) == ((False,) * 4, 77, 192)
    moe = config.moe
    assert moe is not None
    assert (moe.num_experts, moe.experts_per_token, moe.groups, moe.shared_size) == (8, 3, 2, 256)
    assert moe.sparse == (False, True, True, True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"linear_attn_config": [1]}, "linear_attn_config"),
        ({"linear_attn_config": {"full_attn_layers": 3, "kda_layers": [1]}}, "not lists of layers"),
        ({"linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1, 2, 3, 4]}}, "each of the 4 layers once"),
        ({"linear_attn_config": {"num_heads": "many"}}, "num_heads"),
        ({"linear_attn_config": None, "layer_types": ["linear_attention"] * 4}, "none of its layers has attention"),
        ({"moe_router_activation_func": "softmax"}, "moe_router_activation_func"),
    ],
)
def test_a_kimi_linear_that_cannot_be_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        read("KimiLinearForCausalLM", **(KIMI | values))


def test_what_a_laguna_is() -> None:
    own = {"num_attention_heads_per_layer": [4, 2, 2, 8], "num_key_value_heads": 2, "sliding_window": 9,
           "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]}  # fmt: skip
    config = read("LagunaForCausalLM", **EXPERTS, **own)
    heads = config.attention
    assert (heads.num_heads, heads.heads_per_layer, heads.windows) == (8, (4, 2, 2, 8), (None, 9, 9, None))
    assert config.moe is not None
    assert config.moe.sparse == (False, True, True, True)
    assert config.positions.rope.partial == 0.5
    assert config.attention.head_gate == HeadGate("softplus")


@pytest.mark.parametrize(
    ("architecture", "values", "named"),
    [
        ("LagunaForCausalLM", {"gating": "per-layer"}, "gating"),
        ("LagunaForCausalLM", {"gating": False}, "gating"),
        ("LagunaForCausalLM", {"num_attention_heads_per_layer": [2, 3, 2, 2]}, "3 attention heads cannot share 2"),
        ("LagunaForCausalLM", {"num_attention_heads_per_layer": [2]}, "num_attention_heads_per_layer"),
        ("LagunaForCausalLM", {"moe_apply_router_weight_on_input": True}, "moe_apply_router_weight_on_input"),
        ("LagunaForCausalLM", {"moe_router_logit_softcapping": 3.0}, "moe_router_logit_softcapping"),
        ("Lfm3ForCausalLM", {"conv_bias": True}, "convolutions have biases"),
        ("Lfm3ForCausalLM", {"use_sandwich_norm": False}, "use_sandwich_norm"),
        ("Lfm3ForCausalLM", {"layer_types": ["conv"] * 4}, "none of its layers has attention"),
        ("Ernie4_5_MoeForCausalLM", {"moe_num_experts": 4}, "choose 6 of 4"),
        ("Qwen3NextForCausalLM", {"mlp_only_layers": [0, 1, 2, 3]}, "none of its layers has experts"),
        ("Qwen3NextForCausalLM", {"linear_num_value_heads": 5}, "5 value heads cannot share"),
        ("MellumForCausalLM", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
    ],
)
def test_what_these_families_cannot_be(architecture: str, values: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        read(architecture, **(EXPERTS | {"num_key_value_heads": 2} | values))


def test_olmo_3s_older_files_scale_layers_without_a_window() -> None:
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}
    config = read("Olmo3ForCausalLM", rope_theta=3000.0, rope_scaling=scaling)
    assert config.attention.windows == (4096, 4096, 4096, None)
    rope, local = config.positions.rope, config.positions.local_rope
    assert (rope.kind, rope.theta, local) == ("yarn", 3000.0, RopeConfig(3000.0))


@pytest.mark.parametrize("architecture", list(MAMBA))
def test_what_layers_of_mamba_are(architecture: str) -> None:
    config = read(architecture, **EXPERTS, **MAMBA[architecture])
    states, granite = config.recurrent, architecture.startswith("Granite")
    assert isinstance(states, MambaShape)
    layers = (True, True, False, True) if granite else (True, False, False, False)
    assert states == MambaShape(layers, heads=8, width=16, groups=2, state=32, kernel=4)
    assert (states.channels, states.matrix) == (256, (8, 32, 16))
    assert config.attention_layers == (2,)
    assert not any(config.positions.rotary)
    assert config.moe is not None
    assert config.moe.sparse == ((True,) * 4 if granite else (False, True, False, False))
    assert config.mlp.only == (() if granite else (False, True, False, True))


def test_either_way_to_say_what_a_nemotrons_layers_are() -> None:
    own = EXPERTS | MAMBA["NemotronHForCausalLM"] | {"hybrid_override_pattern": None}
    for kinds in (["mamba", "moe", "attention", "mlp"], ["linear_attention", "moe", "full_attention", "mlp"]):
        found = read("NemotronHForCausalLM", **(own | {"layers_block_type": kinds, "num_hidden_layers": None}))
        assert found == read("NemotronHForCausalLM", **(own | {"hybrid_override_pattern": "ME*-"}))


def test_steps_of_mamba_have_ends_where_the_file_says_so() -> None:
    own = EXPERTS | MAMBA["GraniteMoeHybridForCausalLM"]
    for stated, limits in (([0.0, {"__float__": "Infinity"}], (0.0, math.inf)), ([0.001, math.inf], (0.001, math.inf)),
                           ([0, 0.5], (0.0, 0.5)), (None, (0.0, math.inf))):  # fmt: skip
        shape = read("GraniteMoeHybridForCausalLM", **(own | {"time_step_limit": stated})).recurrent
        assert isinstance(shape, MambaShape)
        assert shape.limits == limits


def test_heads_of_granite_4_share_what_is_expanded() -> None:
    own = EXPERTS | MAMBA["GraniteMoeHybridForCausalLM"]
    for stated in ("auto", None):
        shape = read("GraniteMoeHybridForCausalLM", **(own | {"mamba_d_head": stated, "mamba_expand": 3})).recurrent
        assert isinstance(shape, MambaShape)
        assert shape.width == 24


@pytest.mark.parametrize(
    ("architecture", "values", "named"),
    [
        ("GraniteMoeHybridForCausalLM", {"layer_types": ["mamba"] * 4}, "none of its layers has attention"),
        ("GraniteMoeHybridForCausalLM", {"layer_types": None}, "none of its layers has attention"),
        ("GraniteMoeHybridForCausalLM", {"layer_types": ["mamba", "conv"] * 2}, "'conv'"),
        ("GraniteMoeHybridForCausalLM", {"mamba_n_groups": 3}, "8 heads with states cannot share 3 groups"),
        ("GraniteMoeHybridForCausalLM", {"mamba_d_state": "wide"}, "mamba_d_state"),
        ("GraniteMoeHybridForCausalLM", {"mamba_d_conv": 1}, "mamba_d_conv"),
        ("GraniteMoeHybridForCausalLM", {"mamba_d_head": "automatic"}, "mamba_d_head"),
        ("GraniteMoeHybridForCausalLM", {"mamba_n_heads": None}, "mamba_n_heads"),
        ("GraniteMoeHybridForCausalLM", {"num_local_experts": 1}, "choose 2 of 1"),
        ("GraniteMoeHybridForCausalLM", {"time_step_limit": [1.0, 0.5]}, "time_step_limit"),
        ("GraniteMoeHybridForCausalLM", {"time_step_limit": [0.0]}, "time_step_limit"),
        ("GraniteMoeHybridForCausalLM", {"time_step_limit": [0.0, True]}, "time_step_limit"),
        ("GraniteMoeHybridForCausalLM", {"time_step_limit": ["0", 1]}, "time_step_limit"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "M*X"}, "'X'"),
        ("NemotronHForCausalLM", {"layers_block_type": ["mamba", 7]}, "layer type 7"),
        ("NemotronHForCausalLM", {"layers_block_type": ["mamba", ["moe"]]}, "layer type"),
        ("NemotronHForCausalLM", {"layers_block_type": 4}, "layers_block_type"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "MM-E"}, "none of its layers has attention"),
        ("NemotronHForCausalLM", {"n_groups": 5}, "8 heads with states cannot share 5 groups"),
        ("NemotronHForCausalLM", {"mamba_hidden_act": "gelu"}, "gelu"),
        ("NemotronHForCausalLM", {"mlp_hidden_act": "gelu"}, "gelu"),
        ("NemotronHForCausalLM", {"n_group": 5}, "no two best ones"),
        ("NemotronHForCausalLM", {"moe_shared_expert_intermediate_size": None}, "moe_shared_expert_intermediate_size"),
        ("NemotronHForCausalLM", {"moe_latent_size": 0}, "moe_latent_size"),
    ],
)
def test_mamba_that_cannot_be_is_refused_by_name(architecture: str, values: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        read(architecture, **(EXPERTS | MAMBA[architecture] | values))
