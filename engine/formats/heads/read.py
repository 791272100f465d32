"""Make heads of their files, on a target in memory: Medusa's, a feature head in EAGLE's layouts, Gemma 4's drafter.

Names and shapes are compared with what config.json implies; which EAGLE it is, the names say. Given a target that was
only planned (`Checkpoint.planned`), the head is planned too, so that its size is known before anything is read.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.common import read_decoder
from engine.compute.models.heads.assistant import ORDERING, Assistant, Clusters
from engine.compute.models.heads.base import FeatureHead
from engine.compute.models.heads.eagle import LEAST_LAYERS, TABLE, Eagle, Eagle3
from engine.compute.models.heads.medusa import MedusaHeads
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.formats.heads.files import HeadFiles
from engine.formats.heads.medusa_layout import check_vocabulary, check_width
from engine.formats.safetensors import TensorFiles
from engine.formats.source import CheckpointSource, LoadSettings

OTHER = "Choose a head that was trained for this model."


def read_medusa_heads(files: HeadFiles, target: CausalLM) -> MedusaHeads:
    """The heads of ``files``. Raises :class:`CheckpointError`."""
    assert files.medusa is not None, "the files hold Medusa heads"
    return MedusaHeads(files.medusa, files.files.view, target)


@torch.inference_mode()
def read_eagle(files: TensorFiles, raw: RawConfig, target: CausalLM) -> FeatureHead:
    """The head of ``files`` and its config.json. Raises :class:`CheckpointError` with a sentence why there is none."""
    config = _config(raw, target)
    where = raw.file.parent.name
    if "midlayer.self_attn.q_proj.weight" not in files.entries:
        if any(name.startswith("layers.1.") for name in files.entries):
            raise CheckpointError(f"{where} has several decoder layers, and an EAGLE head has one. {OTHER}")
        check_width(where, config.hidden_size, target.config, OTHER)
        return Eagle(config, target, _source(files, target), TABLE in files.entries)
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
    return Eagle3(config, target, _source(files, target), TABLE in files.entries, ids, said)


def read_assistant(files: HeadFiles, target: CausalLM) -> Assistant:
    """The drafter of ``files``. Raises :class:`CheckpointError`."""
    layout = files.assistant
    assert layout is not None, "the files hold a drafter of Gemma 4's"
    source, clusters = _source(files.files, target), None
    if layout.clusters:
        ordering = _ordering(files.files, target, files.path.name)
        clusters = Clusters(layout.config, source, ordering, layout.clusters, layout.chosen)
    return Assistant(layout.config, target, source, clusters)


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


def _source(files: TensorFiles, target: CausalLM) -> CheckpointSource:
    """The head runs as its target does, but for the batch-invariant arithmetic: draft tokens change no text."""
    numerics = Numerics(quantises=target.numerics.quantises)
    return CheckpointSource(files, None, LoadSettings(target.device, target.dtype, "4bit", numerics))


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


def _ordering(files: TensorFiles, target: CausalLM, where: str) -> Tensor:
    """The tokens of a drafter's clusters, one cluster after the other ``[vocab_size]``."""
    vocabulary = target.config.vocab_size
    entry = files.entries.get(ORDERING)
    if entry is None or entry.shape != (vocabulary,) or entry.dtype not in (torch.int64, torch.int32):
        raise CheckpointError(f"{where} has no list of {vocabulary:,} tokens as {ORDERING}. Download it again.")
    if target.device.type == "meta":
        return torch.empty(vocabulary, dtype=torch.int64, device="meta")
    ids = files.view(ORDERING).long()
    if not torch.equal(ids.sort().values, torch.arange(vocabulary)):
        raise CheckpointError(f"{where} is damaged: {ORDERING} does not list every token once. Download it again.")
    return ids.to(target.device)
