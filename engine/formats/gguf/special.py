"""The special tokens of a GGUF file: what begins a text, and everything that ends an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.formats.gguf.pretokenizers import PRE_TOKENIZERS
from engine.formats.gguf.vocabulary import UNKNOWN, Vocabulary, flag, text
from engine.text.ends import FILL_IN, end_ids

_NAMED = {"pad_token": "padding", "sep_token": "seperator", "cls_token": "cls", "mask_token": "mask"}
"""Further names of templates, by those of the keys (one of which is so spelt)."""


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
    if kind == "bert":
        bos = find(metadata, "tokenizer.ggml.cls_token_id") if bos is None else bos
        eos = find(metadata, "tokenizer.ggml.seperator_token_id") if eos is None else eos
        bos, eos, unk = (
            vocabulary.ids.get(name) if index is None else index
            for index, name in ((bos, "[CLS]"), (eos, "[SEP]"), (unk, "[UNK]"))
        )
    declared = [eos, *(find(metadata, f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))]
    between = {key: find(metadata, f"tokenizer.ggml.{key}_token_id") for key in FILL_IN}
    stated = {key: index for key, index in between.items() if index is not None}
    ends = [index for index in declared if index is not None] + sorted(stated.values())
    names = {"bos_token": bos, "eos_token": eos, "unk_token": unk}
    names |= {name: find(metadata, f"tokenizer.ggml.{key}_token_id") for name, key in _NAMED.items()}
    rules = PRE_TOKENIZERS.get(text(metadata, "tokenizer.ggml.pre", "default"))
    usual = kind in ("llama", "bert") or (rules is not None and rules.adds_bos)
    return SpecialTokens(
        bos_id=bos,
        # Known names count whatever their type, as in llama.cpp: some files have them as ordinary tokens.
        eos_ids=tuple(end_ids(ends, vocabulary.ids, vocabulary.tokens.__getitem__, stated)),
        unk_id=unk,
        # The first files of Gemma 4 said that nothing is to begin with it.
        add_bos=kind == "gemma4" or flag(metadata, "tokenizer.ggml.add_bos_token", usual),
        add_eos=flag(metadata, "tokenizer.ggml.add_eos_token", kind == "bert"),
        names={name: vocabulary.tokens[index] for name, index in names.items() if index is not None},
    )
