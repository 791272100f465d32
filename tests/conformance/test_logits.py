"""Each family's logits against transformers, float32 on a CPU, on tiny random checkpoints made here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_support import Ours, relative
from torch import Tensor

from engine.core.runner import SequenceRows

TOLERANCE = 1e-4
LENGTHS = (1, 5, 17, 40)
VOCABULARY = 160
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    options: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    shard: str = "1GB"


def _rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **values}}


LLAMA3 = _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
CASES = [
    Case("llama", "Llama"),
    Case("llama tied", "Llama", {"tie_word_embeddings": True}),
    Case("llama head_dim", "Llama", {"head_dim": 16}),
    Case("llama multi-head", "Llama", {"num_key_value_heads": 4}),
    Case("llama biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
    Case("llama 3 rope", "Llama", LLAMA3),
    Case("llama linear rope", "Llama", _rope("linear", factor=4.0)),
    Case("llama yarn", "Llama", _rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    Case("llama yarn mscale", "Llama", _rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0,
         mscale_all_dim=0.5, beta_fast=16.0, beta_slow=2.0, truncate=False)),
    Case("llama sharded", "Llama", shard="60KB"),
    Case("llama bf16 file", "Llama", dtype=torch.bfloat16),
    Case("llama fp16 file, tied, sharded", "Llama", {"tie_word_embeddings": True}, torch.float16, "30KB"),
    Case("mistral window", "Mistral", {"sliding_window": 8}),
    Case("mistral no window", "Mistral", {"sliding_window": None}),
    Case("qwen2", "Qwen2"),
    Case("qwen2 upper window", "Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    Case("qwen2 yarn", "Qwen2", _rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    Case("qwen3", "Qwen3", {"head_dim": 16}),
    Case("qwen3 tied, biases", "Qwen3", {"head_dim": 32, "tie_word_embeddings": True, "attention_bias": True}),
    Case("smollm3", "SmolLM3", {"no_rope_layer_interval": 2}),
]  # fmt: skip


def make(case: Case, folder: Path) -> transformers.PreTrainedModel:
    """Save a random checkpoint whose every parameter matters, and return transformers' model of the saved file."""
    torch.manual_seed(sum(case.name.encode()))
    config = getattr(transformers, f"{case.family}Config")(**(BASE | case.options))
    model = getattr(transformers, f"{case.family}ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.3 if name.endswith("bias") else 0.15)
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard)
    model = getattr(transformers, f"{case.family}ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


@torch.inference_mode()
def theirs(model: transformers.PreTrainedModel, prompt: list[int]) -> Tensor:
    return model(torch.tensor([prompt])).logits[0]


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in LENGTHS]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    reference = make(case, tmp_path)
    assert ("sharded" in case.name) == (tmp_path / "model.safetensors.index.json").is_file()
    ours = Ours(tmp_path)
    texts = prompts()
    expected = [theirs(reference, text) for text in texts]
    for found, want in zip(ours.logits(texts), expected, strict=True):
        assert relative(found, want) <= TOLERANCE
    for chunk in (1, 7, 16):
        assert relative(ours.chunked(texts[-1], chunk, sequence=3), expected[-1]) <= TOLERANCE


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_greedy_text_is_that_of_transformers(case: Case, tmp_path: Path) -> None:
    """64 tokens. Where the texts part, both candidates must have been tied within the tolerance."""
    reference = make(case, tmp_path)
    prompt = prompts()[2]
    found = Ours(tmp_path).greedy(prompt, 64)
    logits = theirs(reference, prompt + found)[len(prompt) - 1 : -1]
    chosen = logits.gather(1, torch.tensor(found)[:, None])[:, 0]
    gap = (logits.max(1).values - chosen) / logits.abs().max()
    assert float(gap.max()) <= TOLERANCE, f"token {int(gap.argmax())} differs by more than a near-tie"
    assert len(set(found)) > 4, "the text is too monotonous to show anything"


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3"])
def test_batch_invariant_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    options = {"sliding_window": 8} if family == "Mistral" else {}
    reference = make(Case(family, family, options), tmp_path)
    texts = prompts()
    for found, text in zip(Ours(tmp_path, invariant=True).logits(texts), texts, strict=True):
        assert relative(found, theirs(reference, text)) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_batch_invariant_logits_are_equal_bits(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """The same row alone, in one chunk, in chunks, and among others: the very same logits, in float32."""
    make(Case(family, family), tmp_path)
    ours = Ours(tmp_path, dtype, invariant=True)
    texts = prompts()
    batch = ours.logits(texts)
    assert batch[0].dtype == torch.float32
    for text, together in zip(texts, batch, strict=True):
        assert torch.equal(ours.logits([text])[0], together)
        for chunk in (1, 7, 16):
            assert torch.equal(ours.chunked(text, chunk, sequence=5), together)


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
