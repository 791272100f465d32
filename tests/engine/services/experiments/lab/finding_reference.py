"""What transformers finds in a text with the same checkpoint, and which pages QUEST's definition chooses there."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from engine.library.paths import bundled_folder
from engine.services.experiments.workloads.needle import Haystack

NEEDLE = bundled_folder() / "kvasir-needle"
PAGE = 16


def model_of(folder: Path = NEEDLE) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def share_found(model: Any, text: Haystack) -> float:
    """Greedy answers to all questions; the share in % that is right."""
    read, right = model(torch.tensor([text.ids]), use_cache=True, logits_to_keep=1).past_key_values, 0
    for each in text.hidden:
        cache, rows, said = copy.deepcopy(read), each.question, list[int]()
        for _ in each.answer:
            logits = model(torch.tensor([rows]), past_key_values=cache, use_cache=True).logits
            said.append(int(logits[0, -1].argmax()))
            rows = said[-1:]
        right += said == each.answer
    return 100 * right / len(text.hidden)


@torch.inference_mode()
def chosen_in_layer(model: Any, ids: list[int], layer: int, pages: int) -> list[set[int]]:
    """The pages that the last token's heads read in a layer without positions: its own, and those of which the sum of
    max(q m, q M) over channels is the greatest."""
    found: dict[str, Tensor] = {}
    attention = model.model.layers[layer].self_attn
    for name in ("q_proj", "k_proj"):
        getattr(attention, name).register_forward_hook(lambda _, __, out, name=name: found.__setitem__(name, out))
    model(torch.tensor([ids]), use_cache=False, logits_to_keep=1)
    heads = model.config.num_attention_heads
    q = found["q_proj"][0, -1].view(heads, -1)
    k = found["k_proj"][0].view(len(ids), model.config.num_key_value_heads, -1).bfloat16().float()
    own, chosen = (len(ids) - 1) // PAGE, []
    for head in range(heads):
        keys = k[: own * PAGE, head * k.shape[1] // heads].view(own, PAGE, -1)
        scores = torch.maximum(q[head] * keys.amin(1), q[head] * keys.amax(1)).sum(-1)
        chosen.append({own, *scores.topk(pages - 1).indices.tolist()})
    return chosen
