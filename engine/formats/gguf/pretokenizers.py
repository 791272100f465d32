r"""Pre-tokenizers of byte-level vocabularies, which cut text before bytes are merged, by the name in GGUF.

A file carries only the name (tokenizer.ggml.pre), given by llama.cpp's converter; the expressions are those of the
models' own tokenizer.json. Each cuts what the ones before it left; ``\p{N}`` alone takes digits one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers


class PreTokenizer(NamedTuple):
    """Pre-tokenizer of one family of vocabularies.

    ``splits``: expressions, applied in order; their matches and what lies between stand alone. ``whole_words``: a word
    that is a token is taken as it is, whatever the merges say. ``adds_bos``: begin-of-text comes first when the file
    does not say. ``nfc``: characters are composed first (NFC).
    """

    splits: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False
    nfc: bool = False

    def apply_to(self, tokenizer: Tokenizer) -> None:
        """Set the normalizer and the pre-tokenizer of a byte-level ``tokenizer``."""
        if self.nfc:
            tokenizer.normalizer = normalizers.NFC()
        splits = (pre_tokenizers.Split(Regex(split), "isolated") for split in self.splits)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])


_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDING}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}|{_MARKS}"
_QWEN2 = rf"{_ENDING}|{_BEFORE}\p{{L}}+|\p{{N}}|{_MARKS}"
_QWEN35 = rf"{_ENDING}|{_BEFORE}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDING}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDING}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_CASED = (  # letters with upper and lower case, as deepseek-llm-7b's tokenizer.json spells them out
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ"
    "-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-"
    "ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_ASIAN = "[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK = ("[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _ASIAN, r"\p{N}")
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN, r"\p{N}")
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)

_LIKE_GPT2 = PreTokenizer((_GPT2,))
_LIKE_LLAMA3 = PreTokenizer((_LLAMA3,), whole_words=True, adds_bos=True)
_LIKE_GPT4 = PreTokenizer((_LLAMA3,))
_LIKE_QWEN2 = PreTokenizer((_QWEN2,))
_LIKE_STARCODER = PreTokenizer((r"\p{N}", _GPT2))
_LIKE_GPT4O = PreTokenizer((_GPT4O,))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    # "default" is what files from before 2024-05 count as; nearly all of their vocabularies are GPT-2's kind.
    **dict.fromkeys(("default", "gpt-2", "phi-2", "jais", "mellum", "exaone4", "gigachat", "a.x-4.0"), _LIKE_GPT2),
    **dict.fromkeys(("olmo", "mpt"), PreTokenizer((_GPT2,), nfc=True)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LIKE_LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LIKE_GPT4),
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    "qwen35": PreTokenizer((_QWEN35,), nfc=True),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2"), _LIKE_QWEN2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"), _LIKE_STARCODER),
    "command-r": PreTokenizer((r"\p{N}", _GPT2), nfc=True),
    "deepseek-llm": PreTokenizer(_DEEPSEEK),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), PreTokenizer(_DEEPSEEK3)),
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _LIKE_GPT4O),
}
