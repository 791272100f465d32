"""What fits, and who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import transformers

from engine.base.errors import CheckpointError
from engine.compute.models.registry import family
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import state_bytes
from engine.loading.memory import bandwidth
from engine.loading.memory.bandwidth import last_level_bytes, measure_bandwidth
from engine.loading.memory.estimate import (
    LEAST_STATES,
    STATE_SLOTS,
    MemoryPlan,
    OutOfMemory,
    activation_bytes,
    budget_bytes,
    kv_bytes_per_token,
    plan,
    size,
)
from engine.loading.memory.owners import memory_by_owner
from engine.loading.memory.probe import (
    NoSuchDevice,
    choose_device,
    choose_dtype,
    choose_kv_dtype,
    cpu_has_bfloat16,
    free_bytes,
    probe,
)
from engine.services.probes import MachineProbes

CPU = torch.device("cpu")
GB = 10**9


def test_budgets() -> None:
    assert budget_bytes(None, 10 * GB) == int(8.5 * GB)
    assert budget_bytes(0.5, 10 * GB) == 5 * GB
    assert budget_bytes(1, 10 * GB) == 10 * GB
    assert budget_bytes(3 * GB, 10 * GB) == 3 * GB
    assert budget_bytes(30 * GB, 10 * GB) == 10 * GB
    assert budget_bytes(0, 10 * GB) == 0


def _plan(**values: float) -> MemoryPlan:
    stated = {"weights": 4 * GB, "kv_bytes": 100_000, "activations": GB // 2, "context": 8192, "free": 10 * GB}
    return plan(**(stated | values))  # type: ignore[arg-type]


def test_pages_come_out_of_what_is_left() -> None:
    made = _plan(memory=6 * GB)
    assert made.pages == int(1.5 * GB // 1_600_000)
    assert made.fit.kv == made.pages * 1_600_000
    assert made.fit.kv_tokens == (made.pages - 1) * 16
    assert made.fit.weights + made.fit.activations + made.fit.kv <= made.fit.budget == 6 * GB
    assert made.context == 8192


def test_memory_may_set_the_context() -> None:
    made = _plan(memory=5 * GB)
    assert made.context == made.fit.kv_tokens < 8192
    assert made.context % 16 == 0


def test_plenty_of_memory_is_not_all_taken() -> None:
    assert _plan(free=900 * GB).pages == 8 * 512 + 1


def test_the_draft_counts_and_the_replaced_model_is_credited() -> None:
    assert _plan(draft_weights=GB).pages == _plan(weights=5 * GB).pages
    with pytest.raises(OutOfMemory):
        _plan(free=4 * GB)
    made = _plan(free=4 * GB, credit=6 * GB)
    assert made.fit.free == 10 * GB


def test_refusals_say_what_it_takes_and_what_to_do() -> None:
    with pytest.raises(OutOfMemory) as caught:
        _plan(memory=4 * GB)
    assert "takes 4.0 GB for its weights and 500 MB to work with, and 4.0 GB may be used of the 10.0 GB" in str(
        caught.value
    )
    assert str(caught.value).endswith("Raise the memory budget.")
    assert caught.value.fit.budget == 4 * GB
    with pytest.raises(OutOfMemory, match=r"Close other programs.*no draft model"):
        _plan(free=3 * GB, draft_weights=GB)


def test_a_short_context_needs_no_more_than_itself() -> None:
    made = _plan(context=64, weights=0, activations=0, memory=5 * 1_600_000)
    assert (made.pages, made.context) == (5, 64)


def test_recent_tokens_have_pages_of_their_own() -> None:
    """KIVI's: 10,000 bytes each where a packed one takes 2,000, and room for 32 answers beside a step of 2,048 rows."""
    recent = {"residual": 128, "recent_bytes": 10_000.0, "rows": 2048}
    plenty = _plan(kv_bytes=2_000.0, free=100 * GB, **recent)
    assert plenty.recent_pages == 1 + 32 * 11 + 128
    assert plenty.fit.kv == plenty.pages * 16 * 2_000 + plenty.recent_pages * 16 * 10_000
    tight = _plan(kv_bytes=2_000.0, memory=4.6 * GB, **recent)
    left = int(4.6 * GB) - tight.fit.weights - tight.fit.activations
    assert tight.recent_pages == 1 + int(0.25 * left / 160_000)
    assert tight.fit.kv <= left < tight.fit.kv + 32_000
    least = _plan(kv_bytes=2_000.0, memory=tight.fit.weights + tight.fit.activations + 0.005 * GB, **recent)
    assert least.recent_pages == 1 + 11 + 4, "an answer always has room for its recent tokens and 64 new ones"
    assert _plan().recent_pages == 0


QWEN_27B = {
    "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 248_320, "hidden_size": 5120, "intermediate_size": 17_408,
    "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48, "max_position_embeddings": 262_144,
}  # fmt: skip
"""What Qwen3.5-27B's configuration says of its shape."""


def test_of_a_hybrid_only_attention_layers_keep_tokens() -> None:
    """The plain formula, by the number of layers, would say four times as much for a token and nothing of states: 16 of
    64 layers with 4 heads of 256, and 48 states of 48 heads of 128 x 128 in float32."""
    shape = family("Qwen3_5ForCausalLM").read_config(RawConfig(QWEN_27B, Path("config.json")))
    assert kv_bytes_per_token(shape, torch.bfloat16) == 16 * 2 * 4 * 256 * 2
    assert shape.recurrent is not None
    assert state_bytes(shape.recurrent, torch.bfloat16) == 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)


DEEPSEEK_V31 = {
    "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129_280, "hidden_size": 7168, "intermediate_size": 18_432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3,
}  # fmt: skip
GLM_5 = DEEPSEEK_V31 | {
    "architectures": ["GlmMoeDsaForCausalLM"], "vocab_size": 154_880, "hidden_size": 6144, "intermediate_size": 12_288,
    "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048,
    "qk_nope_head_dim": 192, "v_head_dim": 256, "n_group": 1, "topk_group": 1, "index_topk": 2048,
    "index_head_dim": 128, "index_n_heads": 32, "head_dim": 64,
}  # fmt: skip
"""What the configurations of DeepSeek-V3.1 and GLM-5 say of their shape."""


def test_latents_and_index_keys_are_counted() -> None:
    """One latent and one rotated key a layer for all heads; and an index key where a layer ranks keys."""

    def kept(values: dict[str, Any]) -> float:
        raw = RawConfig(values, Path("config.json"))
        return kv_bytes_per_token(family(raw.architecture).read_config(raw), torch.bfloat16)

    assert kept(DEEPSEEK_V31) == 61 * (512 + 64) * 2
    assert kept(DEEPSEEK_V31 | {"architectures": ["DeepseekV32ForCausalLM"]}) == 61 * (512 + 64 + 128) * 2
    assert kept(GLM_5) == 78 * (512 + 64 + 128) * 2
    ranking = transformers.GlmMoeDsaConfig(index_topk_freq=4).indexer_types.count("full")
    assert kept(GLM_5 | {"index_topk_freq": 4}) == (78 * (512 + 64) + ranking * 128) * 2
    assert kept(GLM_5 | {"index_topk_pattern": "FSS" * 26}) == (78 * (512 + 64) + 26 * 128) * 2
    with pytest.raises(CheckpointError, match="indexer type 'X'"):
        kept(GLM_5 | {"index_topk_pattern": "FSX" * 26})
    with pytest.raises(CheckpointError, match="indexer_types"):
        kept(GLM_5 | {"indexer_types": ["full"]})


def test_states_have_slots_of_their_own() -> None:
    """As many as are wished for, at most their share of what is left, and always enough for one answer."""

    def planned(free: float, state: float) -> MemoryPlan:
        return plan(
            weights=0, kv_bytes=1000, activations=0, context=10_000, free=int(free), memory=1.0, state_bytes=int(state)
        )

    assert planned(100e6, 0).state_slots == 0
    assert planned(1e9, 1e6).state_slots == 1 + STATE_SLOTS
    few = planned(200e6, 5e6)
    assert few.state_slots == 1 + 10
    assert few.fit.states == 11 * 5e6
    assert few.fit.kv + few.fit.states <= few.fit.budget
    assert planned(60e6, 10e6).state_slots == 1 + LEAST_STATES
    with pytest.raises(OutOfMemory, match="states of its recurrent layers"):
        planned(20e6, 5e6)


def test_sizes_for_people() -> None:
    assert size(5_123_000_000) == "5.1 GB"
    assert size(740_400_000) == "740 MB"


def _config(hidden: int) -> ModelConfig:
    values = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": 2 * hidden, "head_dim": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    }  # fmt: skip
    return family("LlamaForCausalLM").read_config(RawConfig(values, Path("config.json")))


def test_estimates_follow_the_shape() -> None:
    small, large = _config(256), _config(512)
    assert kv_bytes_per_token(small, torch.bfloat16) == 2 * 2 * 2 * 16 * 2
    one = activation_bytes(small, torch.bfloat16, 1, 1)
    many = activation_bytes(small, torch.bfloat16, 512, 1)
    assert one < many < activation_bytes(large, torch.bfloat16, 512, 1)
    assert activation_bytes(small, torch.bfloat16, 512, 512) > many


def test_the_cpu_is_always_there() -> None:
    device = probe(choose_device("cpu"))
    assert device.kind == "cpu"
    assert "core" in device.name
    assert 0 < device.free_bytes <= device.total_bytes
    assert free_bytes(CPU) <= psutil.virtual_memory().total
    assert device.bandwidth is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_a_sentence() -> None:
    assert choose_device("auto") == CPU
    with pytest.raises(NoSuchDevice, match=r"There is no GPU.*Choose the device cpu"):
        choose_device("cuda")


def test_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_dtype(CPU, "float32").dtype == torch.float32
    assert (choose_dtype(CPU).dtype == torch.bfloat16) == cpu_has_bfloat16()
    monkeypatch.setattr("engine.loading.memory.probe.cpu_has_bfloat16", lambda: False)
    choice = choose_dtype(CPU)
    assert choice.dtype == torch.float32
    assert choice.notice.startswith("Computing in float32, because ")
    assert "bfloat16 instructions (AVX512-BF16 or AMX)" in choice.notice


def test_keys_and_values_take_16_bits_unless_float32_is_asked_for() -> None:
    assert choose_kv_dtype(torch.float32) == torch.bfloat16
    assert choose_kv_dtype(torch.float32, "float32") == torch.float32
    for dtype in (torch.bfloat16, torch.float16):
        assert choose_kv_dtype(dtype) == dtype


def test_last_level_caches_are_counted_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 4}, raising=False)
    assert last_level_bytes(tmp_path) == 0
    for core, shared, kilobytes in ((0, "0-3", "32768K"), (1, "0-3", "32768K"), (4, "4-7", "16384K"), (5, "4-7", "1K")):
        cache = tmp_path / f"cpu{core}" / "cache" / "index3"
        cache.mkdir(parents=True)
        (cache / "shared_cpu_list").write_text(shared + "\n", "utf-8")
        (cache / "size").write_text(kilobytes + "\n", "utf-8")
    assert last_level_bytes(tmp_path) == 48 << 20


def test_bandwidth_is_measured_once() -> None:
    found = measure_bandwidth(CPU)
    assert found > 1e8
    assert measure_bandwidth(CPU) == found


def test_a_measurement_ends_when_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next block of its buffer, whose first use takes many seconds on a busy machine."""
    monkeypatch.setattr(bandwidth, "known", {})
    asked = iter([False, False, True])
    with pytest.raises(bandwidth.MeasurementStopped):
        measure_bandwidth(CPU, lambda: next(asked))
    probes = MachineProbes("cpu")
    probes.stop()
    assert probes.bandwidth(None) is None
    assert not bandwidth.known


def test_memory_of_the_process_by_owner() -> None:
    resident = psutil.Process().memory_info().rss
    owners = memory_by_owner(CPU, weights=1000, kv_used=2000, kv_reserved=3000, kv_touched=2500)
    assert owners.scope == "process"
    assert (owners.weights, owners.kv_used, owners.kv_reserved) == (1000, 2000, 500), "what was never written is none"
    assert abs(owners.other_kvasir + 1000 + 2500 - resident) < 50e6
    assert owners.other_kvasir + owners.other_programs <= owners.total
    assert memory_by_owner(CPU, 1 << 50, 0, 0).other_kvasir == 0
