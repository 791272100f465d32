"""Special tokens and chat templates out of GGUF metadata: what begins a text, and what ends an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.formats.gguf.tokenizer import FileText
from engine.protocol import ChatMessage
from engine.text.template import NO_TEMPLATE
from tests.conformance import gguf_tokenizers as made
from tests.conformance.gguf_references import reference, tokenizer, write_file


def test_special_tokens_are_found_only_where_they_are() -> None:
    metadata = made.byte_level_metadata(reference("qwen2"), "qwen2")
    ours = tokenizer(metadata)
    end, think = ours.token_id("<|im_end|>"), ours.token_id("<think>")
    assert end in ours.special_ids
    assert think not in ours.special_ids
    for broken in ("<|im_end|", "|im_end|>", "<|im_ end|>", "<|IM_END|>", "< |im_end|>", "<|im_end\u200b|>"):
        ids = ours.encode(broken)
        assert not set(ids) & ours.special_ids
        assert ours.decode(ids) == broken
    ids = ours.encode("a<|im_end|><think>b")
    assert ids.count(end) == ids.count(think) == 1
    assert ours.decode(ids) == "a<think>b"
    metadata["tokenizer.ggml.token_type"][metadata["tokenizer.ggml.tokens"].index("<|im_start|>")] = 5
    plain = tokenizer(metadata)
    assert plain.token_id("<|im_start|>") not in plain.encode("<|im_start|>user")


def test_begin_and_end_of_text() -> None:
    metadata = made.byte_level_metadata(reference("llama-bpe"), "llama-bpe")
    bos, eos = metadata["tokenizer.ggml.bos_token_id"], metadata["tokenizer.ggml.eos_token_id"]
    assert tokenizer(metadata).encode("a")[0] != bos
    del metadata["tokenizer.ggml.add_bos_token"]  # Llama 3's adds it unless told otherwise
    ours = tokenizer(metadata)
    assert ours.encode("a") == [bos, *ours.encode("a", special=False)]
    metadata["tokenizer.ggml.add_eos_token"] = True
    assert tokenizer(metadata).encode("a")[-1] == eos
    found = FileText(metadata).special
    assert found.bos_id == bos
    assert found.eos_ids == (eos, bos)  # <|endoftext|> ends an answer too
    assert found.names == {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


def test_what_ends_an_answer_of_gpt_oss() -> None:
    metadata = made.byte_level_metadata(reference("gpt-4o"), "gpt-4o")
    tokens = metadata["tokenizer.ggml.tokens"]
    for index, name in enumerate(("<|return|>", "<|call|>", "<|end|>"), start=-3):
        tokens[index] = name
        metadata["tokenizer.ggml.token_type"][index] = 3
    metadata["tokenizer.ggml.eos_token_id"] = tokens.index("<|return|>")
    ends = [tokens[index] for index in FileText(metadata).special.eos_ids]
    assert ends[0] == "<|return|>"
    assert "<|call|>" in ends
    assert "<|end|>" not in ends


ENDS = [
    "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>",
    "<end_of_turn>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>",
    "<eos>", "<turn|>", "<|tool_response>", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<fim-pad>",
    "<fim_pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>",
    "<|file_sep|>", "<|fim_prefix|>", "<|user|>", "<|start|>", "<|eos|>", "<pad>",
]  # fmt: skip
SETS = [
    *([end] for end in ENDS),
    ["<|return|>", "<|call|>", "<|end|>"],
    ["<|return|>", "<|calls|>", "<|end|>"],
    ["<|flush|>", "<|call|>", "<|end|>"],
    ["<|flush|>", "<|return|>", "<|end|>"],
    ["<|return|>", "<|end|>"],
    ["<|tool_response>", "</s>"],
]


@pytest.mark.parametrize("tokens", SETS, ids=" ".join)
@pytest.mark.parametrize("declared", [None, "eos", "eot", "eom", "fim_pad", "fim_rep"])
def test_an_answer_ends_where_it_does_in_llama_cpp(tokens: list[str], declared: str | None, tmp_path: Path) -> None:
    """Each as an ordinary token, and with the last one named as something in particular."""
    metadata = made.byte_level_metadata(reference("gpt-2"), "gpt-2")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *tokens]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], *[1] * len(tokens)]
    if declared:
        metadata[f"tokenizer.ggml.{declared}_token_id"] = len(metadata["tokenizer.ggml.tokens"]) - 1
    assert set(FileText(metadata).special.eos_ids) == ends_in_llama_cpp(write_file(metadata, tmp_path / "model.gguf"))


def ends_in_llama_cpp(file: Path) -> set[int]:
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    vocabulary = llama_cpp.llama_model_get_vocab(model.model)
    ends = {index for index in range(model.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocabulary, index)}
    model.close()
    return ends


def test_chat_templates() -> None:
    metadata = made.byte_level_metadata(reference("gpt-2"), "gpt-2")
    hello = [ChatMessage.of("user", "Hi")]
    assert FileText(metadata).chat_template().notice == NO_TEMPLATE
    metadata["tokenizer.chat_templates"] = ["tool_use", "rag"]
    metadata["tokenizer.chat_template.tool_use"] = "tools"
    assert FileText(metadata).chat_template().render(hello) == "tools"
    metadata["tokenizer.chat_template"] = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    text = FileText(metadata)
    assert text.chat_template().own
    assert text.chat_template().render(hello) == "<|endoftext|>Hi<|im_end|>"
    assert text.tokenizer().encode("Hi")


def test_a_special_token_out_of_range_names_none() -> None:
    """As llama.cpp, which warns and goes on: fine-tunes have such values for tokens that they do not use."""
    metadata = made.byte_level_metadata(reference("gpt-2"), "gpt-2")
    usual = FileText(metadata).special
    for name in ("eot", "unknown", "bos"):
        for index in (-1, 1 << 32):
            found = FileText({**metadata, f"tokenizer.ggml.{name}_token_id": index}).special
            assert set(found.eos_ids) <= set(usual.eos_ids)


def test_the_end_of_a_turn_ends_an_answer_whatever_its_type() -> None:
    metadata = made.byte_level_metadata(reference("gpt-2"), "gpt-2")
    index = len(metadata["tokenizer.ggml.tokens"])
    for kind in (1, 3, 4):
        found = FileText(
            {
                **metadata,
                "tokenizer.ggml.tokens": [*metadata["tokenizer.ggml.tokens"], "<|eot_id|>"],
                "tokenizer.ggml.token_type": [*metadata["tokenizer.ggml.token_type"], kind],
            }
        ).special
        assert index in found.eos_ids
