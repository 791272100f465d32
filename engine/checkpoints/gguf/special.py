"""The special tokens of a GGUF file: what begins a text, and everything that ends an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from engine.checkpoints.gguf.pretokenizers import PRE_TOKENIZERS
from engine.checkpoints.gguf.vocabulary import UNKNOWN, Vocabulary, flag, text

_ENDS = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
        *("<end_of_turn>", "<end_of_utterance>", "<turn|>", "<|tool_response>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
        *("<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>", "<｜end▁of▁sentence｜>"),
    )
)
"""Tokens that end an answer in the families that have them, which files often do not declare."""
_FILL_IN = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Tokens between the files of a prompt for code, by the key that declares them: what follows is no answer."""
_NO_ENDS = (
    ({"<|return|>", "<|call|>"}, "<|end|>"),
    ({"<|return|>", "<|calls|>"}, "<|end|>"),
    ({"<|flush|>", "<|call|>"}, "<|end|>"),
    ({"<|flush|>", "<|calls|>"}, "<|end|>"),
    ({"<|tool_response>"}, "</s>"),
)
"""Where a model's end tokens include the set (gpt-oss and its kin, Gemma 4), the token after it ends no more than a
message within an answer."""


class SpecialTokens(NamedTuple):
    """``eos_ids``: every token that ends an answer, the declared one first. ``add_bos``/``add_eos``: whether plain text
    gets them. ``names`` are the texts that chat templates know as ``bos_token`` and so on."""

    bos_id: int | None
    eos_ids: tuple[int, ...]
    unk_id: int | None
    add_bos: bool
    add_eos: bool
    names: dict[str, str]


def special_tokens(metadata: Mapping[str, Any], vocabulary: Vocabulary, kind: str) -> SpecialTokens:
    find = vocabulary.declared
    bos, eos, unk = (find(metadata, f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "unknown"))
    if kind == "llama":
        bos = vocabulary.ids.get("<s>") if bos is None else bos
        eos = vocabulary.ids.get("</s>") if eos is None else eos
        unk = vocabulary.types.index(UNKNOWN) if unk is None and UNKNOWN in vocabulary.types else unk
    declared = [eos, *(find(metadata, f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))]
    ends = [index for index in declared if index is not None] + sorted(_undeclared(metadata, vocabulary))
    names = {"bos_token": bos, "eos_token": eos, "unk_token": unk}
    rules = PRE_TOKENIZERS.get(text(metadata, "tokenizer.ggml.pre", "default"))
    usual = kind == "llama" or (rules is not None and rules.adds_bos)
    return SpecialTokens(
        bos_id=bos,
        eos_ids=_without_inner_ends(list(dict.fromkeys(ends)), vocabulary),
        unk_id=unk,
        # The first files of Gemma 4 said that nothing is to begin with it.
        add_bos=kind == "gemma4" or flag(metadata, "tokenizer.ggml.add_bos_token", usual),
        add_eos=flag(metadata, "tokenizer.ggml.add_eos_token", False),
        names={name: vocabulary.tokens[index] for name, index in names.items() if index is not None},
    )


def _undeclared(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Iterator[int]:
    """Whatever their type: some files have them as ordinary or user-defined tokens. As llama.cpp knows them."""
    names = list(_ENDS)
    for name, usual in _FILL_IN.items():
        declared = vocabulary.declared(metadata, f"tokenizer.ggml.{name}_token_id")
        if declared is not None:
            yield declared
        else:
            names += usual
    yield from (vocabulary.ids[name] for name in names if name in vocabulary.ids)


def _without_inner_ends(ids: list[int], vocabulary: Vocabulary) -> tuple[int, ...]:
    names = {vocabulary.tokens[index] for index in ids}
    inner = {token for others, token in _NO_ENDS if others <= names}
    return tuple(index for index in ids if vocabulary.tokens[index] not in inner)
