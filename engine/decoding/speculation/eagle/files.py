"""EAGLE heads in files: where they are told from, what they must have in common with their model, how they are read.

Names and shapes are compared with what config.json implies; which EAGLE it is, the names say. Given a target that was
only planned (`Checkpoint.planned`), the head is planned too, so that its size is known before anything is read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.models.base import CausalLM
from engine.compute.models.common import read_decoder
from engine.compute.models.heads.base import FeatureHead
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.decoding.speculation.eagle.head import LEAST_LAYERS, TABLE, Eagle, Eagle3
from engine.decoding.speculation.heads.features import FeatureHeads
from engine.decoding.speculation.heads.kind import (
    OTHER_HEADS,
    HeadFiles,
    check_vocabulary,
    check_width,
    source_of,
)
from engine.formats.safetensors import TensorFiles

OTHER = "Choose a head that was trained for this model."


class EagleFiles(FeatureHeads):
    """One head, of any of the three EAGLEs."""

    name, title, short = "eagle", "an EAGLE head", "EAGLE head"

    def in_config(self, config: RawConfig) -> bool:
        names = config.values.get("architectures")
        return isinstance(names, list) and any(isinstance(name, str) and "eagle" in name.lower() for name in names)

    def in_names(self, names: Collection[str]) -> bool:
        return "fc.weight" in names and any(name.startswith(("midlayer.", "layers.0.")) for name in names)

    def layout(
        self, files: TensorFiles, config: RawConfig, target: ModelConfig, where: str
    ) -> tuple[None, tuple[str, ...]]:
        _check_eagle(files, config, target, where)
        return None, ()

    def read(self, files: HeadFiles, target: CausalLM) -> FeatureHead:
        return read_eagle(files.files, files.config, target)


HEADS = EagleFiles()


@torch.inference_mode()
def read_eagle(files: TensorFiles, raw: RawConfig, target: CausalLM) -> FeatureHead:
    """The head of ``files`` and its config.json. Raises :class:`CheckpointError` with a sentence why there is none."""
    config = _config(raw, target)
    where = raw.file.parent.name
    if "midlayer.self_attn.q_proj.weight" not in files.entries:
        if any(name.startswith("layers.1.") for name in files.entries):
            raise CheckpointError(f"{where} has several decoder layers, and an EAGLE head has one. {OTHER}")
        check_width(where, config.hidden_size, target.config, OTHER)
        return Eagle(config, target, source_of(files, target), TABLE in files.entries)
    layers = target.config.num_layers
    if layers < LEAST_LAYERS:
        raise CheckpointError(
            f"{where} is an EAGLE-3 head, which reads three layers of a model with at least {LEAST_LAYERS}, and this "
            f"one has {layers}. Choose an EAGLE-1 head."
        )
    if TABLE not in files.entries:
        check_width(where, config.hidden_size, target.config, OTHER)
    said = raw.integer("draft_vocab_size", config.vocab_size)
    ids = _ids(files, said, target, where)
    return Eagle3(config, target, source_of(files, target), TABLE in files.entries, ids, said)


def _config(raw: RawConfig, target: CausalLM) -> ModelConfig:
    """The head's one layer as config.json has it; its dtype is of no account."""
    values = raw.values if raw.values.get("architectures") else {**raw.values, "architectures": ["EAGLE"]}
    named = RawConfig(values, raw.file)
    bias = named.flag("attention_bias", False) or named.flag("qkv_bias", False)
    config = read_decoder(named, qkv_bias=bias, mlp_bias=named.flag("mlp_bias", False))
    where = raw.file.parent.name
    if config.num_layers != 1:
        raise CheckpointError(f"{where} has {config.num_layers} decoder layers, and an EAGLE head has one. {OTHER}")
    check_vocabulary(where, config.vocab_size, target.config, OTHER)
    return replace(config, dtype=target.dtype)


def _ids(files: TensorFiles, said: int, target: CausalLM, where: str) -> Tensor | None:
    """The target's number of each token ``[said]`` that the head can say: its own plus ``d2t``, an offset.

    None where both vocabularies are the same and no offsets are given.
    """
    vocabulary = target.config.vocab_size
    entry = files.entries.get("d2t")
    if entry is None and said == vocabulary:
        return None
    if entry is None or entry.shape != (said,) or entry.dtype not in (torch.int64, torch.int32):
        raise CheckpointError(
            f"{where} says {said:,} of {vocabulary:,} tokens, and has no list (d2t) of which those are. "
            "Download it again."
        )
    if target.device.type == "meta":
        return torch.empty(said, dtype=torch.int64, device="meta")
    ids = torch.arange(said) + files.view("d2t").long()
    wrong = int(ids.min()) < 0 or int(ids.max()) >= vocabulary or ids.unique().numel() != said
    mask = files.entries.get("t2d")
    if not wrong and mask is not None:
        known = files.view("t2d").bool()
        wrong = known.shape != (vocabulary,) or int(known.sum()) != said or not bool(known[ids].all())
    if wrong:
        raise CheckpointError(
            f"{where} is damaged: its lists of the tokens that it says (d2t, t2d) do not fit the {vocabulary:,} tokens "
            "of this model, or each other. Download it again."
        )
    return ids.to(target.device)


def _check_eagle(files: TensorFiles, config: RawConfig, target: ModelConfig, where: str) -> None:
    """Check the widths and the vocabulary that all three EAGLEs share with their model; the builder checks the rest.

    Raises :class:`CheckpointError`. ``fc`` reads a token's embedding with a state of the target (1 and 2), or three
    states (3).
    """
    fc = files.entries.get("fc.weight")
    if fc is None:
        raise CheckpointError(f"{where} is said to hold an EAGLE head and has no fc.weight. {OTHER_HEADS}")
    states = 3 if "d2t" in files.entries or any(name.startswith("midlayer.") for name in files.entries) else 2
    width, rest = divmod(fc.shape[1] if len(fc.shape) == 2 else 0, states)
    check_width(where, 0 if rest else width, target)
    words = config.integer("vocab_size", target.vocab_size)
    check_vocabulary(where, files.entries["t2d"].numel if "t2d" in files.entries else words, target)
