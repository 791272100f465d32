"""A tiny Qwen3.5 of random weights that sees pictures, and what transformers says of them; one character is a token."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from hybrid_models import SHAPE, add_mtp
from PIL import Image
from test_speculation_equality import EOS, LETTERS
from test_vision import QWEN3, picture
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.protocol import ChatMessage

START, IMAGE, END = EOS + 1, EOS + 2, EOS + 3
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
PROCESSOR = Qwen2VLImageProcessorPil(
    patch_size=6,
    merge_size=2,
    size={"shortest_edge": 30 * 30, "longest_edge": 110 * 110},
    image_mean=[0.5] * 3,
    image_std=[0.5] * 3,
)


def write_seeing(folder: Path) -> Any:
    """Save the model, its tokenizer, template and processor; the model of the saved weights."""
    torch.manual_seed(0)
    text = SHAPE | {"vocab_size": EOS + 8}
    vision = QWEN3 | {"out_hidden_size": SHAPE["hidden_size"]}
    config = transformers.Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    model = transformers.Qwen3_5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                plain = "visual" in name or "linear_attn" in name
                parameter.uniform_(0.5, 1.5) if plain else parameter.uniform_(-0.3, 0.3)
            elif name.endswith("A_log"):
                parameter.uniform_(-3, 0)
            else:
                parameter.normal_(0, 0.12)
        model.lm_head.weight[EOS:] = 0  # so that answers are text alone
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    add_mtp(folder)
    PROCESSOR.save_pretrained(folder)
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(LETTERS)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    marks = ("<end>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
    inner.add_special_tokens([tokenizers.AddedToken(mark, special=True) for mark in marks])
    assert inner.token_to_id("<|image_pad|>") == IMAGE
    inner.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return model


def photo(width: int, height: int, kind: str = "JPEG") -> bytes:
    """A file; of other sizes the picture is another."""
    file = io.BytesIO()
    picture(width, height).save(file, kind)
    return file.getvalue()


def user(text: str, *pictures: bytes) -> ChatMessage:
    return ChatMessage(role="user", content=text, pictures=list(pictures))


def inputs_of(messages: Sequence[ChatMessage], ids: Sequence[int]) -> dict[str, Any]:
    """What transformers takes for these token ids and the conversation's pictures."""
    tokens = torch.tensor([list(ids)])
    given: dict[str, Any] = {"input_ids": tokens, "mm_token_type_ids": (tokens == IMAGE).int()}
    images = [Image.open(io.BytesIO(file)) for message in messages for file in message.pictures]
    return given | (dict(PROCESSOR(images, return_tensors="pt")) if images else {})


def theirs(
    model: Any, messages: Sequence[ChatMessage], ids: Sequence[int], count: int
) -> tuple[list[int], Sequence[Tensor]]:
    """The greedy answer of transformers, and the log-probabilities ``[V]`` before each of its tokens."""
    given = inputs_of(messages, ids)
    with torch.no_grad():
        out = model.generate(
            **given, do_sample=False, max_new_tokens=count, output_logits=True, return_dict_in_generate=True
        )
    answer = out.sequences[0, len(ids) :].tolist()
    return answer, [torch.log_softmax(logits[0].float(), -1) for logits in out.logits]
