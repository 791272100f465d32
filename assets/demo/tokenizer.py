"""The tokenizer of both bundled models: byte-level BPE of 4,096 tokens, digits one by one, in Hugging Face's files."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

from build_text import HERE, python_sources
from knowledge import load
from tasks import NAMES, WORDS, task
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, START, END)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def sample(rng: random.Random) -> Iterator[str]:
    """Text in roughly the mixture of the training, the knowledge counted several times."""
    for block in load():
        yield from block.questions
        yield from [block.answer] * 4
    for _ in range(6):
        yield " ".join(rng.sample(WORDS, len(WORDS)))
        yield " ".join(rng.sample(NAMES, len(NAMES)))
        yield " ".join(WORDS).upper()
        yield "\n".join(rng.sample(WORDS, len(WORDS)))
    for _ in range(1500):
        yield "\n".join(task(rng))
    for source in python_sources(held_out=False):
        yield source[:3000]


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample(random.Random(0)), trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, with the chat template, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for token in SPECIAL
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 8192,
        "bos_token": None,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": special,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Train the tokenizer and save it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "build", help="folder for the tokenizer files")
    save(train(), parser.parse_args(arguments).out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
