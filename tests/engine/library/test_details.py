"""What a model's headers say, and a text as its tokenizer reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.formats.open import open_checkpoint
from engine.protocol.operations import READ_TOKENS, ReadTokens
from engine.services.models import details as reading
from engine.services.operations import perform
from tests.engine.library.library_support import folder_model, gguf_model, kvasir, refused, split_model, told
from tests.hub_server import Hub, Repository


def details(model: str | Path) -> dict:
    (found,) = told(kvasir("details", model, "--json"))
    return found


def test_a_folder(hub: Hub, tmp_path: Path) -> None:
    folder = folder_model(tmp_path / "mine")
    (folder / "LICENSE").write_text("\n  # Apache License\nVersion 2.0\n")
    found = details(folder)
    config = json.loads((folder / "config.json").read_text())
    assert found["architecture"] == "LlamaForCausalLM"
    assert (found["layers"], found["heads"], found["kv_heads"]) == (8, 4, 2)
    assert (found["context"], found["vocabulary"]) == (config["max_position_embeddings"], config["vocab_size"])
    assert found["quantisation"].startswith("GPTQ 4-bit")
    assert found["licence"] == "Apache License"
    assert "<|im_start|>" in found["template"]
    assert ["quantization_config.bits", "4"] in found["metadata"]
    sizes = {each["name"]: each["bytes"] for each in found["files"]}
    assert sizes["model.safetensors"] == (folder / "model.safetensors").stat().st_size
    hub.repositories["kvasir/guide"] = Repository({file.name: file.read_bytes() for file in folder.iterdir()})
    kvasir("get", "kvasir/guide")
    found = details("kvasir/guide")
    assert (found["repository"], found["revision"]) == ("kvasir/guide", hub.repositories["kvasir/guide"].revision)
    shown = kvasir("details", "kvasir/guide").stdout
    assert "GPTQ 4-bit" in shown
    assert "<|im_start|>" in shown


def test_gguf_in_parts(tmp_path: Path) -> None:
    parts = split_model(tmp_path / "tiny.gguf")
    found = details(parts[0])
    assert found["architecture"] == "LlamaForCausalLM"
    assert found["licence"] == "apache-2.0"
    assert found["template"] == "{{ messages[0]['content'] }}"
    assert [each["name"] for each in found["files"]] == [part.name for part in parts]
    metadata = dict(found["metadata"])
    assert metadata["llama.attention.head_count_kv"] == "2"
    assert metadata["tokenizer.ggml.tokens"].startswith('160 values: "<unk>", "<s>", ')


def test_a_model_without_a_template_and_one_that_cannot_be_opened(tmp_path: Path) -> None:
    folder = folder_model(tmp_path / "mine")
    (folder / "tokenizer_config.json").unlink()
    assert "template" not in details(folder)
    (folder / "config.json").write_text("{")
    assert "is not valid JSON" in refused(kvasir("details", folder))


def test_tokens(tmp_path: Path) -> None:
    folder = folder_model(tmp_path / "mine")
    (found,) = told(kvasir("tokens", folder, "--text", "A page<|im_end|>", "--json"))
    assert "".join(each["text"] for each in found["tokens"]) == "A page<|im_end|>"
    assert found["tokens"][-1]["special"]
    (found,) = told(kvasir("tokens", gguf_model(tmp_path / "tiny.gguf"), "--text", "ab", "--json"))
    assert [each["text"] for each in found["tokens"]] == ["<unk>"]  # it knows no space, which it puts before a text
    assert "2 tokens." in kvasir("tokens", folder, "--text", "Hello pages").stdout


def test_a_tokenizer_is_kept_for_the_next_text_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(reading, "open_checkpoint", lambda path: (opened.append(path), open_checkpoint(path))[1])
    monkeypatch.setattr(reading, "_kept", reading._LastTokenizer())
    for text in ("Hello pages", "", "two\nlines"):
        found = perform(READ_TOKENS, ReadTokens(model="kvasir-guide", text=text))
        assert "".join(each.text for each in found.tokens) == text
    assert len(opened) == 1
    reading._kept._forget()
    perform(READ_TOKENS, ReadTokens(model="kvasir-guide", text="x"))
    assert len(opened) == 2
