"""The output head in 8 bits: what is held and read, how close it is, when it stays as it is, and the switch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.compute.layers.linear.dense import Dense
from engine.formats.load import Checkpoint, load_model
from engine.formats.open import open_checkpoint
from engine.library.paths import bundled_model
from engine.protocol import Set
from tests.conformance.gguf_models import KIND, Shape, write
from tests.kit.checkpoints import write_small
from tests.kit.hosts import generate, load
from tests.kit.listener import Listener

CPU = torch.device("cpu")


def tied() -> Checkpoint:
    return open_checkpoint(bundled_model().path, need_tokenizer=False)


def untied(folder: Path) -> Checkpoint:
    """The bundled model with a head of its own, other than its token table."""
    source = Path(bundled_model().path)
    folder.mkdir()
    tensors = load_file(source / "model.safetensors")
    table = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = table.flip(0).contiguous()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((source / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder, need_tokenizer=False)


@pytest.mark.parametrize("weights", ["4bit", "4bit_torch", "16bit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_of_its_own_takes_a_byte_a_weight(tmp_path: Path, dtype: torch.dtype, weights: str) -> None:
    checkpoint = untied(tmp_path / "untied")
    rows, columns = checkpoint.config.vocab_size, checkpoint.config.hidden_size
    plain, packed = (load_model(each, CPU, dtype, weights) for each in (checkpoint, checkpoint.with_int8_head()))
    assert checkpoint.with_int8_head().resident_bytes(dtype, weights) == packed.storage_size()
    saved = rows * columns * (dtype.itemsize - 1) - 4 * rows
    assert plain.storage_size() - packed.storage_size() == saved
    assert plain.bytes_read_per_step() - packed.bytes_read_per_step() == saved
    assert not plain.head.tied
    # A code is off by half a step at most, and a step is a 127th of a row's largest weight.
    weight = load_file(checkpoint.path / "model.safetensors")["lm_head.weight"].float()
    steps = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((packed.head.dequantised(torch.float32) - weight).abs() <= 0.501 * steps).all())


def test_a_tied_head_is_held_besides_the_token_table() -> None:
    plain, packed = (load_model(each, CPU, torch.bfloat16) for each in (tied(), tied().with_int8_head()))
    rows, columns = plain.config.vocab_size, plain.config.hidden_size
    assert plain.head.tied
    assert not packed.head.tied
    assert packed.storage_size() - plain.storage_size() == rows * columns + 4 * rows
    assert plain.bytes_read_per_step() - packed.bytes_read_per_step() == rows * columns - 4 * rows
    assert torch.equal(packed.embedding.forward(torch.arange(9)), plain.embedding.forward(torch.arange(9)))


def test_a_head_that_the_file_packs_stays(tmp_path: Path) -> None:
    checkpoint = untied(tmp_path / "untied")
    assert checkpoint.with_int8_head().int8_head
    config = json.loads((checkpoint.path / "config.json").read_text())
    tensors = load_file(checkpoint.path / "model.safetensors")
    down = "model.layers.0.self_attn.o_proj"  # 256 to 256, four times as many output features as words
    tensors.pop("lm_head.weight")
    for name in ("qweight", "qzeros", "scales"):
        tensors[f"lm_head.{name}"] = tensors[f"{down}.{name}"].repeat(1, 16).contiguous()
    save_file(tensors, checkpoint.path / "model.safetensors")
    config["quantization_config"]["lm_head"] = True
    (checkpoint.path / "config.json").write_text(json.dumps(config))
    packed = open_checkpoint(checkpoint.path, need_tokenizer=False)
    assert not packed.dense_head
    assert not packed.with_int8_head().int8_head


def test_the_switch_loads_the_model_again(heard: Listener) -> None:
    engine = load(heard, bundled_model().path)
    assert engine.loaded is not None
    before = engine.loaded
    engine.submit(Set(key="output_head", value="int8"))
    engine.step()
    assert not heard.errors
    assert engine.loaded.model.head.kind != "dense"
    assert engine.loaded.reads.weights < before.reads.weights
    assert engine.loaded.fit.weights == engine.loaded.model.storage_size()
    spec = next(spec for spec in engine.catalogue_state() if spec.key == "output_head")
    assert (spec.value, spec.exactness, spec.disabled_reason) == ("int8", "approximate", "")
    assert len(generate(heard, engine)) == 20
    engine.submit(Set(key="packed_kernel", value="torch"))
    engine.step()
    assert isinstance(engine.loaded.model.head, Dense), "PyTorch has no product of 8-bit rows"


def test_a_quantised_model_keeps_no_head(heard: Listener, tmp_path: Path) -> None:
    """What is quantised by the load's own option comes from what an earlier load kept, and the head does not."""
    model = write_small(tmp_path / "model")
    answers = []
    for _ in range(2):
        engine = load(heard, model, quantise="int8")
        engine.submit(Set(key="output_head", value="int8"))
        engine.step()
        assert not heard.errors
        assert all(linear.kind != "dense" for _, linear in engine.loaded.model.linears())
        answers.append(generate(heard, engine))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("weights", ["4bit", "16bit"])
@pytest.mark.parametrize(
    ("types", "tied", "dense"),
    [
        ({"": KIND.Q4_0, "output": KIND.BF16}, False, True),
        ({"": KIND.Q4_0, "token_embd": KIND.BF16}, True, True),
        ({"": KIND.Q4_0, "output": KIND.Q6_K}, False, False),
        ({"": KIND.Q4_0}, True, False),
    ],
    ids=["of its own", "tied", "packed", "tied and packed"],
)
def test_heads_of_gguf_files(tmp_path: Path, types: dict[str, KIND], tied: bool, dense: bool, weights: str) -> None:
    write(tmp_path / "model.gguf", Shape("llama", types, tied=tied))
    checkpoint = open_checkpoint(tmp_path / "model.gguf", need_tokenizer=False)
    asked = checkpoint.with_int8_head()
    assert asked.int8_head is checkpoint.dense_head is dense
    plain, packed = (load_model(each, CPU, torch.bfloat16, weights) for each in (checkpoint, asked))
    assert asked.resident_bytes(torch.bfloat16, weights) == packed.storage_size()
    if not dense:
        assert packed.storage_size() == plain.storage_size()
        return
    assert packed.head.kind == "int8"
    expected = plain.head.dequantised(torch.float32)
    steps = expected.abs().amax(1, keepdim=True) / 127
    assert bool(((packed.head.dequantised(torch.float32) - expected).abs() <= 0.51 * steps).all())
    rows, columns = expected.shape
    saved = plain.bytes_read_per_step() - packed.bytes_read_per_step()
    assert 0.75 * rows * columns < saved <= rows * (columns - 4), "native code rounds the rows up to whole blocks"
