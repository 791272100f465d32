"""A model family in one file: Gemma, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GemmaConfig, GemmaForCausalLM

from engine.compute.models import registry
from tests.conformance.engine_support import Ours, relative
from tests.extending.busy_engine import PROMPTS, check
from tests.kit.checkpoints import ALPHABET, write_model

SIZES = {"vocab_size": len(ALPHABET) + 1, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 128,
         "initializer_range": 0.2, "eos_token_id": len(ALPHABET), "bos_token_id": None, "pad_token_id": 0}  # fmt: skip


@pytest.mark.slow
def test_a_model_family(tmp_path: Path) -> None:
    registry.register("GemmaForCausalLM", "tests.extending.gemma.family")
    folder = write_model(tmp_path / "gemma", lambda: GemmaForCausalLM(GemmaConfig(**SIZES)), ALPHABET, noise=0.2)
    with torch.inference_mode():
        theirs = GemmaForCausalLM.from_pretrained(folder)(torch.tensor([PROMPTS[0]])).logits[0]
    assert relative(Ours(folder).logits(PROMPTS[:1])[0], theirs) < 1e-4
    check(folder, {})
