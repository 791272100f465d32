"""Gemma 4's drafter in Google's repositories (``google/gemma-4-*-it-assistant``): which target it fits.

config.json nests that of its layers in ``text_config``, as transformers' ``Gemma4AssistantConfig`` writes it; what the
layers and their target must have in common is compared field by field before any tensor is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.models.base import CausalLM
from engine.compute.models.families import gemma4
from engine.compute.models.heads.assistant import ORDERING, Assistant, Clusters, sources_of
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.decoding.speculation.assistant.proposer import AssistantProposer
from engine.decoding.speculation.heads.features import tried
from engine.decoding.speculation.heads.kind import AttachedHead, HeadFiles, HeadKind, HeadTarget, source_of
from engine.formats.safetensors import TensorFiles
from engine.formats.unused import OWN_HEAD, with_own_head

WIDTHS = {"gemma4_assistant": 1536, "gemma4_unified_assistant": 3840}
"""``model_type`` -> the target's hidden size where the file is silent: transformers leaves out what is its default."""
OTHER = "Choose the assistant that was made for this model."


class AssistantLayout(NamedTuple):
    """A drafter that fits its target: its layers, and of how many ``clusters`` of tokens it scores the best
    ``chosen``, 0 where it scores all tokens."""

    config: ModelConfig
    clusters: int = 0
    chosen: int = 0


class AssistantFiles(HeadKind):
    """A drafter of a few layers."""

    name, title, short = "assistant", "an assistant of Gemma 4", "Gemma 4 assistant"
    called = "The assistant"

    def in_config(self, config: RawConfig) -> bool:
        return is_assistant(config)

    def neighbour(self, model: Path) -> Path:
        return model.with_name(f"{model.name}-assistant")

    def layout(
        self, files: TensorFiles, config: RawConfig, target: ModelConfig, where: str
    ) -> tuple[AssistantLayout, tuple[str, ...]]:
        layout = read_layout(config, target, where)
        own = with_own_head(files, layout.config)
        notices = () if own is layout.config else (OWN_HEAD.format(name=where),)
        return layout._replace(config=own), notices

    def read(self, files: HeadFiles, target: CausalLM) -> Assistant:
        return read_assistant(files, target)

    def attach(self, head: Assistant, target: HeadTarget) -> AttachedHead:
        return AttachedHead(AssistantProposer(head, tried(head, target.runner.kv, target), target.eos_ids))

    def described(self, head: Assistant, files: HeadFiles) -> tuple[str, str]:
        return "assistant", str(files.path)


HEADS = AssistantFiles()


def is_assistant(raw: RawConfig) -> bool:
    """Return True if config.json is that of a Gemma 4 drafter."""
    names = raw.values.get("architectures")
    named = isinstance(names, list) and any(isinstance(name, str) and "Gemma4" in name for name in names)
    return raw.values.get("model_type") in WIDTHS or (named and "backbone_hidden_size" in raw.values)


def read_layout(raw: RawConfig, target: ModelConfig, where: str) -> AssistantLayout:
    """The drafter of config.json. Raises :class:`CheckpointError` with the first field that does not fit."""
    if not target.architecture.startswith("Gemma4"):
        family = target.architecture.removesuffix("ForCausalLM")
        raise CheckpointError(f"{where} is an assistant for Gemma 4, and this model is of the family {family}. {OTHER}")
    text = raw.values.get("text_config")
    if not isinstance(text, dict):
        raise raw.wrong('its "text_config" is not a JSON object')
    outer = {key: value for key, value in raw.values.items() if key != "text_config"}
    named = RawConfig(outer | text, raw.file)
    width = raw.integer("backbone_hidden_size", WIDTHS.get(str(raw.values.get("model_type"))))
    _same(where, "backbone_hidden_size", width, target.hidden_size)
    _same(where, "vocab_size", named.integer("vocab_size"), target.vocab_size)
    for key in ("hidden_size_per_layer_input", "enable_moe_block", "use_double_wide_mlp"):
        if named.values.get(key):
            raise raw.wrong(f'"{key}" is {named.values[key]!r}, and an assistant has none of that')
    layers = named.integer("num_hidden_layers", most=100)
    _same(where, "num_kv_shared_layers", named.integer("num_kv_shared_layers", layers, least=0) or layers, layers)
    # All of its layers share, which the family would have no layer to share with.
    own = {
        "architectures": ["Gemma4ForCausalLM"],
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": None,
        "tie_word_embeddings": raw.flag("tie_word_embeddings", True),
    }
    config = gemma4.read_config(RawConfig(named.values | own, raw.file))
    _check_layers(where, config, target)
    if not raw.flag("use_ordered_embeddings", False):
        return AssistantLayout(config)
    clusters = raw.integer("num_centroids", 2048)
    chosen = raw.integer("centroid_intermediate_top_k", 32, most=clusters)
    if config.vocab_size % clusters:
        raise raw.wrong(f'"num_centroids" is {clusters:,}, which does not divide the {config.vocab_size:,} tokens')
    return AssistantLayout(config, clusters, chosen)


def _same(where: str, field: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise CheckpointError(f"{where} has {field} {found:,} where this model needs {wanted:,}. {OTHER}")


def _check_layers(where: str, config: ModelConfig, target: ModelConfig) -> None:
    """Each layer and the target's that it reads: heads of keys and values, and no more of a window than is kept."""
    for layer, source in enumerate(sources_of(config, target)):
        own, other = config.attention.heads_of(layer), target.attention.heads_of(source)
        names = ("head_dim", "num_key_value_heads")
        if not config.positions.local[layer]:
            names = ("global_head_dim", "num_global_key_value_heads")
        _same(where, names[0], own.width, other.width)
        _same(where, names[1], own.kv_heads, other.kv_heads)
        window, kept = config.attention.windows[layer], target.attention.windows[source]
        if window is not None and kept is not None and window > kept:
            _same(where, "sliding_window", window, kept)


def read_assistant(files: HeadFiles, target: CausalLM) -> Assistant:
    """The drafter of ``files``. Raises :class:`CheckpointError`."""
    layout: AssistantLayout = files.layout
    source, clusters = source_of(files.files, target), None
    if layout.clusters:
        ordering = _ordering(files.files, target, files.path.name)
        clusters = Clusters(layout.config, source, ordering, layout.clusters, layout.chosen)
    return Assistant(layout.config, target, source, clusters)


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
