"""A model whose layers differ (Gemma 4: widths, windows, shared caches) says the same text whatever the cache does.

In fp32, batch-invariant, as in test_cache_equality.py: chunks, prompts that begin alike, every kind of KV cache,
preemption, and drafts by n-grams, by some of its own layers and by a small model of its kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.protocol import Unload
from tests.conformance.hybrid_models import write_tokenizer
from tests.conformance.test_cache_equality import PROMPTS, SAMPLINGS, VARIANTS, Host, cases
from tests.conformance.test_speculation_equality import EOS

LOCAL, GLOBAL = "sliding_attention", "full_attention"
SHAPE: dict[str, Any] = {
    "vocab_size": EOS + 1,
    "vocab_size_per_layer_input": EOS + 1,
    "hidden_size": 64,
    "hidden_size_per_layer_input": 16,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "global_head_dim": 64,
    "layer_types": [LOCAL, LOCAL, LOCAL, GLOBAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "sliding_window": 40,
    "final_logit_softcapping": 20.0,
    "max_position_embeddings": 1024,
    "eos_token_id": EOS,
    "bos_token_id": None,
}
SMALL = SHAPE | {"num_hidden_layers": 2, "layer_types": [LOCAL, GLOBAL], "num_kv_shared_layers": 0}


def write_gemma(folder: Path, shape: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**shape))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(0.7, 1.3) if "norm" in name.rsplit(".", 2)[-2] else parameter.normal_(0, 0.12)
    model.save_pretrained(folder)
    write_tokenizer(folder)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    write_gemma(folder / "gemma", SHAPE)
    write_gemma(folder / "small", SMALL)
    host = Host(folder / "gemma", draft=str(folder / "small"))
    yield host
    host.engine.submit(Unload())
    host.engine.step()


@pytest.mark.parametrize(
    ("variant", "sampling"),
    cases("16bit-greedy", "int4-seeded", "kivi-seeded", "quest-seeded", "window-seeded", by=tuple(SAMPLINGS)),
)
def test_sharing_and_chunks(host: Host, variant: str, sampling: str) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, sampling)
    assert len({tuple(text) for text in expected}) > 2
    for budget in (512, 33, 16):
        assert host.texts(PROMPTS, SAMPLINGS[sampling], budget=budget) == expected


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("variant", ["16bit", pytest.param("int4", marks=pytest.mark.long)])
def test_preemption_at_random_moments(host: Host, variant: str, mode: str) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, "seeded")
    host.set(preemption=mode, host_cache=1.0)
    ids = host.ask(PROMPTS, SAMPLINGS["seeded"])
    assert host.run(100, random.Random(1)) > 2
    assert host.of(ids) == expected
    host.set(preemption="auto", host_cache=0.0)


@pytest.mark.parametrize("method", ["ngram", "exit", "skip", "draft"])
@pytest.mark.parametrize("variant", ["16bit", pytest.param("quest", marks=pytest.mark.long)])
def test_drafts_change_nothing(host: Host, method: str, variant: str) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, "seeded")
    drafted: set[str] = set()
    for length in (1, 4):
        ids = host.ask(PROMPTS, SAMPLINGS["seeded"], speculation=method, draft_length=length)
        host.run()
        assert host.of(ids) == expected
        drafted |= {source for id in ids for source in host.sources[id]}
    assert drafted > {"target"}
