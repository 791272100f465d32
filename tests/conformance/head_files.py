"""Feature heads in the layouts of their authors, made of random weights, and the papers' definitions in plain torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

VOCABULARY, SAID, HIDDEN, INNER, HEADS, KV_HEADS, LAYERS, EPS, THETA = 160, 40, 48, 80, 4, 2, 8, 1e-5, 500.0
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 256,
    "rms_norm_eps": EPS,
}
READ = (2, 4, 5)
"""The layers of an 8-layer target whose input EAGLE-3 reads: the third, the middle one, the last but two."""


def write_target(folder: Path, family: str = "Llama") -> transformers.PreTrainedModel:
    """A random model of 8 layers; returns transformers' own, as saved."""
    torch.manual_seed(3)
    options = SHAPE | {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}, "bos_token_id": 1,
                       "eos_token_id": 2, "tie_word_embeddings": False, "num_hidden_layers": LAYERS}  # fmt: skip
    model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(**options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(0.5, 1.5) if name.endswith("norm.weight") else parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    return model.eval()


def _layer(prefix: str, wide: int = 1, bias: bool = False) -> dict[str, Tensor]:
    kv = HIDDEN * KV_HEADS // HEADS
    rows = {"q_proj": HIDDEN, "k_proj": kv, "v_proj": kv}
    tensors = {f"self_attn.{name}.weight": _random(size, wide * HIDDEN) for name, size in rows.items()}
    if bias:
        tensors |= {f"self_attn.{name}.bias": _random(size) for name, size in rows.items()}
    tensors |= {
        "self_attn.o_proj.weight": _random(HIDDEN, HIDDEN),
        "mlp.gate_proj.weight": _random(INNER, HIDDEN),
        "mlp.up_proj.weight": _random(INNER, HIDDEN),
        "mlp.down_proj.weight": _random(HIDDEN, INNER),
        "post_attention_layernorm.weight": _norm(),
    }
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _random(*shape: int) -> Tensor:
    return torch.randn(shape) * 0.2


def _norm() -> Tensor:
    return torch.rand(HIDDEN) + 0.5


def eagle_tensors(bias: bool = True, table: bool = True) -> dict[str, Tensor]:
    """EAGLE-1 and 2."""
    torch.manual_seed(4)
    tensors = _layer("layers.0.") | {"fc.weight": _random(HIDDEN, 2 * HIDDEN)}
    if bias:
        tensors["fc.bias"] = _random(HIDDEN)
    if table:
        tensors["embed_tokens.weight"] = _random(VOCABULARY, HIDDEN)
    return tensors


def eagle3_tensors(table: bool = False) -> dict[str, Tensor]:
    """EAGLE-3, which says every fourth token but for the last one: d2t is the distance to it."""
    torch.manual_seed(5)
    ids = torch.arange(SAID) * 4
    ids[-1] = VOCABULARY - 1
    tensors = _layer("midlayer.", wide=2) | {
        "fc.weight": _random(HIDDEN, 3 * HIDDEN),
        "midlayer.input_layernorm.weight": _norm(),
        "midlayer.hidden_norm.weight": _norm(),
        "norm.weight": _norm(),
        "lm_head.weight": _random(SAID, HIDDEN),
        "d2t": ids - torch.arange(SAID),
        "t2d": torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, ids, True),
    }
    if table:
        tensors["embed_tokens.weight"] = _random(VOCABULARY, HIDDEN)
    return tensors


def mtp_tensors() -> dict[str, Tensor]:
    """One of MiMo's layers."""
    torch.manual_seed(6)
    prefix = "model.mtp_layers.0."
    names = ("token_layernorm", "hidden_layernorm", "input_layernorm", "final_layernorm")
    return _layer(prefix, bias=True) | {
        f"{prefix}input_proj.weight": _random(HIDDEN, 2 * HIDDEN),
        **{f"{prefix}{name}.weight": _norm() for name in names},
    }


def write_head(folder: Path, tensors: dict[str, Tensor], **values: Any) -> Path:
    """The folder of an EAGLE head."""
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPE | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "rope_theta": THETA,
                      "hidden_act": "silu"}  # fmt: skip
    if "d2t" in tensors:
        config["draft_vocab_size"] = SAID
    (folder / "config.json").write_text(json.dumps(config | values))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_mimo(folder: Path) -> tuple[transformers.PreTrainedModel, dict[str, Tensor]]:
    """A Qwen2 saved as MiMo, with a multi-token layer beside it; returns transformers' Qwen2 and the layer."""
    model = write_target(folder, "Qwen2")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = mtp_tensors()
    save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors")
    return model, tensors


class Reference:
    """A head over a whole sequence at once, with a causal mask, by the formulas of the papers."""

    def __init__(self, kind: str, tensors: dict[str, Tensor], table: Tensor, norm: Tensor, head: Tensor) -> None:
        """``table``, ``norm`` and ``head`` are the target's."""
        self.kind, self.tensors = kind, tensors
        self.table, self.norm, self.head = tensors.get("embed_tokens.weight", table), norm, head
        self.prefix = {"eagle": "layers.0.", "eagle3": "midlayer.", "mtp": "model.mtp_layers.0."}[kind]

    def features(self, hidden: dict[int, Tensor]) -> Tensor:
        """f of every row, from the states that enter the target's layers (``LAYERS``: its final norm)."""
        if self.kind == "eagle":
            return _rms(hidden[LAYERS], self.norm)
        if self.kind == "eagle3":
            return torch.cat([hidden[layer] for layer in READ], -1) @ self.tensors["fc.weight"].T
        return hidden[LAYERS]

    def outputs(self, features: Tensor, following: Sequence[int]) -> Tensor:
        """h of every entry (f_i, the token that follows)."""
        token, own = self.table[torch.tensor(following)], self._own
        if self.kind == "eagle":
            x = torch.cat((token, features), -1) @ own("fc.weight").T + self.tensors.get("fc.bias", torch.zeros(()))
            return self._block(x, x)
        if self.kind == "eagle3":
            both = torch.cat((_rms(token, self._at("input_layernorm")), _rms(features, self._at("hidden_norm"))), -1)
            return self._block(features, both)
        both = torch.cat((_rms(features, self._at("hidden_layernorm")), _rms(token, self._at("token_layernorm"))), -1)
        x = both @ self._at("input_proj").T
        return _rms(self._block(x, _rms(x, self._at("input_layernorm"))), self._at("final_layernorm"))

    def logits(self, outputs: Tensor) -> Tensor:
        if self.kind != "eagle3":
            return outputs @ self.head.T
        said = _rms(outputs, self._own("norm.weight")) @ self._own("lm_head.weight").T
        logits = torch.full((outputs.shape[0], VOCABULARY), -torch.inf)
        for draft, offset in enumerate(self._own("d2t").tolist()):
            logits[:, draft + offset] = said[:, draft]
        return logits

    def _own(self, name: str) -> Tensor:
        return self.tensors[name]

    def _at(self, name: str) -> Tensor:
        return self.tensors[f"{self.prefix}{name}.weight"]

    def _block(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self._attention(attended)
        y = _rms(x, self._at("post_attention_layernorm"))
        gated = F.silu(y @ self._at("mlp.gate_proj").T) * (y @ self._at("mlp.up_proj").T)
        return x + gated @ self._at("mlp.down_proj").T

    def _attention(self, x: Tensor) -> Tensor:
        n, dim = x.shape[0], HIDDEN // HEADS
        parts = []
        for name in ("q", "k", "v"):
            bias = self.tensors.get(f"{self.prefix}self_attn.{name}_proj.bias", torch.zeros(()))
            parts.append((x @ self._at(f"self_attn.{name}_proj").T + bias).view(n, -1, dim).transpose(0, 1))
        q, k, v = parts
        angle = torch.arange(n)[:, None] / THETA ** (torch.arange(0, dim, 2) / dim)
        cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()

        def turned(heads: Tensor) -> Tensor:
            a, b = heads.chunk(2, -1)
            return heads * cos + torch.cat((-b, a), -1) * sin

        k, v = (each.repeat_interleave(HEADS // KV_HEADS, 0) for each in (turned(k), v))
        scores = turned(q) @ k.transpose(1, 2) / dim**0.5
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, HIDDEN)
        return mixed @ self._at("self_attn.o_proj").T


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight
