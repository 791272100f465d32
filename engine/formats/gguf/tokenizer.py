"""The tokenizer and the chat template that a GGUF file carries in its metadata (ggml's docs/gguf.md, "Tokenizer").

A file holds a vocabulary, merges or scores, and names for the rest; from these the tokenizer is built that the model's
own tokenizer.json describes, so that all text goes through one library. All keys begin with ``tokenizer.ggml.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from engine.base.errors import CheckpointError
from engine.formats.gguf.pretokenizers import PRE_TOKENIZERS
from engine.formats.gguf.special import SpecialTokens, special_tokens
from engine.formats.gguf.vocabulary import CONTROL, UNKNOWN, Vocabulary, broken, flag, merges, merges_by_score, text
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

Metadata = Mapping[str, Any]

_KEEPS_SPACE = frozenset(["<unk>", "<s>", "<|endoftext|>"])
"""Phi-3's special tokens take the white space that follows them, all but these."""


class FileText:
    """Tokenizer and chat template of a file. Nothing of its lists is kept once the tokenizer is made."""

    def __init__(self, metadata: Metadata) -> None:
        """Raises :class:`CheckpointError` for what is missing or contradictory; merges and scores are read later."""
        self._kind = _kind(metadata)
        vocabulary = Vocabulary.read(metadata)
        self.special = special_tokens(metadata, vocabulary, self._kind)
        self._templates = _templates(metadata)
        self._tokenizer: Tokenizer | None = None
        self._unread: tuple[Metadata, Vocabulary] | None = (metadata, vocabulary)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which adds begin-of-text where the model wants it. Raises :class:`CheckpointError`."""
        if self._tokenizer is None:
            assert self._unread is not None
            self._tokenizer = Tokenizer(_tokenizer(*self._unread, self.special, self._kind))
            self._unread = None
        return self._tokenizer

    def chat_template(self) -> ChatTemplate:
        """The file's chat template; of several named ones the default. Without any, a plain one with a notice."""
        return ChatTemplate.chosen(self._templates, self.special.names)


def _tokenizer(metadata: Metadata, vocabulary: Vocabulary, special: SpecialTokens, kind: str) -> tokenizers.Tokenizer:
    try:
        if kind == "bert":
            made = _wordpiece(vocabulary, special)
        else:
            made = (
                _byte_level(metadata, vocabulary) if kind == "gpt2" else _sentencepiece(metadata, vocabulary, special)
            )
        made.add_tokens(_added_tokens(metadata, vocabulary, special, kind))
        _surround(made, vocabulary, special)
    except CheckpointError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise broken(f"is not usable ({' '.join(str(error).split())[:200]})") from error
    return made


def _kind(metadata: Metadata) -> str:
    kind = text(metadata, "tokenizer.ggml.model")
    if kind not in ("gpt2", "llama", "gemma4", "bert"):
        raise CheckpointError(
            f"The GGUF file's tokenizer is of the kind {kind[:60]!r}, which Kvasir cannot read; "
            "choose a model whose tokenizer is of the kind 'gpt2', 'llama', 'gemma4' or 'bert'."
        )
    return kind


def _byte_level(metadata: Metadata, vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """GPT-2's kind: bytes as printable characters, merged by rank within what the pre-tokenizer leaves together."""
    name = text(metadata, "tokenizer.ggml.pre", "default")
    if name not in PRE_TOKENIZERS:
        raise CheckpointError(
            f"The GGUF file's tokenizer cuts text in the way {name[:60]!r}, which Kvasir does not know; choose another "
            "file of this model, or a newer Kvasir."
        )
    rules = PRE_TOKENIZERS[name]
    ranked = merges(metadata, vocabulary)
    made = tokenizers.Tokenizer(models.BPE(vocabulary.pieces, ranked, ignore_merges=rules.whole_words))
    rules.apply_to(made)
    made.decoder = decoders.ByteLevel()
    return made


def _sentencepiece(metadata: Metadata, vocabulary: Vocabulary, special: SpecialTokens) -> tokenizers.Tokenizer:
    """SentencePiece's BPE: ▁ for spaces, the best-scored pair merged first, unknown characters as bytes."""
    listed = "tokenizer.ggml.merges" in metadata
    model = models.BPE(
        vocab=vocabulary.pieces,
        merges=merges(metadata, vocabulary) if listed else merges_by_score(metadata, vocabulary),
        unk_token=None if special.unk_id is None else vocabulary.tokens[special.unk_id],
        fuse_unk=True,
        byte_fallback=vocabulary.has_bytes,
    )
    made = tokenizers.Tokenizer(model)
    prefix = flag(metadata, "tokenizer.ggml.add_space_prefix", True)
    if prefix and vocabulary.is_control("[INST]"):
        # Since Mistral's third tokenizer only the first text gets a space, not what follows a special token.
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif prefix:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return made


def _wordpiece(vocabulary: Vocabulary, special: SpecialTokens) -> tokenizers.Tokenizer:
    """BERT's: the longest pieces of each lower-cased word. In the file a word's first piece begins with ▁, and here
    the others with ##."""
    if special.unk_id is None:
        raise broken("has no token for unknown words")
    model = models.WordPiece(
        {_word_piece(token): index for token, index in vocabulary.pieces.items()},
        unk_token=vocabulary.tokens[special.unk_id],
        max_input_chars_per_word=100,
    )
    made = tokenizers.Tokenizer(model)
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def _word_piece(token: str) -> str:
    if token.startswith("[") and token.endswith("]"):
        return token
    return token.removeprefix("▁") if token.startswith("▁") else f"##{token}"


def _added_tokens(metadata: Metadata, vocabulary: Vocabulary, special: SpecialTokens, kind: str) -> list[AddedToken]:
    """Tokens that are found in a text as a whole: control tokens, which are special, and the model maker's own."""
    named = {special.bos_id, *special.eos_ids}
    phi3 = kind == "llama" and metadata.get("general.architecture") == "phi3"
    added = []
    for index, token in enumerate(vocabulary.tokens):
        control = vocabulary.types[index] in (CONTROL, UNKNOWN) or index in named
        if control or vocabulary.is_user_defined(index):
            rstrip = phi3 and control and token not in _KEEPS_SPACE
            added.append(AddedToken(token, normalized=False, special=control, rstrip=rstrip))
    return added


def _surround(made: tokenizers.Tokenizer, vocabulary: Vocabulary, special: SpecialTokens) -> None:
    """Let plain text begin with begin-of-text, and end with end-of-text, where the model wants it."""
    first = [special.bos_id] if special.add_bos and special.bos_id is not None else []
    last = [special.eos_ids[0]] if special.add_eos and special.eos_ids else []
    if not first and not last:
        return
    made.post_processor = processors.TemplateProcessing(
        single=[*("first" for _ in first), "$A", *("last" for _ in last)],
        pair=[*("first" for _ in first), "$A", *("last" for _ in last), "$B:1", *("last:1" for _ in last)],
        special_tokens=[
            {"id": name, "ids": ids, "tokens": [vocabulary.tokens[index] for index in ids]}
            for name, ids in (("first", first), ("last", last))
            if ids
        ],
    )


def _templates(metadata: Metadata) -> dict[str, str]:
    """tokenizer.chat_template and its named variants, by their names."""
    default = text(metadata, "tokenizer.chat_template", "")
    names = metadata.get("tokenizer.chat_templates", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise broken("names its chat templates by something that is not text")
    keys = {name: f"tokenizer.chat_template.{name}" for name in names}
    named = {name: text(metadata, key) for name, key in keys.items() if key in metadata}
    return {"default": default} | named if default else named
