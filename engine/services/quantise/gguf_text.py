"""A model's tokenizer and chat template in the words of GGUF's metadata, proved by reading them back.

A file names the way in which text is cut (tokenizer.ggml.pre) where tokenizer.json spells it out; the name is found by
cutting :data:`PROBE` in all known ways. SentencePiece's scores, which tokenizer.json has not, are the ranks of its
merges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers

from engine.base.errors import CheckpointError
from engine.formats.generation import GenerationConfig
from engine.formats.gguf.pretokenizers import PRE_TOKENIZERS
from engine.formats.gguf.tokenizer import FileText
from engine.formats.gguf.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from engine.services.training.errors import RecipeError
from engine.text.ends import KNOWN
from engine.text.template import FOR_TOOLS, ChatTemplate
from engine.text.tokenizer import Tokenizer

PROBE = (
    "Hello world! It's 2024-11-05; I'd say they'LL've done 1234567 of 89.",
    " leading and trailing \n\n\n lines\r\n\ttabs    runs of   spaces \n ",
    "def f(x): return {'a': [x**2, 0x1F]}  # snake_case camelCase HTTPServer\n",
    "Größe, naïve café, Ångström; Привет, мир! Ελληνικά हिन्दी العربية עברית ไทย",
    "你好，世界。 こんにちは カタカナ 한국어 中文English混合123",
    "e\u0301 n\u0303 ½ ² Ⅷ ٣ ٤ 🙂👩‍👩‍👧 → ∑ © <b>tag</b> a@b.c https://x.y/?q=1&r=2#z",
    "ÀÉÎ ÀéÎ DON'T o'clock ''quoted'' --- ... !!! ???\n\n* one\n* two\n",
)
_PREFERRED = ("llama-bpe", "qwen2", "gpt-2", "smollm", "tekken", "deepseek-llm", "deepseek-v3", "gpt-4o", "qwen35")
"""Of names for the same way, the one by which most programs know it."""
_MORE_ENDS = 2
"""Keys for tokens that end an answer, besides the first."""
_SETTINGS = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def metadata(
    tokenizer: Tokenizer, template: ChatTemplate, generation: GenerationConfig, ends: Sequence[int], rows: int
) -> dict[str, Any]:
    """All keys of the text; ``ends`` are the tokens that end an answer, ``rows`` those of the token table.

    Raises :class:`RecipeError` for what GGUF cannot say.
    """
    state = json.loads(tokenizer.inner.to_str())
    keys = _vocabulary(tokenizer, state, rows) | _special(tokenizer, template, generation, ends)
    if template.own:
        keys["tokenizer.chat_template"] = template.source
        if template.for_tools:
            keys["tokenizer.chat_templates"] = [FOR_TOOLS]
            keys[f"tokenizer.chat_template.{FOR_TOOLS}"] = template.for_tools
    for keys_of_kind in _kinds(tokenizer, state, keys):
        whole = keys | keys_of_kind
        if _reads_alike(tokenizer, whole):
            return whole | _sampling(generation)
    raise _unknown()


def _unknown() -> RecipeError:
    return RecipeError(
        "This model's tokenizer cuts text in a way that GGUF has no name for. Choose another format, such as nf4."
    )


def _reads_alike(tokenizer: Tokenizer, keys: Mapping[str, Any]) -> bool:
    """Return True if a file with these keys turns the probe, with special tokens in it, into the same tokens."""
    try:
        made = FileText({"general.architecture": "llama", **keys}).tokenizer()
    except CheckpointError:
        return False
    named = [token.content for _, token in sorted(tokenizer.inner.get_added_tokens_decoder().items())]
    probe = (*PROBE, *(f"a {token}b {token}\n" for token in named[:64]))
    return all(
        made.encode(line, special) == tokenizer.encode(line, special) for line in probe for special in (False, True)
    )


# --- the vocabulary --------------------------------------------------------------------------------------------------


def _vocabulary(tokenizer: Tokenizer, state: dict[str, Any], rows: int) -> dict[str, Any]:
    """Tokens and their types; rows of the table that no token has are filled up."""
    model = state["model"]
    if model.get("type") != "BPE" or tokenizer.vocabulary > rows:
        raise _unknown()
    pieces = _is_pieces(state)
    added = {token["id"]: token["special"] for token in state["added_tokens"]}
    tokens, types = [], []
    for index in range(rows):
        token = tokenizer.token(index)
        if not token:
            kind = UNUSED
            token = f"[PAD{index}]"
        elif index in added:
            kind = CONTROL if added[index] else USER_DEFINED
            if pieces and kind == USER_DEFINED:
                token = token.replace("▁", " ")
        else:
            kind = BYTE if pieces and len(token) == 6 and token.startswith("<0x") else NORMAL
        if token == model.get("unk_token"):
            kind = UNKNOWN
        tokens.append(token)
        types.append(kind)
    return {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}


def _is_pieces(state: dict[str, Any]) -> bool:
    """Return True for a tokenizer of SentencePiece's kind, with ▁ for spaces; others write bytes as characters."""
    return "ByteLevel" not in json.dumps([state["pre_tokenizer"], state["decoder"]])


def _kinds(tokenizer: Tokenizer, state: dict[str, Any], keys: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Ways in which a file may say how tokens are found, the likeliest first."""
    merges = [merge if isinstance(merge, list) else merge.split(" ", 1) for merge in state["model"]["merges"]]
    if _is_pieces(state):
        common = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
        scores = _scores(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"], merges)
        for prefix in (True, False):
            yield common | {"tokenizer.ggml.scores": scores, "tokenizer.ggml.add_space_prefix": prefix}
        return
    listed = [" ".join(merge) for merge in merges]
    ways = (
        _ways(tokenizer.inner, bool(state["model"].get("ignore_merges"))) if listed else []
    )  # GGUF has no empty lists
    for name in ways:
        yield {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name, "tokenizer.ggml.merges": listed}


def _scores(tokens: list[str], types: list[int], merges: list[list[str]]) -> list[float]:
    """The best merge that leads to each piece, counted down from 0; below all of these where none does."""
    ranks: dict[str, int] = {}
    for left, right in merges:
        ranks.setdefault(left + right, len(ranks))
    scored = (NORMAL, USER_DEFINED)
    plain = [
        token.replace(" ", "▁") if kind == USER_DEFINED else token for token, kind in zip(tokens, types, strict=True)
    ]
    return [
        -float(ranks.get(token, len(ranks))) if kind in scored else 0.0
        for token, kind in zip(plain, types, strict=True)
    ]


def _ways(inner: tokenizers.Tokenizer, whole_words: bool) -> list[str]:
    """The names of all known ways that cut the probe as the tokenizer does."""
    if inner.pre_tokenizer is None:
        return []
    expected = [inner.pre_tokenizer.pre_tokenize_str(line) for line in PROBE]
    found: dict[int, str] = {}
    for name in (*_PREFERRED, *PRE_TOKENIZERS):
        rules = PRE_TOKENIZERS[name]
        if id(rules) in found or rules.whole_words != whole_words:
            continue
        trial = tokenizers.Tokenizer(tokenizers.models.BPE())
        rules.apply_to(trial)
        if [trial.pre_tokenizer.pre_tokenize_str(line) for line in PROBE] == expected:
            found[id(rules)] = name
    return list(found.values())


# --- special tokens and settings -------------------------------------------------------------------------------------


def _special(
    tokenizer: Tokenizer, template: ChatTemplate, generation: GenerationConfig, listed: Sequence[int]
) -> dict[str, Any]:
    ids = {name: tokenizer.token_id(token) for name, token in template.special_tokens.items()}
    bos, eos = ids.get("bos_token", generation.bos_id), ids.get("eos_token")
    eos = eos if eos is not None else next(iter(listed), None)
    # Programs know some end tokens by their names; the others need the keys.
    others = sorted((id for id in listed if id != eos), key=lambda id: tokenizer.token(id) in KNOWN)
    if sum(tokenizer.token(id) not in KNOWN for id in others) > _MORE_ENDS:
        raise RecipeError(
            f"Answers of this model end with any of {len(listed)} tokens, more than GGUF has words for. Choose another "
            "format, such as nf4."
        )
    ends = [*([] if eos is None else [eos]), *others]
    bos = generation.bos_id if bos is None else bos
    whole = tokenizer.encode("a")
    plain = tokenizer.encode("a", special=False)
    found = {
        "bos": bos,
        "eos": ends[0] if ends else None,
        "eot": ends[1] if len(ends) > 1 else None,
        "eom": ends[2] if len(ends) > 2 else None,
        "unknown": ids.get("unk_token"),
        "padding": ids.get("pad_token"),
    }
    keys: dict[str, Any] = {
        f"tokenizer.ggml.{name}_token_id": index for name, index in found.items() if index is not None
    }
    keys["tokenizer.ggml.add_bos_token"] = len(whole) > len(plain) and whole[:1] == [bos]
    keys["tokenizer.ggml.add_eos_token"] = len(whole) > len(plain) and whole[-1:] == ends[:1]
    return keys


def _sampling(generation: GenerationConfig) -> dict[str, Any]:
    """The model maker's own settings."""
    found = {f"general.sampling.{key}": getattr(generation.sampling, name) for name, key in _SETTINGS.items()}
    found["general.sampling.penalty_repeat"] = generation.sampling.repetition_penalty
    return found
