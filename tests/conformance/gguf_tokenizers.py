"""Texts in many scripts, tokenizers trained on them, and the same tokenizers as GGUF metadata."""

from __future__ import annotations

import functools
import io
import json
import random
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<think>", "<tool_call>", "    ")

_RANGES = {
    "latin": "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ àéîõüñçßøåžłđǅĳÀÉÜ e\u0301 n\u0303",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюя АБВГДЕЁ ѣ",
    "greek": "αβγδεζηθικλμνξοπρστυφχψω ΆΈΏ ϊ ᾳ",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي ـ ًٌٍ ٠١٢٣",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת ךםן ִֵָ",
    "devanagari": "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह ािीुूेैोौ् ०१२",
    "thai": "กขคงจฉชซญดตถทธนบปผพฟมยรลวศสหอฮ ะาิีึืุูเแโใไ ่้๊๋ ๑๒",
    "chinese": "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生",
    "japanese": "あいうえおかきくけこさしすせそ アイウエオカキクケコ 日本語漢字 ー、。「」ｶﾞ",
    "korean": "가나다라마바사아자차카타파하 한국어 ㄱㄴㄷ",
    "emoji": ["🎉", "👩‍🚀", "👍🏽", "🏳️‍🌈", "❤️", "🇩🇪", "😀", " ", "👨‍👩‍👧‍👦", "‼", "✅"],
    "digits": "0123456789 ²³½ ٤ Ⅷ .,",
    "spaces": [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2003", "\u3000", "a", "1", "."],
    "controls": ["\x00", "\x01", "\x1b", "\x7f", "\u200b", "\u200d", "\ufeff", "\ufffd", "\U000e0041", "x", " "],
    "marks": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ “”‘’…—–¿¡§¶€£¥©™±×÷∑√∞≈",
}
_CODE = [
    "def f(x: int) -> int:\n    return x ** 2  # square\n",
    'for (int i = 0; i < 10; ++i) {\n\tprintf("%d\\n", i);\n}',
    "SELECT * FROM t WHERE a='b' AND c>=1.5e-3;",
    '<div class="x">&amp;</div>\n\n\n',
    "I'll say it's we've they're I'D DON'T 'twas x'S",
    "https://example.org/a_b?c=d%20e#f",
    "HTTPServer camelCase snake_case SCREAMING 3.14159 1,000,000 12345678",
]


RUNS = tuple(f"x{mark * length}y{mark * (length % 7)}" for mark in " =-a" for length in range(1, 60))


@functools.cache
def texts(count: int = 1000, seed: int = 7) -> tuple[str, ...]:
    """``count`` different texts; each mixes a few scripts, one in eight is code."""
    source = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        parts = []
        for script in source.sample(list(_RANGES), source.randint(1, 4)):
            parts += source.choices(_RANGES[script], k=source.randint(1, 12))
            parts.append(source.choice(["", " ", " ", "\n", ", "]))
        if source.random() < 0.125:
            parts.insert(source.randrange(len(parts)), source.choice(_CODE))
        found["".join(parts)] = None
    return tuple(found)


def byte_level(
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None = None,
    whole_words: bool = False,
) -> tokenizers.Tokenizer:
    """A byte-level BPE trained on the texts. It has a word, " unreachable", that no merges lead to."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(400, seed=1), trainer)
    state = json.loads(tokenizer.to_str())["model"]
    vocab = {**state["vocab"], "Ġunreachable": len(state["vocab"])}
    made = tokenizers.Tokenizer(models.BPE(vocab, [tuple(m) for m in state["merges"]], ignore_merges=whole_words))
    made.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        made.normalizer = normalizer
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    made.add_tokens([AddedToken(token, normalized=False, special=False) for token in ADDED])
    return made


def byte_level_metadata(tokenizer: tokenizers.Tokenizer, pre: str) -> dict[str, Any]:
    """As llama.cpp's converter writes it."""
    state = json.loads(tokenizer.to_str())
    added = {token["id"]: token["special"] for token in state["added_tokens"]}
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [{None: 1, True: 3, False: 4}[added.get(i)] for i in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in state["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.bos_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


def split(expression: str) -> pre_tokenizers.PreTokenizer:
    pieces = pre_tokenizers.Split(Regex(expression), "isolated")
    return pre_tokenizers.Sequence([pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def digits_apart() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


@functools.cache
def sentencepiece_model(prefix: bool = True, byte_fallback: bool = True, runs: bool = False) -> bytes:
    """A SentencePiece BPE as Llama 2 has it: identity normalisation, all white space kept. ``runs``: of long runs of
    one character, whose pieces can be put together in several ways."""
    import sentencepiece

    written = io.BytesIO()
    source = RUNS if runs else texts(600, seed=2)
    lines = (line for text in source for line in text.replace("\0", "").splitlines() if line.strip())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=written,
        model_type="bpe",
        vocab_size=300 if runs else 1200 if byte_fallback else 900,
        character_coverage=0.98,
        byte_fallback=byte_fallback,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        control_symbols=["<|end|>"],
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()


GEMMA_USER_DEFINED = ("<start_of_turn>", "<end_of_turn>", "<unused0>", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>", "</b>")
GEMMA_CONTROL = frozenset(GEMMA_USER_DEFINED[:3])


@functools.cache
def gemma_model() -> bytes:
    """A SentencePiece BPE as Gemma has it: no space put before a text, runs of white space and marks as they are."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in texts(600, seed=2) for line in text.replace("\0", "").splitlines() if line),
        model_writer=written,
        model_type="bpe",
        vocab_size=1200,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=list(GEMMA_USER_DEFINED),
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        unk_piece="<unk>",
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()


def gemma_metadata(model: bytes) -> dict[str, Any]:
    """As the converter writes it: user-defined pieces with spaces, some of them control tokens."""
    found = sentencepiece_metadata(model, prefix=False)
    kinds = found["tokenizer.ggml.token_type"]
    tokens = [
        token.replace("▁", " ") if kind == 4 else token
        for token, kind in zip(found["tokenizer.ggml.tokens"], kinds, strict=True)
    ]
    types = [3 if token in GEMMA_CONTROL else kind for token, kind in zip(tokens, kinds, strict=True)]
    return found | {
        "general.architecture": "gemma3",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_bos_token": True,
    }


def sentencepiece_metadata(model: bytes, prefix: bool = True) -> dict[str, Any]:
    from sentencepiece import sentencepiece_model_pb2 as model_file

    proto = model_file.ModelProto()
    proto.ParseFromString(model)
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.piece for piece in proto.pieces],
        "tokenizer.ggml.scores": [piece.score for piece in proto.pieces],
        "tokenizer.ggml.token_type": [piece.type for piece in proto.pieces],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
    }
