"""Limits on what a tokenizer.json may make of a text, judged before the library builds anything of it.

A file comes with a model, from strangers. The steps of its normaliser, pre-tokenizer and decoder each make a text at
most some factor longer; their product is bounded, as are expressions, lists and names. What the library is then given
is written again from what was judged, so that both read the same. The factors count characters.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

MAX_GROWTH = 1024
MAX_MADE = 1 << 24
"""Characters that a tokenizer may make of a text before it takes it apart: some gigabytes at worst."""
MAX_STEPS = 64
"""The most steps in a normaliser, a pre-tokenizer, a decoder or a post-processor."""
MAX_DEPTH = 8
MAX_ENTRIES = 4 << 20
"""Most entries of vocabulary and merges together, and of their parts; the largest known have 1.5 million."""
MAX_ADDED = 1 << 17
MAX_ENTRY = 4096
"""Characters of a token."""
MAX_MARK = 64
"""Characters of what stands for unknown text, for beginnings and ends of words, or for another token's id."""
MAX_AROUND = 1024
"""Tokens put around a text."""
MAX_WORD = 1000
"""Characters of a word that WordPiece takes apart, for which it needs the square."""
MAX_EXPRESSION = 1 << 13
MAX_REPEATS = 10_000
"""Product of the counts in one expression's braces."""

_FORMS = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "StripAccents": 1, "Strip": 1, "Nmt": 1}
"""Characters that one character becomes at most (UAX #15, table of expansion factors). In a row they do not multiply:
each leaves what the others made."""
_WORDS = dict.fromkeys(
    ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit", "Punctuation", "Digits",
     "UnicodeScripts", "Split", "FixedLength"), 1,
) | {"ByteLevel": 4, "Metaspace": 2}  # fmt: skip
_DECODERS = {
    "ByteLevel": 1, "Metaspace": 1, "ByteFallback": 1, "Fuse": 1, "Strip": 1, "WordPiece": 2, "BPEDecoder": 2, "CTC": 2
}  # fmt: skip
_PROCESSORS = ("ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing")


class TooMuch(ValueError):  # noqa: N818 - becomes a TokenizerError, which names the file
    """Reason that a file is refused: the rest of a sentence that begins with the file."""


class _File(msgspec.Struct):
    model: msgspec.Raw
    version: str = "1.0"
    added_tokens: list[dict[str, Any]] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None


class _TokenizerModel(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]] = msgspec.field(default_factory=dict)
    unk_token: str | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    max_input_chars_per_word: int = 0


def judged(raw: bytes) -> bytes:
    """The file, written again from what was judged. Raises :class:`TooMuch`."""
    try:
        file = msgspec.json.decode(raw, type=_File)
        _check_model(file.model)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TooMuch("is not a tokenizer in JSON, or is cut short") from error
    growth = growth_of(file.normalizer, file.pre_tokenizer)
    for step in steps(file.pre_tokenizer, "pretokenizers"):
        if "pattern" in step:
            _pattern(step)
    decoded = 1
    for step in steps(file.decoder, "decoders"):
        decoded = _grown(decoded, _decoded(step))
    _check_around(steps(file.post_processor, "processors"))
    contents = [text for token in file.added_tokens if isinstance(text := token.get("content"), str)]
    if len(contents) < len(file.added_tokens):
        raise TooMuch("adds a token that is not text")
    check_added(contents, growth)
    return msgspec.json.encode(file)


def growth_of(normalizer: Any, pre_tokenizer: Any) -> int:
    """Maximum number of characters that one of a text becomes before it is taken apart. Raises :class:`TooMuch`."""
    growth = _normalised(steps(normalizer, "normalizers"))
    for step in steps(pre_tokenizer, "pretokenizers"):
        growth = _grown(growth, _factor(step, _WORDS))
    return growth


def _grown(before: int, factor: int) -> int:
    if before * factor > MAX_GROWTH:
        raise TooMuch("makes texts too much longer")
    return before * factor


def steps(part: Any, inner: str, depth: int = 0) -> list[dict[str, Any]]:
    """The steps of a part one after the other; ``inner`` is where a sequence holds its own."""
    if part is None:
        return []
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise TooMuch("has a step without a type")
    if part["type"] != "Sequence":
        return [part]
    listed = part.get(inner)
    if depth == MAX_DEPTH or not isinstance(listed, list):
        raise TooMuch("has steps that are nested too deeply, or are not a list")
    found: list[dict[str, Any]] = []
    for step in listed:
        found += steps(step, inner, depth + 1)
        if len(found) > MAX_STEPS:
            raise TooMuch(f"treats texts in more than {MAX_STEPS} steps")
    return found


def _factor(step: dict[str, Any], known: dict[str, int]) -> int:
    if step["type"] not in known:
        raise TooMuch(f"has a step of the unknown type {step['type']!r:.40}")
    return known[step["type"]]


# --- steps ---------------------------------------------------------------------------------------------------------


def _normalised(steps: list[dict[str, Any]]) -> int:
    growth, form = 1, 1
    for step in steps:
        known = _NORMALISERS.get(step["type"])
        if known is None:
            form = max(form, _factor(step, _FORMS))
            continue
        growth, form = _grown(_grown(growth, form), known(step)), 1
    return _grown(growth, form)


def _prepended(step: dict[str, Any]) -> int:
    return 1 + len(_text(step, "prepend"))


def _replaced(step: dict[str, Any]) -> int:
    """The growth by a replacement. An expression may match nothing, so that the new text precedes every character."""
    new, old = _text(step, "content"), _pattern(step)
    return max(1, math.ceil(len(new) / len(old))) if old else 1 + len(new)


def _mapped(step: dict[str, Any]) -> int:
    """SentencePiece's table: a trie, and the texts that it leads to, each with a zero at its end."""
    try:
        table = base64.b64decode(_text(step, "precompiled_charsmap"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise TooMuch("has a table of characters that is damaged") from error
    size = int.from_bytes(table[:4], "little")  # of the trie; the library makes room for it before it looks for it
    if len(table) < 4 or size > len(table) - 4:
        raise TooMuch("has a table of characters that is damaged")
    texts = table[4 + size :].split(b"\0")
    return max(1, *(len(text.decode(errors="replace")) for text in texts))


_NORMALISERS: dict[str, Callable[[dict[str, Any]], int]] = {
    "Prepend": _prepended,
    "Replace": _replaced,
    "Precompiled": _mapped,
    "ByteLevel": lambda step: 4,
    "BertNormalizer": lambda step: 12,  # decomposed, and a space on both sides
}


def _decoded(step: dict[str, Any]) -> int:
    counts = (step.get("start", 0), step.get("stop", 0)) if step["type"] == "Strip" else ()
    if not all(type(count) is int and 0 <= count <= MAX_MARK for count in counts):
        raise TooMuch("takes away absurdly much of what a model answers")
    if step["type"] != "Replace":
        return _factor(step, _DECODERS)
    if not _pattern(step):
        raise TooMuch("replaces expressions in what a model answers")
    return _replaced(step)


def _text(step: dict[str, Any], key: str) -> str:
    value = step.get(key)
    if not isinstance(value, str):
        raise TooMuch(f"has a step without {key}")
    return value


def _pattern(step: dict[str, Any]) -> str:
    """The text that a step looks for; "" for an expression, once it was judged."""
    match step.get("pattern"):
        case {"String": str(text), **others} if not others:
            return text
        case {"Regex": str(expression), **others} if not others:
            check_expression(expression)
            return ""
    raise TooMuch("has a step that looks for something that is not text")


# --- expressions -----------------------------------------------------------------------------------------------------

_PIECE = re.compile(
    r"\\[pPxuok]\{[^}]*\}|\\.|(?P<class>\[)|(?P<open>\()|(?P<close>\))|(?P<repeat>[*+?]|\{\d*,?\d*\})[?+]?|.", re.DOTALL
)


def check_expression(expression: str) -> None:
    """Raises :class:`TooMuch` for one that takes too much to compile, or that repeats repetitions without end."""
    if len(expression) > MAX_EXPRESSION:
        raise TooMuch("has an expression that is too long")
    at, counts, repeats, group = 0, 1, [False], False
    while at < len(expression):
        piece = _PIECE.match(expression, at)
        assert piece is not None, "the last alternative takes any character"
        at = _class_end(expression, piece.end()) if piece["class"] else piece.end()
        if piece["open"]:
            repeats.append(False)
        elif piece["close"] and len(repeats) > 1:
            group = repeats.pop()
            repeats[-1] |= group
            continue
        elif piece["repeat"]:
            most = _most(piece["repeat"])
            counts *= 1 if most == math.inf else max(1, int(most))
            if (group and most > 16) or counts > MAX_REPEATS:
                raise TooMuch("has an expression that repeats repetitions")
            repeats[-1] |= most > 16
            continue  # a further repetition is one of the same group
        group = False


def _most(repeat: str) -> float:
    if repeat in "*+?":
        return 1 if repeat == "?" else math.inf
    least, comma, most = repeat.strip("{}").partition(",")
    return float(most or (math.inf if comma else least or 1))


def _class_end(expression: str, at: int) -> int:
    """After the bracket that closes the class whose inside begins at ``at``."""
    depth = 1
    at += expression.startswith("^", at)
    at += expression.startswith("]", at)
    while depth and at < len(expression):
        depth += {"[": 1, "]": -1}.get(expression[at], 0)
        at += 2 if expression[at] == "\\" else 1
    return at


# --- lists -----------------------------------------------------------------------------------------------------------


def _check_model(raw: msgspec.Raw) -> None:
    if bytes(raw).count(b",") > MAX_ENTRIES:
        raise TooMuch("has an absurdly large vocabulary")
    model = msgspec.json.decode(raw, type=_TokenizerModel)
    marks = (model.unk_token, model.continuing_subword_prefix, model.end_of_word_suffix)
    if any(len(mark or "") > MAX_MARK for mark in marks) or model.max_input_chars_per_word > MAX_WORD:
        raise TooMuch("marks words by absurdly long texts, or takes apart absurdly long words")
    tokens = list(model.vocab) if isinstance(model.vocab, dict) else [token for token, _ in model.vocab]
    if max(map(len, tokens), default=0) > MAX_ENTRY:
        raise TooMuch("has an absurdly long token")
    if isinstance(model.vocab, dict) and max(model.vocab.values(), default=0) > MAX_ENTRIES:
        raise TooMuch("numbers its tokens beyond all bounds")  # the library counts up to the largest
    if isinstance(model.vocab, dict) and len(set(model.vocab.values())) < len(tokens):
        named: dict[int, str] = {}
        for token, number in model.vocab.items():
            if len(max(token, named.setdefault(number, token), key=len)) > MAX_MARK and named[number] != token:
                raise TooMuch("gives one number to several tokens")


def _check_around(steps: list[dict[str, Any]]) -> None:
    count = 0
    for step in steps:
        if step["type"] not in _PROCESSORS:
            raise TooMuch(f"has a step of the unknown type {step['type']!r:.40}")
        if step["type"] == "TemplateProcessing":
            count += _around(step)
    if count > MAX_AROUND:
        raise TooMuch("puts too many tokens around a text")


def _around(step: dict[str, Any]) -> int:
    """Tokens that a template adds; a text itself may stand in it once."""
    single, named = step.get("single"), step.get("special_tokens")
    if not isinstance(single, list) or not isinstance(named, dict):
        raise TooMuch("has a template that is not a list")
    count = texts = 0
    for piece in single:
        match piece:
            case {"SpecialToken": {"id": str(name)}} if isinstance(named.get(name), dict):
                count += len(named[name].get("ids", ()))
            case {"Sequence": _}:
                texts += 1
            case _:
                raise TooMuch("has a template of unknown parts")
    if texts > 1:
        raise TooMuch("repeats each text")
    return count + len(single)


def check_added(contents: Sequence[str], growth: int) -> None:
    """Raises :class:`TooMuch` for tokens that are too many or too long to be found in texts."""
    longest = max(map(len, contents), default=0)
    if len(contents) > MAX_ADDED or longest > MAX_ENTRY or sum(map(len, contents)) * growth > MAX_MADE:
        raise TooMuch("adds absurdly many or long tokens")
