"""Tokenizers trained in the test, one of each kind that people have on disk."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from engine.text.channels import PAIRS, TagPair
from engine.text.tokenizer import Tokenizer

TEXT = [
    "The cache keeps keys and values, so that every new token costs one row of work.",
    "def page(index: int) -> int:\n    return index // 16\n",
    "Grüße aus Köln, à bientôt, привет мир, 你好世界, 日本語のテキスト 🎉👩‍🚀 naïve café",
    "  leading spaces,   inner spaces and a tab\t, 12345 numbers; (brackets) [and] {braces}",
] * 3

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MISTRAL = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant.') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- '[INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token }}
    {%- else %}
        {{- raise_exception('Only user, system and assistant roles are supported') }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
"""
LLAMA3_SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def byte_level(special: tuple[str, ...], bos: str = "") -> tokenizers.Tokenizer:
    """GPT-2, Qwen and Llama 3 style."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens([AddedToken("<kept>", special=False), AddedToken("überall", special=False)])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def sentencepiece() -> tokenizers.Tokenizer:
    """Llama 2 and Mistral style: spaces as ▁, a prepended one, bytes for unknown characters."""
    special = ["<unk>", "<s>", "</s>"]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special + fallback, show_progress=False)
    trained.train_from_iterator([text[:60] for text in TEXT[:2]], trainer)
    state = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    model = models.BPE(vocab=state["vocab"], merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace() -> tokenizers.Tokenizer:
    """Unigram with Metaspace, as T5 and early Gemma conversions have it."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=260, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def wordpiece() -> tokenizers.Tokenizer:
    """A decoder that cannot work piece by piece."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


@functools.cache
def trained(kind: str) -> str:
    """tokenizer.json of one kind."""
    made = {
        "chatml": lambda: byte_level(("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
        "llama3": lambda: byte_level(LLAMA3_SPECIAL, bos="<|begin_of_text|>"),
        "sentencepiece": sentencepiece,
        "metaspace": metaspace,
        "wordpiece": wordpiece,
    }
    return str(made[kind]().to_str())


TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "sentencepiece": MISTRAL}
_ENDS = {
    "chatml": {"eos_token": "<|im_end|>"},
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "sentencepiece": {
        "bos_token": "<s>",
        "eos_token": {"__type": "AddedToken", "content": "</s>"},
        "unk_token": "<unk>",
    },
}


def write_folder(folder: Path, kind: str) -> Path:
    """tokenizer.json and tokenizer_config.json of one kind, with its chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(trained(kind), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **_ENDS.get(kind, {})}
    if kind in TEMPLATES:
        config["chat_template"] = TEMPLATES[kind]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


THINK = PAIRS[0]


def tagged(special: bool, pair: TagPair = THINK) -> Tokenizer:
    inner = byte_level(("<|im_start|>", "<|im_end|>"))
    inner.add_tokens([tokenizers.AddedToken(tag, special=special, normalized=False) for tag in pair])
    return Tokenizer(inner)
