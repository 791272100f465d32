"""An answer that one engine process began is finished by another, token for token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import transformers
from msgspec.structs import replace

from engine.loop.model_cache import ModelCache
from engine.protocol import LoadOptions, keys
from engine.services.client import EngineClient, EngineError
from tests.kit import forked
from tests.kit.checkpoints import EOS, write_llama, write_model
from tests.kit.hand_over import PLAIN, PROMPT, SAMPLINGS, begun, load

ROOT = Path(__file__).resolve().parents[3]
TINY = {"vocab_size": EOS + 1, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512, "eos_token_id": EOS,
        "bos_token_id": None, "initializer_range": 0.12}  # fmt: skip
GEMMA = transformers.Gemma3TextConfig(
    **TINY, sliding_window=32, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=32
)
HYBRID = transformers.Qwen3_5TextConfig(
    **TINY, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=32,
    layer_types=["linear_attention", "full_attention"],
)  # fmt: skip
FAMILIES: dict[str, Callable[[Path], Path]] = {
    "plain": lambda folder: write_llama(folder, head_dim=32),
    "window": lambda folder: write_model(folder, lambda: transformers.Gemma3ForCausalLM(GEMMA)),
    "state": lambda folder: write_model(folder, lambda: transformers.Qwen3_5ForCausalLM(HYBRID)),
}


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    with EngineClient(device="cpu") as client:
        yield client


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write(tmp_path_factory.mktemp(name)) for name, write in FAMILIES.items()}


@pytest.mark.slow
def test_another_process_begins_and_this_one_finishes(folders: dict[str, Path], client: EngineClient) -> None:
    """Greedy and drawn, with pages, slots of windows, states and recent tokens; nothing of the prompt is read again."""
    command = [sys.executable, "-m", "tests.kit.hand_over", *map(str, folders.values())]
    forked.run(command, cwd=ROOT).check_returncode()
    for folder in folders.values():
        load(client, folder)
        for name, sampling in SAMPLINGS.items():
            found = client.go_on((folder / name).read_bytes(), PROMPT, sampling, PLAIN)
            alone = client.answer(PROMPT, replace(sampling, seed=found.usage.seed), PLAIN)
            assert found.ids == alone.ids
            assert [step.rows.decode for step in found.steps] == [1] * 33
            assert not any(step.rows.prefill for step in found.steps)
            assert found.usage.cached_tokens == found.usage.prompt_tokens == len(PROMPT)


def test_what_cannot_be_gone_on_with_is_refused_with_a_sentence(folders: dict[str, Path], client: EngineClient) -> None:
    sampling = SAMPLINGS["greedy"]
    load(client, folders["plain"])
    whole = begun(client, sampling)
    refused = [
        (whole[:-1], PROMPT, 40, "cut off or changed"),
        (whole[:200] + b"?" + whole[201:], PROMPT, 40, "cut off or changed"),
        (b"", PROMPT, 40, "cut off or changed"),
        (whole, [*PROMPT[:-1], 1], 40, "another prompt"),
        (whole, PROMPT, 7, "all the tokens"),
    ]
    for data, prompt, most, sentence in refused:
        with pytest.raises(EngineError, match=sentence):
            client.go_on(data, prompt, replace(sampling, max_tokens=most), PLAIN)
    client.load(str(folders["plain"]), options=LoadOptions(context=len(PROMPT) + 5))
    with pytest.raises(EngineError, match="a longer context"):
        client.go_on(whole, PROMPT, sampling, PLAIN)
    client.set(keys.KV_KIND, "int8")
    with pytest.raises(EngineError, match="another cache"):
        client.go_on(whole, PROMPT, sampling, PLAIN)
    load(client, folders["window"])
    with pytest.raises(EngineError, match="begun by another model"):
        client.go_on(whole, PROMPT, sampling, PLAIN)
    assert len(client.answer(PROMPT, sampling, PLAIN).ids) == 40


def test_an_answer_that_cannot_be_packed_ends_alone(
    folders: dict[str, Path], client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no memory")

    load(client, folders["plain"])
    monkeypatch.setattr(ModelCache, "handed_over", full)
    with pytest.raises(EngineError, match="could not be handed over"):  # else the whole loop fails, by another sentence
        begun(client, SAMPLINGS["greedy"])
    assert len(client.answer(PROMPT, SAMPLINGS["greedy"], PLAIN).ids) == 40
