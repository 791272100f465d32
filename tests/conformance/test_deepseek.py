"""DeepSeek-V2 beyond its logits: packed checkpoints, and the whole engine over a cache of latents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.cache.stores.store import LatentKVStore
from engine.doors.cli.doctor import attention_kernels
from engine.formats.open import open_checkpoint
from engine.protocol import Sampling
from tests.conformance.engine_support import Ours
from tests.conformance.gptq_packer import Packing, quantise
from tests.conformance.packed_support import (
    PROMPT,
    TOLERANCE,
    VOCABULARY,
    Parts,
    assert_planned,
    compare,
    likeliest,
    save,
)
from tests.conformance.texts import LONGER_SAMPLINGS as SAMPLINGS
from tests.conformance.texts import prompts, same
from tests.kit.checkpoints import EOS, write_model
from tests.kit.hosts import Host

pytestmark = pytest.mark.usefixtures("one_thread")
SHAPE: dict[str, Any] = {
    "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
    "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "q_lora_rank": None,
    "first_k_dense_replace": 1, "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "routed_scaling_factor": 1.5,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 0.707,
                        "mscale_all_dim": 0.707, "original_max_position_embeddings": 64},
}  # fmt: skip


def gptq(folder: Path, options: dict[str, Any]) -> transformers.PreTrainedModel:
    """Every linear module packed, the experts' too; the head, the router and the token table are not."""
    rng = np.random.default_rng(3)

    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        if name == "lm_head":
            return None
        tensors, stands_for = quantise(weight.numpy(), Packing(), rng)
        return {key: torch.from_numpy(value) for key, value in tensors.items()}, torch.from_numpy(stands_for)

    stated = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
    torch.manual_seed(0)
    model = save(folder, pack, stated, "DeepseekV2", options)
    pack_experts(folder / "model.safetensors", model, pack)
    return model


@torch.no_grad()
def pack_experts(file: Path, model: transformers.PreTrainedModel, pack: Any) -> None:
    """transformers holds experts in stacks, which are no modules; in packed files each is one of its own."""
    tensors = load_file(file)
    for name, parameter in model.named_parameters():
        if parameter.dim() != 3:
            continue
        del tensors[name]
        prefix, _, kind = name.rpartition(".")
        names = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else ["down_proj"]
        for expert, weight in enumerate(parameter):
            for one, rows in zip(names, weight.chunk(len(names)), strict=True):
                packed, stands_for = pack(name, rows)
                tensors |= {f"{prefix}.{expert}.{one}.{key}": value for key, value in packed.items()}
                rows.copy_(stands_for)
    save_file(tensors, file)


@pytest.mark.parametrize("q_rank", [None, 96])
def test_gptq_logits_are_those_of_the_dequantised_weights(q_rank: int | None, tmp_path: Path) -> None:
    reference = gptq(tmp_path, SHAPE | {"q_lora_rank": q_rank})
    for weights in ("4bit", "16bit"):
        ours = Ours(tmp_path, weights=weights)
        assert compare(ours, reference) <= TOLERANCE
        text = ours.greedy(PROMPT, 20)
        assert text == likeliest(reference, text)
    ours = Ours(tmp_path)
    kinds = {name: linear.kind for name, linear in ours.model.linears()}
    packed = {name for name, kind in kinds.items() if kind == "int4"}
    assert kinds.keys() - packed == {"layers.1.router", "head"}
    assert_planned(ours, tmp_path)
    layer = ours.model.layers[0].attention  # type: ignore[attr-defined]
    stored = reference.model.layers[0].self_attn.kv_b_proj.weight.view(4, 64, 64)
    assert torch.equal(layer.up, torch.cat((stored[:, 32:], stored[:, :32]), 1))
    assert layer.storage_size() >= layer.up.numel() * 4


def test_gptq_in_bfloat16(tmp_path: Path) -> None:
    """All experts serve every row: which of two near-equal ones a router takes, the roundings of a path may turn."""
    reference = gptq(tmp_path, SHAPE | {"num_experts_per_tok": SHAPE["n_routed_experts"]})
    for invariant in (False, True):
        assert compare(Ours(tmp_path, torch.bfloat16, invariant=invariant), reference) <= 0.06


@torch.inference_mode()
def test_gptq_in_bfloat16_chooses_the_experts_of_float32(tmp_path: Path) -> None:
    """But for rows in which two of them are nearly equal: one in twenty at most."""
    reference = gptq(tmp_path, SHAPE)
    text = torch.randint(3, VOCABULARY, (65,), generator=torch.Generator().manual_seed(5)).tolist()
    expected = reference(torch.tensor([text])).logits[0]
    for invariant in (False, True):
        found = Ours(tmp_path, torch.bfloat16, invariant=invariant).logits([text])[0]
        off = (found.float() - expected).abs().amax(1) > 0.06 * expected.abs().max()
        assert int(off.sum()) <= len(text) // 20


def test_doctor_names_both_forms(tmp_path: Path) -> None:
    gptq(tmp_path, SHAPE)
    model = open_checkpoint(tmp_path, need_tokenizer=False).planned(torch.float32)
    model.device = torch.device("cpu")
    parts = {kernel.part: kernel for kernel in attention_kernels(model)}
    assert [kernel.chosen for kernel in parts.values()] == ["sdpa"] * 4
    assert {"attention to latents", "attention to expanded latents, trees"} <= parts.keys()


def write_deepseek(folder: Path, noise: float = 0.0) -> None:
    options = SHAPE | {"hidden_size": 64, "initializer_range": 0.12}
    config = transformers.DeepseekV2Config(
        **options, vocab_size=EOS + 1, intermediate_size=96, max_position_embeddings=512, eos_token_id=EOS,
        bos_token_id=None,
    )  # fmt: skip
    write_model(folder, lambda: transformers.DeepseekV2ForCausalLM(config), noise=noise)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    folder = tmp_path_factory.mktemp("models")
    write_deepseek(folder / "target")
    write_deepseek(folder / "draft", 0.08)
    return Host(folder / "target", str(folder / "draft"), memory=300e6, speculation="off")


def test_the_engine_keeps_latents(host: Host) -> None:
    """And says how many bytes of them a token takes, in the fit that the window shows too."""
    loaded = host.engine.loaded
    assert loaded is not None
    store = loaded.runner.kv
    assert isinstance(store, LatentKVStore)
    assert store.bytes_per_token() == loaded.reads.kv_per_token == 2 * (64 + 16) * 4
    assert loaded.fit.kv == loaded.pages * 16 * 2 * loaded.reads.kv_per_token  # the draft's are as many again


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_text_is_the_same_however_it_is_made(host: Host, kind: str, batch: int) -> None:
    texts, sampling = prompts(batch), SAMPLINGS[kind]
    plain = host.answer(texts, sampling)
    assert len(set(plain[0].tokens)) > 3
    for chunk in (1, 7, 64):
        assert same(host.answer(texts, sampling, chunk), plain)
    assert same(host.answer(texts, sampling, kv_cache=False), plain)
    for speculation in ("draft", "ngram"):
        assert same(host.answer(texts, sampling, speculation=speculation, draft_length=4), plain)


def test_drafts_were_made_and_some_held(host: Host) -> None:
    """Otherwise the equality above would say nothing."""
    found = host.answer(prompts(4), SAMPLINGS["greedy"], speculation="draft", draft_length=4)
    assert {"draft", "corrected"} <= {source for outcome in found for source in outcome.sources}
    copying = [[*prompts(1)[0][:6]] * 4]
    found = host.answer(copying, Sampling(temperature=0.0, max_tokens=60), speculation="ngram", draft_length=4)
    assert sum(len(step.drafts[0].proposed) for step in host.steps if step.drafts) > 0
    assert same(found, host.answer(copying, Sampling(temperature=0.0, max_tokens=60)))
