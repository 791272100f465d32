"""A tiny target with a feature head on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.base.files import read_json
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.base import FeatureHead
from engine.compute.models.heads.mtp import MIMO, MultiToken
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from engine.config.raw import RawConfig
from engine.decoding.speculation.eagle.files import read_eagle
from engine.decoding.speculation.eagle.head import LEAST_LAYERS
from engine.decoding.speculation.proposers.features import FeatureProposer
from engine.formats.load import Checkpoint, load_model
from engine.formats.open import open_checkpoint
from engine.formats.safetensors import TensorFiles
from tests.engine.decoding.speculation.decoding import PAGES, Decoding

VOCABULARY, HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 48, 32, 40, 4, 2, 2
EOS = 47
SHAPE = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "float32",
}  # fmt: skip


def _layer(prefix: str, last: float, own_norm: bool, wide: int = 1) -> dict[str, Tensor]:
    """``last`` scales what the layer adds to the stream."""
    kv = HIDDEN * KV_HEADS // HEADS
    tensors = {
        "self_attn.q_proj": torch.randn(HIDDEN, wide * HIDDEN) * 0.3,
        "self_attn.k_proj": torch.randn(kv, wide * HIDDEN) * 0.3,
        "self_attn.v_proj": torch.randn(kv, wide * HIDDEN) * 0.3,
        "self_attn.o_proj": torch.randn(HIDDEN, HIDDEN) * last,
        "mlp.gate_proj": torch.randn(INNER, HIDDEN) * 0.3,
        "mlp.up_proj": torch.randn(INNER, HIDDEN) * 0.3,
        "mlp.down_proj": torch.randn(HIDDEN, INNER) * last,
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    if own_norm:
        tensors["input_layernorm"] = torch.ones(HIDDEN)
    return {f"{prefix}{name}.weight": tensor for name, tensor in tensors.items()}


def write(folder: Path, agreement: str) -> tuple[CausalLM, FeatureHead]:
    """A target and an EAGLE-1 head: "none", both random; or "full", where the next token follows from the last alone.

    There the target's layers add nothing, tokens have embeddings of mean square 1, and the head passes on the next
    token's: so its output is exactly what the target's output layer will read. "some": the layers add a little.
    """
    last = {"none": 0.3, "some": 0.04, "full": 0.0}[agreement]
    torch.manual_seed(1)
    table = torch.randn(VOCABULARY, HIDDEN)
    table = table / table.square().mean(-1, keepdim=True).sqrt()
    tensors = {"model.embed_tokens.weight": table, "model.norm.weight": torch.ones(HIDDEN),
               "lm_head.weight": torch.randn(VOCABULARY, HIDDEN) * 0.4}  # fmt: skip
    for layer in range(LAYERS):
        tensors |= _layer(f"model.layers.{layer}.", last, True)
    head = {"fc.weight": torch.randn(HIDDEN, 2 * HIDDEN) * 0.3, **_layer("layers.0.", last, False)}
    if agreement != "none":
        head["fc.weight"] = torch.cat((torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)), 1)
    return _opened(folder, tensors, head, LAYERS)


def write_eagle3(folder: Path) -> tuple[CausalLM, FeatureHead]:
    """A random target with as many layers as EAGLE-3 needs, and its head, which says every other token."""
    torch.manual_seed(2)
    said = VOCABULARY // 2
    head = {
        "fc.weight": torch.randn(HIDDEN, 3 * HIDDEN) * 0.3,
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(said, HIDDEN) * 0.4,
        "d2t": torch.arange(said) + 1,
        **_layer("midlayer.", 0.3, True, wide=2),
    }
    return _opened(folder, _random_target(LEAST_LAYERS), head, LEAST_LAYERS, draft_vocab_size=said)


def write_mtp(folder: Path) -> tuple[CausalLM, FeatureHead]:
    """A random target with a multi-token layer of its own."""
    torch.manual_seed(3)
    tensors = _random_target(LAYERS) | _layer(MIMO.layer, 0.3, True)
    tensors |= {f"{MIMO.layer}{name}_layernorm.weight": torch.ones(HIDDEN) for name in ("token", "hidden", "final")}
    tensors[f"{MIMO.layer}input_proj.weight"] = torch.randn(HIDDEN, 2 * HIDDEN) * 0.3
    for name in [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        tensors[name.replace(".weight", ".bias")] = torch.randn(tensors[name].shape[0]) * 0.3
    _save(folder / "target", tensors, LAYERS, architectures=["MiMoForCausalLM"])
    checkpoint, model = _load(folder / "target")
    source = checkpoint.source(torch.device("cpu"), torch.float32, "4bit", Numerics())
    return model, MultiToken(model, source, MIMO)


def _random_target(layers: int) -> dict[str, Tensor]:
    tensors = {"model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN), "model.norm.weight": torch.ones(HIDDEN),
               "lm_head.weight": torch.randn(VOCABULARY, HIDDEN) * 0.4}  # fmt: skip
    for layer in range(layers):
        tensors |= _layer(f"model.layers.{layer}.", 0.3, True)
    return tensors


def _opened(
    folder: Path, target: dict[str, Tensor], head: dict[str, Tensor], layers: int, **values: Any
) -> tuple[CausalLM, FeatureHead]:
    """Both, saved and read again; ``values`` are further ones of the head's config.json."""
    _save(folder / "target", target, layers)
    _save(folder / "head", head, 1, **values)
    _, model = _load(folder / "target")
    config = RawConfig(read_json(folder / "head" / "config.json") or {}, folder / "head" / "config.json")
    return model, read_eagle(TensorFiles.open(folder / "head"), config, model)


def _save(folder: Path, tensors: dict[str, Tensor], layers: int, **values: Any) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE | {"num_hidden_layers": layers} | values))
    save_file(tensors, folder / "model.safetensors")


def _load(folder: Path, invariant: bool = False) -> tuple[Checkpoint, CausalLM]:
    checkpoint = open_checkpoint(folder, need_tokenizer=False)
    return checkpoint, load_model(checkpoint, torch.device("cpu"), torch.float32, numerics=Numerics(invariant))


class HeadDecoding(Decoding):
    """Requests whose draft tokens are the head's."""

    def __init__(self, model: CausalLM, head: FeatureHead, padded: bool = False, **settings: Any) -> None:
        """``padded``: the head's batches are padded as on a GPU."""
        self.head, self.store = head, head.new_store(PAGES)
        self.policy = powers_of_two if padded else None
        super().__init__(model, lambda host: self._drafter(**settings))

    def _drafter(self, **settings: Any) -> FeatureProposer:
        self.stores.append(self.store)
        runner = Runner(self.head, self.store, AttentionDispatcher(self.head.numerics), policy=self.policy)
        self.recorder = self.recorded(runner)
        return FeatureProposer(self.head, self.recorder, {EOS}, **settings)
