"""Token tables that stay in the model's file: what is held, that rows are the same, and which are held after all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.base.errors import CheckpointError
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.formats.load import Checkpoint, load_model
from engine.formats.open import open_checkpoint
from engine.formats.safetensors import TensorFiles
from engine.library.paths import bundled_model
from engine.loading.advice.trial import trial
from engine.protocol import Set
from tests.conformance.gguf_models import KIND, Shape, write
from tests.kit.checkpoints import write_small
from tests.kit.hosts import generate, load
from tests.kit.listener import Listener

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def both(checkpoint: Checkpoint, dtype: torch.dtype, weights: str = "4bit") -> tuple[CausalLM, CausalLM]:
    """The model with its table in memory, and with it in the file, where that makes a difference."""
    plain, mapped = (replace(checkpoint, tables_in_file=in_file) for in_file in (False, True))
    models = load_model(plain, CPU, dtype, weights), load_model(mapped, CPU, dtype, weights)
    tokens = torch.arange(checkpoint.config.vocab_size)
    assert torch.equal(*(model.embedding.forward(tokens) for model in models))
    assert mapped.resident_bytes(dtype, weights) == models[1].storage_size()
    assert models[0].bytes_read_per_step() == models[1].bytes_read_per_step()
    return models


def table_bytes(checkpoint: Checkpoint, dtype: torch.dtype) -> int:
    return checkpoint.config.vocab_size * checkpoint.config.hidden_size * dtype.itemsize


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_of_its_own_takes_no_memory(tmp_path: Path, dtype: torch.dtype, stored: torch.dtype) -> None:
    folder = write_small(tmp_path / "model", tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(stored) for name, tensor in tensors.items()}, folder / "model.safetensors")
    checkpoint = open_checkpoint(folder, need_tokenizer=False)
    plain, mapped = both(checkpoint, dtype)
    assert plain.storage_size() - mapped.storage_size() == table_bytes(checkpoint, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_that_is_the_head_is_held_once(dtype: torch.dtype) -> None:
    plain, mapped = both(open_checkpoint(bundled_model().path, need_tokenizer=False), dtype)
    assert mapped.head.tied
    assert mapped.storage_size() == plain.storage_size()


def test_next_to_a_head_in_8_bits_a_tied_table_stays_in_the_file() -> None:
    checkpoint = open_checkpoint(bundled_model().path, need_tokenizer=False).with_int8_head()
    plain, mapped = both(checkpoint, torch.bfloat16)
    assert plain.storage_size() - mapped.storage_size() == table_bytes(checkpoint, torch.bfloat16)
    assert torch.equal(*(model.head.dequantised(torch.float32) for model in (plain, mapped)))


@pytest.mark.parametrize("weights", ["4bit", "4bit_torch", "16bit"])
@pytest.mark.parametrize(
    ("types", "tied", "held"),
    [
        ({"": KIND.Q4_0}, False, {"16bit"}),
        ({"": KIND.Q4_0, "token_embd": KIND.Q6_K}, False, {"16bit"}),
        ({"": KIND.Q4_0, "token_embd": KIND.BF16}, False, set()),
        ({"": KIND.Q4_0, "token_embd": KIND.BF16}, True, {"4bit", "4bit_torch", "16bit"}),
        ({"": KIND.Q4_0, "token_embd": KIND.Q6_K}, True, {"4bit", "4bit_torch", "16bit"}),
    ],
    ids=["as the others", "of another type", "in 16 bits", "tied in 16 bits", "tied and packed"],
)
def test_tables_of_gguf_files(tmp_path: Path, types: dict[str, KIND], tied: bool, held: set[str], weights: str) -> None:
    write(tmp_path / "model.gguf", Shape("llama", types, tied=tied))
    plain, mapped = both(open_checkpoint(tmp_path / "model.gguf", need_tokenizer=False), torch.bfloat16, weights)
    assert (mapped.storage_size() == plain.storage_size()) is (weights in held)


def test_a_file_may_be_deleted_while_its_model_is_loaded(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "model", tie_word_embeddings=False)
    expected, mapped = both(open_checkpoint(folder, need_tokenizer=False), torch.float32)
    shutil.rmtree(folder)
    tokens = torch.arange(9)
    assert torch.equal(mapped.embedding.forward(tokens), expected.embedding.forward(tokens))


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_a_file_cut_short_before_its_table_is_read(tmp_path: Path, kind: str) -> None:
    if kind == "gguf":
        file = folder = tmp_path / "model.gguf"
        write(file, Shape("llama", {"": KIND.Q4_0}, tied=False))
    else:
        folder = write_small(tmp_path / "model", tie_word_embeddings=False)
        file = folder / "model.safetensors"
    checkpoint = replace(open_checkpoint(folder, need_tokenizer=False), tables_in_file=True)
    with file.open("r+b") as stream:
        stream.truncate(4096)
    with pytest.raises(CheckpointError, match=r"truncated|cut short"):
        load_model(checkpoint, CPU, torch.float32)


def test_the_switch_loads_the_model_again(heard: Listener, tmp_path: Path) -> None:
    engine = load(heard, write_small(tmp_path / "model", tie_word_embeddings=False))
    answers, sizes = [], []
    for value in ("file", "memory"):
        engine.submit(Set(key="token_table", value=value))
        engine.step()
        assert not heard.errors
        assert engine.loaded is not None
        answers.append(generate(heard, engine))
        sizes.append(engine.loaded.fit.weights)
    assert answers[0] == answers[1]
    assert sizes[1] - sizes[0] == table_bytes(engine.loaded.files.checkpoint, engine.loaded.model.dtype)


def test_the_switch_is_off_where_the_table_is_the_head(heard: Listener) -> None:
    engine = load(heard, bundled_model().path)
    spec = next(spec for spec in engine.catalogue_state() if spec.key == "token_table")
    assert "output head" in spec.disabled_reason


def test_a_trial_makes_up_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does all numbers: the file may be holes, whose rows are all alike."""
    folder = write_small(tmp_path / "model", tie_word_embeddings=False)
    checkpoint = replace(open_checkpoint(folder, need_tokenizer=False), tables_in_file=True)
    monkeypatch.delattr(TensorFiles, "in_file")
    assert trial(checkpoint, CPU, torch.float32, "4bit", Numerics()).step > 0
