"""Tiny models of random weights that see pictures, and what transformers says to them; one character is a token."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.protocol import ChatMessage
from tests.conformance.families import GEMMA, GEMMA4_E, GEMMA4_MOE, GEMMA4_WIDE
from tests.conformance.hybrid_models import SHAPE, add_mtp
from tests.conformance.vision_models import (
    GEMMA4_VISION,
    PIXTRAL,
    QWEN2_5,
    QWEN3,
    SIGLIP,
    UNIFIED_VISION,
    UnifiedProcessor,
    picture,
)
from tests.kit.checkpoints import EOS, LETTERS

START, IMAGE, END = EOS + 1, EOS + 2, EOS + 3
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}SHOWN"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
SIZE = {"shortest_edge": 30 * 30, "longest_edge": 110 * 110}


class Family(NamedTuple):
    """``make`` is a random model, ``marks`` are the tokens START, IMAGE and END, ``shown`` is the template's.

    ``told`` is by what transformers is told which tokens are pictures, where it asks.
    """

    make: Callable[[], Any]
    processor: Any
    marks: tuple[str, str, str] = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
    shown: str = "<|vision_start|><|image_pad|><|vision_end|>"
    told: str = ""


TEXT = {name: value for name, value in SHAPE.items() if not name.startswith("linear")} | {"vocab_size": EOS + 8}
WIDTH = {"out_hidden_size": SHAPE["hidden_size"]}
QWEN_MARKS = {"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END}


def _qwen(config: Any, model: Any, text: dict[str, Any], vision: dict[str, Any], patch: int) -> Family:
    processor = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, size=SIZE, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return Family(
        lambda: model(config(text_config=text, vision_config=vision | WIDTH, **QWEN_MARKS)),
        processor,
        told="mm_token_type_ids",
    )


def _rope(*sections: int) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}}


def _mistral() -> Any:
    vision = transformers.PixtralVisionConfig(**PIXTRAL)
    text = transformers.MistralConfig(**(TEXT | {"sliding_window": None}))
    config = transformers.Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=IMAGE, spatial_merge_size=2
    )
    return transformers.Mistral3ForConditionalGeneration(config)


def _gemma3() -> Any:
    """A picture takes 49 tokens, more than a window. (transformers leaves a cap of the logits away here.)"""
    own = {"sliding_window_pattern": 2, "final_logit_softcapping": None}
    config = transformers.Gemma3Config(
        text_config=transformers.Gemma3TextConfig(**(TEXT | GEMMA | own)),
        vision_config=SIGLIP | {"image_size": 42},
        mm_tokens_per_image=49,
        boi_token_index=START,
        image_token_index=IMAGE,
        eoi_token_index=END,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


GEMMA4_TOKENS = {"audio_config": None, "boi_token_id": START, "image_token_id": IMAGE, "eoi_token_id": END}


def _gemma4(text: dict[str, Any]) -> Any:
    text = TEXT | text | {"vocab_size_per_layer_input": EOS + 8, "pad_token_id": 3}
    config = transformers.Gemma4Config(text_config=text, vision_config=GEMMA4_VISION, **GEMMA4_TOKENS)
    return transformers.Gemma4ForConditionalGeneration(config)


def _gemma4_unified() -> Any:
    text = TEXT | {key: GEMMA4_WIDE[key] for key in GEMMA4_WIDE if "per_layer" not in key}
    config = transformers.Gemma4UnifiedConfig(text_config=text, vision_config=UNIFIED_VISION, **GEMMA4_TOKENS)
    return transformers.Gemma4UnifiedForConditionalGeneration(config)


GEMMA3_PROCESSOR = Gemma3ImageProcessorPil(size={"height": 42, "width": 42})
GEMMA3_MARKS = "<start_of_image>", "<image_soft_token>", "<end_of_image>"
GEMMA4_PROCESSOR = Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70)
GEMMA4_MARKS = ("<|image>", "<|image|>", "<image|>"), "<|image|>"
AHEAD = {"use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0}
"""Of the larger Gemma 4, whose tokens of a picture see those after them."""
PIXTRAL_PROCESSOR = PixtralImageProcessorPil(size={"longest_edge": 96}, patch_size={"height": 12, "width": 12})
FAMILIES = {
    "qwen3.5": _qwen(
        transformers.Qwen3_5Config,
        transformers.Qwen3_5ForConditionalGeneration,
        SHAPE | {"vocab_size": EOS + 8},
        QWEN3,
        6,
    ),
    "qwen3-vl": _qwen(
        transformers.Qwen3VLConfig,
        transformers.Qwen3VLForConditionalGeneration,
        TEXT | _rope(7, 5, 4),
        QWEN3 | {"deepstack_visual_indexes": [0, 2]},
        6,
    ),
    "qwen2.5-vl": _qwen(
        transformers.Qwen2_5_VLConfig,
        transformers.Qwen2_5_VLForConditionalGeneration,
        {name: value for name, value in TEXT.items() if name != "head_dim"} | _rope(2, 3, 3),
        QWEN2_5,
        4,
    ),
    "gemma3": Family(_gemma3, GEMMA3_PROCESSOR, GEMMA3_MARKS, GEMMA3_MARKS[0], "token_type_ids"),
    "gemma4": Family(lambda: _gemma4(GEMMA4_E), GEMMA4_PROCESSOR, *GEMMA4_MARKS),
    "gemma4-12b": Family(_gemma4_unified, UnifiedProcessor(), *GEMMA4_MARKS, "mm_token_type_ids"),
    "gemma4-26b": Family(lambda: _gemma4(GEMMA4_MOE | AHEAD), GEMMA4_PROCESSOR, *GEMMA4_MARKS, "mm_token_type_ids"),
    "gemma4-31b": Family(lambda: _gemma4(GEMMA4_WIDE | AHEAD), GEMMA4_PROCESSOR, *GEMMA4_MARKS, "mm_token_type_ids"),
    "mistral3": Family(_mistral, PIXTRAL_PROCESSOR, ("[IMG_BREAK]", "[IMG]", "[IMG_END]"), "[IMG]"),
}


def write_seeing(folder: Path, name: str = "qwen3.5") -> Any:
    """Save the model, its tokenizer, template and processor; the model of the saved weights."""
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.make().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                offset = isinstance(model, transformers.Qwen3_5ForConditionalGeneration)
                plain = not offset or "visual" in name or "linear_attn" in name
                parameter.uniform_(0.5, 1.5) if plain else parameter.uniform_(-0.3, 0.3)
            elif name.endswith("A_log"):
                parameter.uniform_(-3, 0)
            else:
                parameter.normal_(0, 0.12)
        model.lm_head.weight[EOS:] = 0  # so that answers are text alone
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    if isinstance(model, transformers.Qwen3_5ForConditionalGeneration):
        add_mtp(folder)
    family.processor.save_pretrained(folder)
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(LETTERS)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([tokenizers.AddedToken(mark, special=True) for mark in ("<end>", *family.marks)])
    assert inner.token_to_id(family.marks[1]) == IMAGE
    inner.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("SHOWN", family.shown))
    return model


def photo(width: int, height: int, kind: str = "JPEG", turned: int = 0) -> bytes:
    """A file; of other sizes the picture is another, and so is one that is ``turned`` by some degrees."""
    file = io.BytesIO()
    picture(width, height).rotate(turned).save(file, kind)
    return file.getvalue()


def user(text: str, *pictures: bytes) -> ChatMessage:
    return ChatMessage.of("user", text, pictures=list(pictures))


def inputs_of(messages: Sequence[ChatMessage], ids: Sequence[int], name: str = "qwen3.5") -> dict[str, Any]:
    """What transformers takes for these token ids and the conversation's pictures."""
    tokens = torch.tensor([list(ids)])
    given: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    images = [Image.open(io.BytesIO(file)) for message in messages for file in message.pictures]
    if not images:
        return given
    given |= dict(FAMILIES[name].processor(images, return_tensors="pt"))
    for key in ("num_soft_tokens_per_image", "num_crops"):
        given.pop(key, None)
    told = FAMILIES[name].told
    return given | ({told: (tokens == IMAGE).int()} if told else {})


def theirs(
    model: Any, messages: Sequence[ChatMessage], ids: Sequence[int], count: int, name: str = "qwen3.5"
) -> tuple[list[int], Sequence[Tensor]]:
    """The greedy answer of transformers, and the log-probabilities ``[V]`` before each of its tokens.

    In its forward of Gemma 4 12B the tokens of a picture see those after them in all layers; where it makes masks for
    a static cache, as in its other Gemma 4 and in the model's own code, in those with a window.
    """
    own = {"cache_implementation": "static", "disable_compile": True} if name == "gemma4-12b" else {}
    with torch.no_grad():
        out = model.generate(
            **inputs_of(messages, ids, name),
            **own,
            do_sample=False,
            max_new_tokens=count,
            output_logits=True,
            return_dict_in_generate=True,
        )
    answer = out.sequences[0, len(ids) :].tolist()
    return answer, [torch.log_softmax(logits[0].float(), -1) for logits in out.logits]
