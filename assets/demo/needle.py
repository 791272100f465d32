"""Train a tiny model that finds what was hidden in a long text: the Lab's, for the KV cache and for what is read of it.

In the layout of SmolLM3: every third layer knows no positions (NoPE), and in the others even the slowest channel turns
once in some 470 tokens, so that every angle is seen in short texts and only the layers without positions can find
things far away. Lengths grow from 64 to 8,192 tokens. The text is made as it is needed
(engine/services/experiments/workloads/needle.py).

At the end some channels of the keys are made large and those of the queries small by the same power of two: every score
stays as it was, to the bit. Large models learn such channels (Liu et al. 2024, KIVI, figure 2); one as small as this
does not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from train import Plan, apply, learning_rate, optimisers, weighted_loss

from engine.services.experiments.workloads import needle as texts

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "kvasir-needle"
CONTEXT = 16384
LENGTHS = ((64,), (128,), (256,), (512,), (512, 1024, 2048), (256, 512, 1024, 2048, 4096, 8192))
"""Lengths of rows; the next ones once the last :data:`LAST` batches had :data:`LEARNT` of the answers right."""
LEARNT, LAST = 0.98, 12
BATCH = 2048
"""Tokens of a batch, where a row is not longer."""
ASIDE = 0.1
"""What a token counts that is no part of an answer."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END, BEGIN, STOP = range(3)
LARGE = {1: 8, 9: 8}
"""Channels of each key head that are made large, of those up to half its width (the one half a width on, with which a
channel rotates, is as large): by what power of two."""
TEMPLATE = (
    "<|im_start|>{% for message in messages %} {{ message.content }}"
    "{% if message.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
)


def words() -> list[str]:
    """All that a text is made of but the full stop."""
    numbers = [str(number) for number in texts.NUMBERS]
    kinds = (texts.NAMES, texts.NOUNS, texts.ADJECTIVES, texts.VERBS, texts.ADVERBS, numbers)
    return sorted({"the", "remember", "code", "now", "say"}.union(*kinds))


def make_tokenizer() -> tokenizers.Tokenizer:
    """Bytes, and each word of :func:`words` as one token."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=list(SPECIAL),
        show_progress=False,
        min_frequency=1,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator((f" {word}" for word in words()), trainer)
    opening = SPECIAL[BEGIN]
    made.post_processor = tokenizers.processors.TemplateProcessing(f"{opening} $A", special_tokens=[(opening, BEGIN)])
    return made


def make_model(tokenizer: tokenizers.Tokenizer) -> Any:
    config = transformers.SmolLM3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        no_rope_layers=[1, 1, 0, 1, 1, 0],
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        bos_token_id=BEGIN,
        eos_token_id=STOP,
        pad_token_id=END,
        tie_word_embeddings=True,
    )
    return transformers.SmolLM3ForCausalLM(config)


class Rows:
    """Texts with needles, each asked for once, somewhere after it or at the end."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, seed: int) -> None:
        self._ids = {word: tokenizer.token_to_id(f"Ġ{word}") for word in words()} | {".": tokenizer.token_to_id(".")}
        self._chance = random.Random(seed)

    def batch(self, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens int64 [B, T + 1] of one of these lengths, and what each counts."""
        length = self._chance.choice(lengths)
        rows = [self._row(length) for _ in range(max(1, BATCH // length))]
        return torch.tensor([ids for ids, _ in rows]), torch.tensor([weights for _, weights in rows])

    def _row(self, length: int) -> tuple[list[int], list[float]]:
        chance = self._chance
        hidden = texts.needles(chance.randint(1, min(12, length // 20)), chance)
        asked = [self._plain(each.question) + self._answer(each) for each in hidden]
        laid = [self._plain(each.hidden) for each in hidden]
        room = length - sum(map(len, (*asked, *laid)))
        pieces, filler = [], texts.sentences(chance)
        while room > 0:
            piece = self._plain(next(filler))[:room]
            room -= len(piece)
            pieces.append(piece)
        places = sorted(chance.random() for _ in pieces)
        laid_at = [chance.random() for _ in hidden]
        asked_at = [1.0 if chance.random() < 0.5 else chance.uniform(place, 1.0) for place in laid_at]
        order = sorted(zip((*places, *laid_at, *asked_at), range(10**6), (*pieces, *laid, *asked), strict=False))
        row = [(BEGIN, ASIDE), *(token for *_, piece in order for token in piece)]
        return [id for id, _ in row], [weight for _, weight in row]

    def _plain(self, some: list[str]) -> list[tuple[int, float]]:
        return [(self._ids[word], ASIDE) for word in some]

    def _answer(self, needle: texts.Needle) -> list[tuple[int, float]]:
        return [(self._ids[word], 1.0) for word in needle.answer] + [(STOP, 1.0)]


def train(model: Any, rows: Rows, plan: Plan, stage: int) -> None:
    """Train for as many minutes of processor time as the plan says; ``stage``: the first of :data:`LENGTHS`."""
    learned = optimisers(model, plan)
    began, right = time.process_time(), list[float]()
    while (share := (time.process_time() - began) / (60 * plan.minutes)) < 1:
        tokens, weights = rows.batch(LENGTHS[stage])
        logits = model(tokens[:, :-1], use_cache=False).logits.flatten(0, 1)
        targets, counts = tokens[:, 1:].flatten(), weights[:, 1:].flatten()
        loss = weighted_loss(logits, targets, counts)
        apply(loss, model, learned, learning_rate(share, plan))
        asked = counts == 1
        right.append((logits.argmax(-1) == targets)[asked].float().mean().item())
        if len(right) % LAST == 0:
            plain, recent = F.cross_entropy(logits[~asked].detach(), targets[~asked]).item(), sum(right[-LAST:]) / LAST
            said = f"length {tokens.shape[1] - 1} loss {loss.item():.3f} answers {recent:.1%} text {plain:.3f}"
            sys.stdout.write(f"step {len(right)} {share:.1%} {said}\n")
            sys.stdout.flush()
            if recent >= LEARNT:
                stage = min(stage + 1, len(LENGTHS) - 1)


@torch.no_grad()
def scale_channels(model: Any, *, back: bool = False) -> None:
    """Make channels of all keys larger and those of the queries smaller, so that no score changes, or the reverse."""
    width = model.config.hidden_size // model.config.num_attention_heads
    scale = torch.ones(width)
    for channel, factor in LARGE.items():
        scale[[channel, channel + width // 2]] = 1 / factor if back else factor
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.k_proj.weight.mul_(scale.repeat(model.config.num_key_value_heads)[:, None])
        attention.q_proj.weight.div_(scale.repeat(model.config.num_attention_heads)[:, None])


def write(model: Any, tokenizer: tokenizers.Tokenizer, folder: Path) -> None:
    """A checkpoint in bfloat16, with its tokenizer and chat template."""
    model.bfloat16().save_pretrained(folder)
    settings = {"eos_token_id": STOP, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--minutes", type=float, default=12.0, help="of the time of one thread")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--start", type=Path, help="go on from this checkpoint, with all lengths")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    if asked.start:
        model = transformers.SmolLM3ForCausalLM.from_pretrained(asked.start, dtype=torch.float32)
        scale_channels(model, back=True)
    plan = Plan(steps=0, minutes=asked.minutes, peak_rate=asked.rate, weight_decay=0.01, hold=0.4)
    train(model.train(), Rows(tokenizer, asked.seed), plan, len(LENGTHS) - 1 if asked.start else 0)
    scale_channels(model)
    write(model, tokenizer, asked.out)


if __name__ == "__main__":
    main()
