"""Encoders against transformers: states of every token, pooled as sentence-transformers does."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    Gemma3TextConfig,
    Gemma3TextModel,
    PreTrainedModel,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from engine.base.errors import CheckpointError
from engine.base.files import POOLING_FILE
from engine.cache.stores.kinds import KVKind
from engine.config.pooling import Pooling
from engine.decoding.speculation.proposers.layer_choice import read_choice
from engine.formats.open import open_checkpoint
from engine.formats.pooling import DENSE, read_projections
from engine.loading.files import ModelFiles
from engine.loading.parts.target import ROWS, TargetPart
from engine.loading.placement import DevicePlacement
from engine.loop.commands import AddRequest
from engine.loop.events import Embedded
from engine.protocol import LoadOptions, Sampling
from tests.conformance.encoder_models import WORDS, write_bert
from tests.conformance.gguf_models import VOCABULARY, plain_tokenizer
from tests.kit.checkpoints import LETTERS, write_model
from tests.kit.hosts import Host
from tests.kit.servers import Serving

SHAPE: dict[str, Any] = {"vocab_size": len(LETTERS) + 1, "hidden_size": 64, "intermediate_size": 96,
                         "num_hidden_layers": 3, "num_attention_heads": 4, "initializer_range": 0.12}  # fmt: skip
ROBERTA = SHAPE | {"max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1}
MODELS: dict[str, Any] = {
    "bert": lambda: BertModel(BertConfig(**SHAPE, max_position_embeddings=64)),
    "bert, relu": lambda: BertModel(BertConfig(**SHAPE, max_position_embeddings=64, hidden_act="relu")),
    "roberta": lambda: RobertaModel(RobertaConfig(**ROBERTA)),
    "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**ROBERTA)),
    "embeddinggemma": lambda: Gemma3TextModel(
        Gemma3TextConfig(
            **SHAPE | {"num_hidden_layers": 4}, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16,
            max_position_embeddings=64, sliding_window=16, sliding_window_pattern=2, use_bidirectional_attention=True,
        )
    ),
    "qwen3-embedding": lambda: Qwen3Model(
        Qwen3Config(**SHAPE, num_key_value_heads=2, head_dim=16, max_position_embeddings=128)
    ),
}  # fmt: skip
PROMPTS = [[2 + (7 * place + length) % (len(LETTERS) - 2) for place in range(length)] for length in (1, 5, 40, 64)]


def write(folder: Path, name: str, pooling: dict[str, Any] | None = None) -> PreTrainedModel:
    made: list[PreTrainedModel] = []

    def make() -> PreTrainedModel:
        made.append(MODELS[name]())
        return made[0]

    write_model(folder, make, noise=0.3)
    if pooling is not None:
        (folder / POOLING_FILE).parent.mkdir()
        (folder / POOLING_FILE).write_text(json.dumps({"word_embedding_dimension": 64} | pooling))
    return made[0].eval()


def expected(model: PreTrainedModel, prompt: list[int], pooling: Pooling) -> np.ndarray:
    with torch.inference_mode():
        found = model(torch.tensor([prompt])).last_hidden_state[0]
    return {"mean": found.mean(0), "last": found[-1], "cls": found[0]}[pooling].numpy()


def embedded(host: Host, prompts: list[list[int]], pooling: Pooling, name: str = "e") -> list[np.ndarray]:
    ids = [f"{name}{number}" for number in range(len(prompts))]
    for id, prompt in zip(ids, prompts, strict=True):
        host.engine.submit(AddRequest(id, prompt, Sampling(max_tokens=1), pooling=pooling))
    host.run(budget=48)
    found = {event.id: event.vector for event in host.heard.others if isinstance(event, Embedded)}
    return [found[id] for id in ids]


@pytest.mark.parametrize("name", MODELS)
def test_alone_and_together_as_transformers_has_it(tmp_path: Path, name: str) -> None:
    """The longest have more tokens than a step has, and as many as the model has positions."""
    model = write(tmp_path, name)
    with Host(tmp_path) as host:
        for pooling in ("mean", "last", "cls"):
            together = embedded(host, PROMPTS, pooling, pooling)
            (alone,) = embedded(host, PROMPTS[2:3], pooling, f"alone {pooling}")
            for found, prompt in zip([*together, alone], [*PROMPTS, PROMPTS[2]], strict=True):
                np.testing.assert_allclose(found, expected(model, prompt, pooling), atol=5e-6)
        assert any(host.cached.values()) == (not host.stepper.model.encodes), "no part of a whole is found again"


def test_memory_is_planned_for_a_text_that_is_read_in_one_step(tmp_path: Path) -> None:
    write(tmp_path, "bert")
    files = ModelFiles.open(str(tmp_path), None)
    part, _ = TargetPart.find(files, read_choice([], 3), "none", False)
    place = DevicePlacement.choose(LoadOptions(device="cpu"), "cpu", "4bit", KVKind())
    assert part.size(place, 2 * ROWS).working > part.size(place, ROWS).working


def test_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a text to its vector by way of the server; a chat is refused."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    model = write(tmp_path / "tiny", "bert")
    serving = Serving(tmp_path / "tiny")
    try:
        with serving.http() as http:
            body = {"input": ["keys", "values"], "model": "tiny", "encoding_format": "base64", "normalize": False}
            while (answer := http.post("/v1/embeddings", json=body)).status_code == 503:
                time.sleep(0.01)  # until it is loaded
            data = answer.raise_for_status().json()["data"]
            for text, each in zip(body["input"], data, strict=True):
                ids = [LETTERS.index(letter) for letter in text]
                found = np.frombuffer(base64.b64decode(each["embedding"]), "<f4")
                np.testing.assert_allclose(found, expected(model, ids, "mean"), atol=5e-6)
            chat = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "keys"}]})
            assert (chat.status_code, chat.json()["error"]["code"]) == (400, "encoder")
            assert http.get("/v1/models").json()["data"][0]["capabilities"] == ["embedding"]
    finally:
        serving.stop()


def test_an_encoder_writes_no_text(tmp_path: Path) -> None:
    write(tmp_path, "bert")
    with Host(tmp_path) as host:
        host.ask([PROMPTS[1]], Sampling(max_tokens=3))
        host.engine.step()
        (error,) = host.heard.errors
        assert (error.code, "makes embeddings and writes no text" in error.message) == ("encoder", True)
        host.heard.errors.clear()
        host.engine.submit(AddRequest("long", [5] * 65, Sampling(max_tokens=1), pooling="mean"))
        host.engine.step()
        (error,) = host.heard.errors
        assert error.code == "prompt_too_long"


@pytest.mark.parametrize(
    ("said", "pooling"),
    [
        (None, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_the_checkpoint_names_its_pooling(tmp_path: Path, said: dict[str, Any] | None, pooling: str) -> None:
    write(tmp_path, "bert", said)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.pooling == pooling
    assert checkpoint.notices == ()


@pytest.mark.parametrize(
    "said", [{"pooling_mode_max_tokens": True}, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {}]
)
def test_a_pooling_that_is_not_here_is_refused(tmp_path: Path, said: dict[str, Any]) -> None:
    write(tmp_path, "bert", said)
    with pytest.raises(CheckpointError, match="names a pooling that Kvasir does not have"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("activation", ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"])
def test_dense_layers_after_the_pooling(tmp_path: Path, activation: str) -> None:
    """As EmbeddingGemma has them: without bias, wider in between; and as others do, with one."""
    model = write(tmp_path, "bert", {"pooling_mode_mean_tokens": True})
    layers = [torch.nn.Linear(64, 96, bias=False), torch.nn.Linear(96, 32)]
    for number, layer in enumerate(layers, 2):
        folder = tmp_path / f"{number}_Dense"
        folder.mkdir()
        sizes = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None}
        (folder / "config.json").write_text(json.dumps(sizes | {"activation_function": activation}))
        save_file({f"linear.{name}": each for name, each in layer.state_dict().items()}, folder / "model.safetensors")
    with torch.inference_mode():
        pooled = model(torch.tensor([PROMPTS[1]])).last_hidden_state[0].mean(0)
        for layer in layers:
            pooled = layer(pooled) if activation.endswith("Identity") else torch.tanh(layer(pooled))
    with Host(tmp_path) as host:
        (found,) = embedded(host, PROMPTS[1:2], "mean")
        assert host.stepper.model.embedding_size == 32
    np.testing.assert_allclose(found, pooled.numpy(), atol=5e-6)


def test_dense_layers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "2_Dense"
    folder.mkdir()
    save_file({"linear.weight": torch.zeros(3, 2)}, folder / "model.safetensors")
    for sizes, activation, said in (((2, 3), "Identity", "are not those"), ((3, 2), "ReLU", "has the activation")):
        values = {"out_features": sizes[0], "in_features": sizes[1], "activation_function": f"torch.nn.{activation}"}
        (folder / "config.json").write_text(json.dumps(values))
        with pytest.raises(CheckpointError, match=said):
            read_projections(tmp_path, torch.device("cpu"))


def test_a_gguf_file_has_the_same_states_and_tokens(tmp_path: Path) -> None:
    config = BertConfig(**SHAPE | {"vocab_size": len(WORDS)}, max_position_embeddings=64)
    torch.manual_seed(0)
    model = BertModel(config).eval()
    write_bert(tmp_path / "tiny.gguf", model)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    words = BertTokenizer.from_pretrained(tmp_path)
    with Host(tmp_path / "tiny.gguf") as host:
        loaded = host.stepper.model
        assert loaded.files is not None
        assert loaded.pooling == "cls"
        for text in ("The keys", "holding values, the KEY", "Große 好key", "[SEP] the", ""):
            assert loaded.files.tokenizer.encode(text) == words(text)["input_ids"], text
        prompt = words("The keys holding, the value")["input_ids"]
        (found,) = embedded(host, [prompt], "cls")
    np.testing.assert_allclose(found, expected(model, prompt, "cls"), atol=5e-6)


def test_embeddinggemma_in_gguf(tmp_path: Path) -> None:
    """Windows, norms that the converter adds 1 to, and the dense layers after the pooling."""
    shape = SHAPE | {"vocab_size": VOCABULARY, "num_hidden_layers": 6}
    own = {"num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16, "max_position_embeddings": 64}
    config = Gemma3TextConfig(**shape, **own, sliding_window=16, use_bidirectional_attention=True)
    torch.manual_seed(0)
    model = Gemma3TextModel(config).eval()
    dense = [torch.randn(96, 64), torch.randn(64, 96)]
    file = tmp_path / "gemma.gguf"
    writer = gguf.GGUFWriter(str(file), "gemma-embedding")
    for add, value in (
        (writer.add_block_count, 6), (writer.add_context_length, 64), (writer.add_embedding_length, 64),
        (writer.add_feed_forward_length, 96), (writer.add_head_count, 4), (writer.add_head_count_kv, 1),
        (writer.add_key_length, 16), (writer.add_value_length, 16), (writer.add_layer_norm_rms_eps, 1e-6),
        (writer.add_rope_freq_base, 1e6), (writer.add_sliding_window, 16),
        (writer.add_pooling_type, gguf.PoolingType.MEAN),
    ):  # fmt: skip
        add(value)
    plain_tokenizer(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA_EMBEDDING, 6)
    for name, tensor in model.state_dict().items():
        stored = tensor + 1 if name.endswith("norm.weight") else tensor
        writer.add_tensor(names.get_name(f"model.{name}", (".weight",)), stored.numpy())
    for name, tensor in zip(DENSE, dense, strict=True):
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with torch.inference_mode():
        pooled = model(torch.tensor([PROMPTS[2]])).last_hidden_state[0].mean(0)
        wanted = (dense[1] @ (dense[0] @ pooled)).numpy()
    with Host(file) as host:
        loaded = host.stepper.model
        assert (loaded.pooling, loaded.encodes, loaded.embedding_size) == ("mean", True, 64)
        assert loaded.card.notices == []
        (found,) = embedded(host, PROMPTS[2:3], "mean")
    np.testing.assert_allclose(found, wanted, atol=1e-4)
