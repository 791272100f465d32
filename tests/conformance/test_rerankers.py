"""Models that rank documents against transformers: classifiers of encoders and decoders, and "yes" or "no"."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

from engine.base.errors import CheckpointError
from engine.formats.open import open_checkpoint
from engine.formats.ranking import CUT
from engine.loop.commands import AddRequest
from engine.loop.events import Embedded
from engine.protocol import Sampling
from engine.text.ranking import judge_prompt, pair_prompt
from tests.conformance.encoder_models import WORDS, write_bert, write_out
from tests.conformance.gguf_models import VOCABULARY, plain_tokenizer
from tests.kit.checkpoints import LETTERS
from tests.kit.hosts import Host
from tests.kit.servers import Serving

TOKENS = ["<s>", "<pad>", "</s>", "yes", "no", *LETTERS, " ", "\n"]
SHAPE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "initializer_range": 0.2, "num_labels": 1}  # fmt: skip
BERT = SHAPE | {"vocab_size": len(WORDS), "max_position_embeddings": 64}
ROBERTA = SHAPE | {"vocab_size": len(TOKENS), "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1}
QWEN = SHAPE | {"vocab_size": len(TOKENS), "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
                "pad_token_id": 1}  # fmt: skip
MODELS: dict[str, Any] = {
    "bert": lambda: BertForSequenceClassification(BertConfig(**BERT)),
    "roberta": lambda: RobertaForSequenceClassification(RobertaConfig(**ROBERTA)),
    "xlm-roberta": lambda: XLMRobertaForSequenceClassification(XLMRobertaConfig(**ROBERTA)),
    "qwen3-classifier": lambda: Qwen3ForSequenceClassification(Qwen3Config(**QWEN)),
    "Qwen3-Reranker-tiny": lambda: Qwen3ForCausalLM(Qwen3Config(**QWEN, tie_word_embeddings=True)),
    "Qwen3-Reranker-tiny, own head": lambda: Qwen3ForCausalLM(Qwen3Config(**QWEN, tie_word_embeddings=False)),
}
PAIRS = [
    ("the key", "holding values"),
    ("the keys, the keys", "value"),
    ("grosse key", "the value, the key holding the"),
]
PROMPT = (  # as Qwen's model card has it
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n'
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)  # fmt: skip
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def write(folder: Path, name: str) -> tuple[PreTrainedModel, Any]:
    """The model, and its tokenizer in transformers."""
    torch.manual_seed(0)
    model: PreTrainedModel = MODELS[name]().eval()
    torch.nn.init.normal_(next(model.parameters()), std=0.3)
    model.save_pretrained(folder)
    if name == "bert":
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        words: Any = BertTokenizer.from_pretrained(folder)
    else:
        inner = tokenizers.Tokenizer(
            tokenizers.models.BPE(vocab={token: id for id, token in enumerate(TOKENS)}, merges=[])
        )
        inner.decoder = tokenizers.decoders.ByteLevel()
        if "roberta" in name:
            around = [("<s>", 0), ("</s>", 2)]
            inner.post_processor = TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", around)
        words = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>")
    words.save_pretrained(folder)
    return model, words


def logit(model: PreTrainedModel, words: Any, pair: tuple[str, str]) -> float:
    """By transformers alone."""
    query, document = pair
    if model.config.model_type == "qwen3":
        text = PROMPT.format(instruction=INSTRUCTION, query=query, document=document)
        given = {"input_ids": torch.tensor([words(text, add_special_tokens=False)["input_ids"]])}
    else:
        given = words(query, document, return_tensors="pt")
        if "type_vocab_size" in model.config.to_dict() and model.config.type_vocab_size == 1:
            given.pop("token_type_ids", None)
    with torch.inference_mode():
        found = model(**given).logits
    return float(found[0, -1, 3] - found[0, -1, 4] if found.ndim == 3 else found[0, 0])


def logits(host: Host, pairs: Sequence[tuple[str, str]], name: str = "r") -> list[float]:
    loaded = host.stepper.model
    assert loaded.files is not None
    ids = [f"{name}{number}" for number in range(len(pairs))]
    for id, pair in zip(ids, pairs, strict=True):
        prompt = (pair_prompt if loaded.encodes else judge_prompt)(loaded.files.tokenizer, *pair)
        host.engine.submit(
            AddRequest(id, prompt.ids, Sampling(max_tokens=1), pooling=loaded.pooling, second=prompt.typed)
        )
    host.run(budget=48)
    found = {event.id: event.vector for event in host.heard.others if isinstance(event, Embedded)}
    assert all(each.shape == (1,) for each in found.values())
    return [float(found[id][0]) for id in ids]


@pytest.mark.parametrize("name", MODELS)
def test_alone_and_together_as_transformers_has_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name.partition(",")[0]
    model, words = write(folder, name)
    expected = [logit(model, words, pair) for pair in PAIRS]
    assert min(abs(one - other) for one, other in itertools.pairwise(expected)) > 1e-3
    with Host(folder) as host:
        assert host.stepper.model.ranks
        assert not any("does not use" in notice for notice in host.stepper.model.card.notices)
        np.testing.assert_allclose(logits(host, PAIRS), expected, atol=1e-5)
        for number, pair in enumerate(PAIRS):
            np.testing.assert_allclose(logits(host, [pair], f"alone{number}"), expected[number], atol=1e-5)


def test_only_models_that_are_made_for_it_rank(tmp_path: Path) -> None:
    write(tmp_path / "another", "Qwen3-Reranker-tiny")
    assert not open_checkpoint(tmp_path / "another").ranks, "its name does not say so"
    three = BertForSequenceClassification(BertConfig(**BERT | {"num_labels": 3}))
    three.save_pretrained(tmp_path / "three")
    with pytest.raises(CheckpointError, match="sorts texts into 3 classes"):
        open_checkpoint(tmp_path / "three", need_tokenizer=False)
    three.bert.save_pretrained(tmp_path / "none")
    config = (tmp_path / "none" / "config.json").read_text()
    (tmp_path / "none" / "config.json").write_text(config.replace("BertModel", "BertForSequenceClassification"))
    with pytest.raises(CheckpointError, match="lack its classifier"):
        open_checkpoint(tmp_path / "none", need_tokenizer=False)


@pytest.mark.parametrize("whole", [True, False])
def test_an_encoder_in_gguf(tmp_path: Path, whole: bool) -> None:
    """llama.cpp's converter leaves out the layer in front of BERT's classifier, which is told."""
    model, words = write(tmp_path / "bert", "bert")
    assert isinstance(model, BertForSequenceClassification)
    others = {f"cls.output.{name}": each.detach() for name, each in model.classifier.named_parameters()}
    pooler = model.bert.pooler
    assert pooler is not None
    if whole:
        others |= {f"cls.{name}": each.detach() for name, each in pooler.dense.named_parameters()}
    file = tmp_path / "tiny.gguf"
    write_bert(file, model.bert, others)
    with Host(file) as host:
        found = logits(host, PAIRS)
        told = CUT.format(name=file.name) in host.stepper.model.card.notices
    if whole:
        np.testing.assert_allclose(found, [logit(model, words, pair) for pair in PAIRS], atol=1e-5)
    assert told != whole


def test_qwen3_reranker_in_gguf(tmp_path: Path) -> None:
    """Whose classifier are the head's rows of "yes" and "no"."""
    torch.manual_seed(0)
    config = Qwen3Config(**QWEN | {"vocab_size": VOCABULARY}, tie_word_embeddings=True)
    model = Qwen3ForCausalLM(config).eval()
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=0.3)
    file = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(str(file), "qwen3")
    for add, value in (
        (writer.add_block_count, 2), (writer.add_context_length, 512), (writer.add_embedding_length, 64),
        (writer.add_feed_forward_length, 96), (writer.add_head_count, 4), (writer.add_head_count_kv, 2),
        (writer.add_key_length, 16), (writer.add_value_length, 16), (writer.add_layer_norm_rms_eps, 1e-6),
        (writer.add_rope_freq_base, config.rope_parameters["rope_theta"]),
        (writer.add_pooling_type, gguf.PoolingType.RANK), (writer.add_classifier_output_labels, ["yes", "no"]),
    ):  # fmt: skip
        add(value)
    plain_tokenizer(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 2)
    for name, tensor in model.model.state_dict().items():
        writer.add_tensor(names.get_name(f"model.{name}", (".weight",)), tensor.numpy())
    writer.add_tensor("cls.output.weight", model.model.embed_tokens.weight.detach()[[30, 40]].numpy())
    write_out(writer)
    with Host(file) as host:
        assert host.stepper.model.files is not None
        prompt = judge_prompt(host.stepper.model.files.tokenizer, *PAIRS[0])
        (found,) = logits(host, PAIRS[:1])
    with torch.inference_mode():
        last = model(torch.tensor([prompt.ids])).logits[0, -1]
    np.testing.assert_allclose(found, float(last[30] - last[40]), atol=1e-5)


def test_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From texts to their ranks by way of the server; a chat and embeddings are refused."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    model, words = write(tmp_path / "tiny", "bert")
    query, documents = "the key", [document for _, document in PAIRS]
    expected = torch.sigmoid(torch.tensor([logit(model, words, (query, each)) for each in documents]))
    serving = Serving(tmp_path / "tiny")
    try:
        with serving.http() as http:
            body = {"query": query, "documents": documents}
            while (answer := http.post("/v1/rerank", json=body)).status_code == 503:
                time.sleep(0.01)  # until it is loaded
            results = answer.raise_for_status().json()["results"]
            assert [each["index"] for each in results] == expected.argsort(descending=True).tolist()
            scores = [each["relevance_score"] for each in results]
            np.testing.assert_allclose(scores, expected.sort(descending=True).values, atol=1e-5)
            chat = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "keys"}]})
            assert (chat.json()["error"]["code"], "ranks documents" in chat.text) == ("encoder", True)
            vectors = http.post("/v1/embeddings", json={"input": "keys"})
            assert (vectors.status_code, vectors.json()["error"]["code"]) == (400, "no_embedding")
            assert http.get("/v1/models").json()["data"][0]["capabilities"] == ["rerank"]
    finally:
        serving.stop()
