"""Tokenizers put together as the models with each pre-tokenizer have it, and other programs' ways to read files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from engine.formats.gguf.tokenizer import FileText
from engine.text.stream import TextStream
from engine.text.tokenizer import Tokenizer
from tests.conformance import gguf_tokenizers as made

# Written out from the models' tokenizer.json, not taken from the engine.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _deepseek3() -> pre_tokenizers.PreTokenizer:
    marks = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    marks += r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    steps = [pre_tokenizers.Split(Regex(e), "isolated") for e in (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", marks)]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@functools.cache
def reference(pre: str) -> tokenizers.Tokenizer:
    """A tokenizer that is put together as the models with this pre-tokenizer have it."""
    nfc = normalizers.NFC()
    match pre:
        case "default" | "gpt-2":
            return made.byte_level(made.gpt2())
        case "olmo":
            return made.byte_level(made.gpt2(), nfc)
        case "llama-bpe":
            return made.byte_level(made.split(_LLAMA3), whole_words=True)
        case "dbrx":
            return made.byte_level(made.split(_LLAMA3))
        case "qwen2":
            return made.byte_level(made.split(_QWEN2), nfc)
        case "qwen35":
            return made.byte_level(made.split(_QWEN35), nfc)
        case "smollm" | "starcoder":
            return made.byte_level(made.digits_apart())
        case "command-r":
            return made.byte_level(made.digits_apart(), nfc)
        case "tekken":
            return made.byte_level(made.split(_TEKKEN), whole_words=True)
        case "gpt-4o":
            return made.byte_level(made.split(_GPT4O))
        case "deepseek-v3":
            return made.byte_level(_deepseek3())
    raise AssertionError(pre)


KINDS = ["default", "gpt-2", "olmo", "llama-bpe", "dbrx", "qwen2", "qwen35", "smollm", "starcoder"]
KINDS += ["command-r", "tekken", "gpt-4o", "deepseek-v3"]


def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """The engine's."""
    return FileText(metadata).tokenizer()


def streamed(ours: Tokenizer, ids: list[int]) -> str:
    stream = TextStream(ours)
    return "".join(stream.push(i).text for i in ids) + stream.flush().text


def read_by_transformers(metadata: dict[str, Any], folder: Path) -> tokenizers.Tokenizer:
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    file = write_file(metadata, folder / "model.gguf")
    architecture, parts, _ = get_gguf_tokenizer(str(file))
    return convert_gguf_tokenizer(architecture, parts)[0]


def write_file(metadata: dict[str, Any], file: Path) -> Path:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(file, metadata["general.architecture"])
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str) and key != "general.architecture":
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file
