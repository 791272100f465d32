"""Train a tiny model that sees, in the layout of Qwen3.5: it names the colour, the shape and its place in a picture.

It is there to show pictures without any download, and for tests: a wrong order of patches, channels or positions, and
it says something else. Tower and text learn together, by transformers' own code, from pictures drawn here.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from PIL import Image, ImageDraw
from torch.nn import functional as F
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

FOLDER = Path(__file__).resolve().parent / "kvasir-seeing"
COLOURS = {
    "red": (214, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 214),
    "yellow": (240, 210, 40),
    "black": (16, 16, 16),
    "purple": (140, 50, 170),
}
SHAPES = ("circle", "square", "triangle")
PLACES = ("left", "right")
QUESTIONS = {
    "describe": ("describe this picture", "Describe this picture.", "What is in this picture?", "What do you see?"),
    "where": ("Where is it?", "Where is the shape?"),
    "colour": ("What colour is it?", "Which colour is it?"),
}
IGNORED = -100


def draw(colour: str, shape: str, place: str, chance: random.Random) -> Image.Image:
    """A shape in one half of a light background with some noise."""
    width, height = 32 * chance.randint(4, 6) + chance.randint(-9, 9), 32 * chance.randint(2, 3) + chance.randint(-9, 9)
    light = chance.randint(200, 250)
    image = Image.new("RGB", (width, height), (light, light, light))
    pen = ImageDraw.Draw(image)
    size = min(width / 2, height) * chance.uniform(0.6, 0.9)
    x = (width - size) * chance.uniform(0, 0.3) + size / 2
    x, y = x if place == "left" else width - x, (height - size) * chance.uniform(0.1, 0.9) + size / 2
    box = (x - size / 2, y - size / 2, x + size / 2, y + size / 2)
    fill = tuple(min(255, max(0, value + chance.randint(-16, 16))) for value in COLOURS[colour])
    if shape == "circle":
        pen.ellipse(box, fill)
    elif shape == "square":
        pen.rectangle(box, fill)
    else:
        pen.polygon([(x, box[1]), (box[2], box[3]), (box[0], box[3])], fill)
    for _ in range(chance.randint(0, 30)):
        grey = chance.randint(150, 255)
        pen.point((chance.randrange(width), chance.randrange(height)), (grey, grey, grey))
    return image


def answer(kind: str, colour: str, shape: str, place: str) -> str:
    """What is said of such a picture."""
    said = {
        "describe": f"A {colour} {shape} on the {place}.",
        "colour": f"It is {colour}.",
        "where": f"On the {place}.",
    }
    return said[kind]


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|im_end|>", "<|im_start|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")


def texts() -> list[str]:
    """All that is ever asked and said."""
    said = [answer(kind, c, s, p) for kind in QUESTIONS for c in COLOURS for s in SHAPES for p in PLACES]
    return [*said, *(question for some in QUESTIONS.values() for question in some), "user\n", "assistant\n", "system\n"]


def make_tokenizer() -> tokenizers.Tokenizer:
    """Bytes, and the words of :func:`texts`."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=list(SPECIAL),
        show_progress=False,
        min_frequency=1,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(texts(), trainer)
    return made


def make_model(tokenizer: tokenizers.Tokenizer) -> Any:
    end, _, start, pad, stop = (tokenizer.token_to_id(token) for token in SPECIAL)
    text = {
        "vocab_size": 384,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "max_position_embeddings": 2048,
        "layer_types": ["full_attention", "linear_attention", "full_attention"],
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
        "eos_token_id": end,
    }
    vision = {
        "depth": 3,
        "hidden_size": 96,
        "num_heads": 3,
        "intermediate_size": 192,
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 96,
        "num_position_embeddings": 144,
        "in_channels": 3,
    }
    config = transformers.Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        image_token_id=pad,
        vision_start_token_id=start,
        vision_end_token_id=stop,
        tie_word_embeddings=True,
    )
    return transformers.Qwen3_5ForConditionalGeneration(config)


PROCESSOR = Qwen2VLImageProcessorPil(
    patch_size=8,
    merge_size=2,
    size={"shortest_edge": 64 * 64, "longest_edge": 256 * 256},
    image_mean=[0.5] * 3,
    image_std=[0.5] * 3,
)


def batch(tokenizer: tokenizers.Tokenizer, count: int, chance: random.Random) -> tuple[dict[str, Any], torch.Tensor]:
    """What transformers takes, and the tokens to be said: all of the answer, nothing of what was asked."""
    pad = tokenizer.token_to_id("<|image_pad|>")
    images, rows, wanted = [], [], []
    for _ in range(count):
        colour, shape, place = chance.choice(list(COLOURS)), chance.choice(SHAPES), chance.choice(PLACES)
        kind = chance.choices(list(QUESTIONS), (3, 1, 1))[0]
        image = draw(colour, shape, place, chance)
        grid = PROCESSOR([image], return_tensors="pt")["image_grid_thw"][0]
        marks = "<|image_pad|>" * int(grid.prod() // 4)
        asked = f"<|im_start|>user\n<|vision_start|>{marks}<|vision_end|>{chance.choice(QUESTIONS[kind])}<|im_end|>\n"
        before = tokenizer.encode(f"{asked}<|im_start|>assistant\n").ids
        said = tokenizer.encode(f"{answer(kind, colour, shape, place)}<|im_end|>").ids
        images.append(image)
        rows.append(before + said)
        wanted.append([IGNORED] * len(before) + said)
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    targets = torch.tensor([row + [IGNORED] * (length - len(row)) for row in wanted])
    given = dict(PROCESSOR(images, return_tensors="pt"))
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": (ids == pad).int(), **given}, targets


def train(steps: int, count: int, seed: int, rate: float = 1.5e-3) -> tuple[Any, tokenizers.Tokenizer]:
    torch.manual_seed(seed)
    chance, tokenizer = random.Random(seed), make_tokenizer()
    model = make_model(tokenizer).float().train()
    optimiser = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, steps, pct_start=0.1)
    began = time.monotonic()
    for step in range(steps):
        given, targets = batch(tokenizer, count, chance)
        logits = model(**given).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return model.eval(), tokenizer


def write(model: Any, tokenizer: tokenizers.Tokenizer, folder: Path) -> None:
    """A checkpoint in bfloat16, with its tokenizer, chat template and processor."""
    model.bfloat16().save_pretrained(folder)
    settings = {"eos_token_id": tokenizer.token_to_id("<|im_end|>"), "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    PROCESSOR.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=2200)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    write(*train(asked.steps, asked.batch, asked.seed), asked.out)


if __name__ == "__main__":
    main()
