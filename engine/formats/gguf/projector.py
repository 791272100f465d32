"""A model's vision tower in GGUF, a second file next to it (``mmproj-*.gguf``): read as a tower in safetensors is.

What converters write, and what holds where they write nothing, is llama.cpp's (its conversion/ and tools/mtmd).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.ggml_blocks import BLOCKS, dequantise
from engine.compute.vision.settings import TowerConfig
from engine.config.model import ModelConfig
from engine.config.raw import REPAIR, RawConfig
from engine.formats.gguf.container import GGUFFile
from engine.formats.gguf.find import projectors_beside
from engine.formats.gguf.keys import MetadataKeys
from engine.formats.gguf.source import half_split
from engine.formats.gguf.types import FLOATING, TYPES
from engine.formats.gguf.vocabulary import TOKENS
from engine.formats.safetensors import TensorFiles, TensorInfo
from engine.formats.vision import VisionPart, checked, unknown

MODULES = {"norm1": "ln1", "norm2": "ln2", "out": "attn_out", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
"""Modules of a layer, and what GGUF calls them after ``v.blk.N.``."""
QKV = ("attn_q", "attn_k", "attn_v")
MOST_LAYERS = 1000
_EMBEDDING, _PLACES = "v.patch_embd", "v.position_embd"


class _Stored(NamedTuple):
    """Tensors of the file that make one of the tower's: ``parts``, concatenated along dimension ``along``, or stacked
    in a new dimension, the third, where it is None. ``heads``: rows are interleaved by that number; ``less`` is
    subtracted."""

    parts: tuple[str, ...]
    along: int | None = 0
    heads: int = 0
    less: float = 0.0


class ProjectorFiles(TensorFiles):
    """The tensors of a projector by the tower's names for them. What is packed is seen and read as float32."""

    def __init__(self, files: GGUFFile, stored: Mapping[str, _Stored]) -> None:
        """Raises :class:`CheckpointError` where parts of a tensor do not fit each other."""
        self._files, self._stored = files, stored
        super().__init__({name: self._info(name, found) for name, found in stored.items()})

    def _info(self, name: str, found: _Stored) -> TensorInfo:
        entries = [self._files.entries[part] for part in found.parts]
        first = entries[0]
        if any(entry.type not in FLOATING and entry.type not in BLOCKS for entry in entries):
            raise CheckpointError(
                f"{first.name} is stored as {TYPES[first.type].name}, and Kvasir does not read that. "
                "Choose another version of the file."
            )
        if any(entry.shape[1:] != first.shape[1:] or len(entry.shape) != len(first.shape) for entry in entries):
            raise CheckpointError(f"The rows of {first.name} and {entries[-1].name} differ in length. {REPAIR}")
        rows = sum(entry.shape[0] for entry in entries)
        shape = (rows, *first.shape[1:])
        if found.along is None:
            shape = (*first.shape[:2], len(entries), *first.shape[2:])
        kinds = {entry.type for entry in entries}
        plain = len(kinds) == 1 and first.type in FLOATING and not found.less
        return TensorInfo(name, FLOATING[first.type] if plain else torch.float32, shape, self._files.path, first.start)

    def view(self, name: str) -> Tensor:
        """The tensor, made of its parts, in float32 where they are quantised. Implements :meth:`TensorFiles.view`."""
        found = self._stored[name]
        parts = [self._part(part) for part in found.parts]
        whole = parts[0] if len(parts) == 1 else torch.stack(parts, 2) if found.along is None else torch.cat(parts)
        whole = half_split(whole, found.heads).to(self.entries[name].dtype)
        return whole - found.less if found.less else whole

    def _part(self, name: str) -> Tensor:
        entry = self._files.entries[name]
        if entry.type in FLOATING:
            return self._files.floating(name)
        return dequantise(entry.type, self._files.packed(name)).view(entry.shape)

    def close(self) -> None:
        """Close the GGUF file. Implements :meth:`TensorFiles.close`."""
        self._files.close()


class _Names(NamedTuple):
    """A tower's names: of its layers, which begin with ``layers`` and a number, and of modules outside of them."""

    layers: str
    inner: Mapping[str, str]
    outer: Mapping[str, str]
    qkv: tuple[str, ...]
    patches: str
    frames: bool = False
    interleaved: bool = False
    """Rows of queries and keys lie as ggml rotates pairs of neighbours."""


_QWEN = ("norm1", "norm2", "attn.proj")
_QWEN2 = _Names(
    "visual.blocks.",
    dict(zip(MODULES, (*_QWEN, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), strict=True)),
    {"visual.merger.ln_q": "v.post_ln", "visual.merger.mlp.0": "mm.0", "visual.merger.mlp.2": "mm.2"},
    ("attn.qkv",),
    "visual.patch_embed.proj",
    frames=True,
)
_QWEN3 = _QWEN2._replace(
    inner=dict(zip(MODULES, (*_QWEN, "", "mlp.linear_fc1", "mlp.linear_fc2"), strict=True)),
    outer={
        "visual.pos_embed": _PLACES,
        "visual.merger.norm": "v.post_ln",
        "visual.merger.linear_fc1": "mm.0",
        "visual.merger.linear_fc2": "mm.2",
    },
)
_PIXTRAL = _Names(
    "vision_tower.transformer.layers.",
    {
        "norm1": "attention_norm",
        "norm2": "ffn_norm",
        "out": "attention.o_proj",
        "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj",
    },
    {
        "vision_tower.ln_pre": "v.pre_ln",
        "multi_modal_projector.norm": "mm.input_norm",
        "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
        "multi_modal_projector.linear_1": "mm.1",
        "multi_modal_projector.linear_2": "mm.2",
    },
    ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    "vision_tower.patch_conv",
    interleaved=True,
)
_GEMMA3 = _Names(
    "vision_tower.encoder.layers.",
    dict(zip(MODULES, ("layer_norm1", "layer_norm2", "self_attn.out_proj", "", "mlp.fc1", "mlp.fc2"), strict=True)),
    {
        "vision_tower.embeddings.position_embedding": _PLACES,
        "vision_tower.post_layernorm": "v.post_ln",
        "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
    },
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "vision_tower.embeddings.patch_embedding",
)


class _Reading(NamedTuple):
    """Inputs of a tower's configuration. ``ids`` are the tokenizer's, by the tokens' texts."""

    keys: MetadataKeys
    files: GGUFFile
    model: ModelConfig
    ids: Mapping[str, int]

    def token(self, *texts: str) -> int:
        """The id of the first of some tokens that there is."""
        found = next((self.ids[text] for text in texts if text in self.ids), None)
        if found is None:
            raise CheckpointError(f"The model's tokenizer has no {texts[0]}, which pictures need. {REPAIR}")
        return found

    def activation(self, usual: str) -> str:
        """Activation of the feed-forward blocks: "silu" if the file says so, else ``usual``. ggml has one GELU, by
        tangent."""
        return "silu" if self.keys.flag("use_silu", False) else usual


Values = dict[str, Any]


def _qwen2_5(said: _Reading) -> tuple[Values, Values]:
    every = said.keys.integer("vision.n_wa_pattern")
    layers = said.keys.integer("vision.block_count")
    vision = {
        "num_heads": said.keys.integer("vision.attention.head_count"),
        "depth": layers,
        "hidden_act": said.activation("gelu"),
        "out_hidden_size": said.model.hidden_size,
        "spatial_merge_size": said.keys.optional_integer("vision.spatial_merge_size") or 2,
        "window_size": said.keys.optional_integer("vision.window_size") or 112,
        "fullatt_block_indexes": list(range(every - 1, layers, every)),
    }
    return vision, {"image_token_id": said.token("<|image_pad|>")}


def _qwen3(said: _Reading) -> tuple[Values, Values]:
    places = said.files.entries.get(f"{_PLACES}.weight")
    vision = {
        "num_heads": said.keys.integer("vision.attention.head_count"),
        "depth": said.keys.integer("vision.block_count"),
        "hidden_act": said.activation("gelu_pytorch_tanh"),
        "out_hidden_size": said.model.hidden_size,
        "spatial_merge_size": said.keys.optional_integer("vision.spatial_merge_size") or 2,
        "num_position_embeddings": places.shape[0] if places is not None else None,
        "deepstack_visual_indexes": _taps(said.keys),
    }
    return vision, {"image_token_id": said.token("<|image_pad|>")}


def _taps(keys: MetadataKeys) -> list[int]:
    """The layers whose output the language model is given, too."""
    stated = keys.get("vision.is_deepstack_layers")
    return [index for index, each in enumerate(stated) if each] if isinstance(stated, list) else []


def _pixtral(said: _Reading) -> tuple[Values, Values]:
    keys = said.keys
    vision = {
        "num_attention_heads": keys.integer("vision.attention.head_count"),
        "num_hidden_layers": keys.integer("vision.block_count"),
        "hidden_act": said.activation("gelu"),
        "rope_theta": keys.optional_number("rope.freq_base") or 10_000.0,
    }
    return vision, {
        "image_token_index": said.token("[IMG]"),
        "spatial_merge_size": keys.optional_integer("vision.spatial_merge_size") or 1,
        "multimodal_projector_bias": "mm.1.bias" in said.files.entries,
        "text_config": {"rms_norm_eps": said.model.rms_norm_eps},
    }


def _gemma3(said: _Reading) -> tuple[Values, Values]:
    keys = said.keys
    side = keys.integer("vision.image_size") // keys.integer("vision.patch_size")
    vision = {
        "num_attention_heads": keys.integer("vision.attention.head_count"),
        "num_hidden_layers": keys.integer("vision.block_count"),
        "hidden_act": said.activation("gelu_pytorch_tanh"),
        "layer_norm_eps": keys.number("vision.attention.layer_norm_epsilon"),
    }
    return vision, {
        "mm_tokens_per_image": (side // (keys.optional_integer("vision.projector.scale_factor") or 4)) ** 2,
        "boi_token_index": said.token("<start_of_image>"),
        # Converters cut off the placeholder's row, the last one: another token that no text has stands in for it.
        "image_token_index": said.token("<image_soft_token>", "<unused98>"),
        "eoi_token_index": said.token("<end_of_image>"),
    }


class _ProjectorKind(NamedTuple):
    """Reader of one kind of projector. ``models``: a language model's architecture in GGUF -> that of the whole model.

    ``values`` gives config.json's values of the tower, and those beside it. ``size`` bounds a picture's pixels where
    the file does not.
    """

    models: Mapping[str, str]
    values: Callable[[_Reading], tuple[Values, Values]]
    names: _Names
    size: Values = {}


_MISTRAL = "Mistral3ForConditionalGeneration"
KINDS = {
    "qwen2.5vl_merger": _ProjectorKind(
        {"qwen2vl": "Qwen2_5_VLForConditionalGeneration"},
        _qwen2_5,
        _QWEN2,
        {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 16_384},
    ),
    "qwen3vl_merger": _ProjectorKind(
        {
            "qwen3vl": "Qwen3VLForConditionalGeneration",
            "qwen3vlmoe": "Qwen3VLMoeForConditionalGeneration",
            "qwen35": "Qwen3_5ForConditionalGeneration",
            "qwen35moe": "Qwen3_5MoeForConditionalGeneration",
        },
        _qwen3,
        _QWEN3,
        {"shortest_edge": 1 << 16, "longest_edge": 1 << 24},
    ),
    "pixtral": _ProjectorKind({"llama": _MISTRAL, "mistral3": _MISTRAL}, _pixtral, _PIXTRAL),
    "gemma3": _ProjectorKind({"gemma3": "Gemma3ForConditionalGeneration"}, _gemma3, _GEMMA3),
}
"""Kind of projector, by the file's name for it -> its reader."""
SEEING = ("qwen2vl", "qwen3vl", "qwen3vlmoe")
"""Architectures of models that all see, ..."""
MAY_SEE = frozenset(("gemma4", *(architecture for kind in KINDS.values() for architecture in kind.models)))
"""... and of those some of which do."""


def find_projector(file: Path, model: GGUFFile, config: ModelConfig) -> tuple[VisionPart | None, str]:
    """The tower that lies next to the model ``file``; or why there is none that Kvasir can use.

    The reason is the rest of a sentence, or "" where the model may have no tower. ``model`` still has its token list.
    """
    architecture = model.metadata["general.architecture"]
    if architecture not in MAY_SEE:
        return None, ""
    beside, alike = projectors_beside(file)
    if not beside:
        missing = "no file mmproj-….gguf, which has its vision tower, lies next to it"
        return None, missing if architecture in SEEING else ""
    if len(beside) > 1:
        # In a folder of many models those may be towers of others.
        several = f"{len(beside)} vision towers lie next to it ({', '.join(path.name for path in beside[:3])})"
        return None, several if alike or architecture in SEEING else ""
    try:
        return _read(GGUFFile.open(beside[0]), model, config)
    except CheckpointError as error:
        return None, f"the vision tower in {beside[0].name} cannot be used: {error}"


def _read(files: GGUFFile, model: GGUFFile, config: ModelConfig) -> tuple[VisionPart | None, str]:
    architecture = str(model.metadata["general.architecture"])
    keys = MetadataKeys(files.metadata, "clip", files.path)
    named = keys.get("vision.projector_type") or keys.get("projector_type")
    kind = KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        known = ", ".join(KINDS)
        return None, f"{files.path.name} has a vision tower of the kind {named!r:.80}, and Kvasir reads {known}"
    if architecture not in kind.models:
        return None, ""  # that of another model
    if keys.optional_integer("vision.projection_dim") not in (None, config.hidden_size):
        return None, f"the vision tower in {files.path.name} is that of another model"
    tokens = model.metadata.get(TOKENS)
    ids = (
        {text: index for index, text in enumerate(tokens) if isinstance(text, str)} if isinstance(tokens, list) else {}
    )
    vision, outer = kind.values(_Reading(keys, files, config, ids))
    sizes = {
        "hidden_size": keys.integer("vision.embedding_length"),
        "intermediate_size": _inner(files, keys),
        "image_size": keys.integer("vision.image_size"),
        "patch_size": keys.integer("vision.patch_size"),
    }
    values = {"architectures": [kind.models[architecture]], "vision_config": vision | sizes} | outer
    said = TowerConfig(
        RawConfig(values, files.path), _processor(keys, kind, vision, files.path), config.hidden_size, unknown
    )
    stored = dict(_tensors(files, kind.names, keys, vision))
    return checked(VisionPart(said, ProjectorFiles(files, stored), None)), ""


def _inner(files: GGUFFile, keys: MetadataKeys) -> int:
    """The feed-forward size: some older files do not say it."""
    up = files.entries.get("v.blk.0.ffn_up.weight")
    stated = keys.optional_integer("vision.feed_forward_length")
    return stated or (max(up.shape) if up is not None else keys.integer("vision.feed_forward_length"))


def _processor(keys: MetadataKeys, kind: _ProjectorKind, vision: Values, file: Path) -> RawConfig:
    """Equivalent of preprocessor_config.json, from the file's keys."""
    side, patch = keys.integer("vision.image_size"), keys.integer("vision.patch_size")
    values: Values = {"size": {"height": side, "width": side, "longest_edge": side} | kind.size, "patch_size": patch}
    if "spatial_merge_size" in vision:
        values["merge_size"] = vision["spatial_merge_size"]
    for key, own in (("min_pixels", "image_min_pixels"), ("max_pixels", "image_max_pixels")):
        if kind.size and (found := keys.optional_integer(f"vision.{own}")):
            values[key] = found
    for key in ("image_mean", "image_std"):
        values[key] = keys.get(f"vision.{key}")
    return RawConfig(values, file)


def _tensors(files: GGUFFile, names: _Names, keys: MetadataKeys, vision: Values) -> Iterator[tuple[str, _Stored]]:
    """The tower's tensors that the file has. Those that it lacks are missed when the tower is read."""
    layers = keys.integer("vision.block_count")
    if layers > MOST_LAYERS:
        raise keys.wrong(f"{layers:,} layers are absurd")
    width, heads = keys.integer("vision.embedding_length"), keys.integer("vision.attention.head_count")
    swapped = _swapped(files, width)
    outer = dict(names.outer)
    for place, index in enumerate(vision.get("deepstack_visual_indexes") or []):
        for own, theirs in (("norm", "norm"), ("linear_fc1", "fc1"), ("linear_fc2", "fc2")):
            outer[f"visual.deepstack_merger_list.{place}.{own}"] = f"v.deepstack.{index}.{theirs}"
    for layer in range(layers):
        before, block = f"{names.layers}{layer}.", f"v.blk.{layer}."
        for module, own in names.inner.items():
            theirs = MODULES[swapped.get(module, module)]
            if own:
                outer[before + own] = block + theirs
        yield from _attention(files, names, before, block, heads)
    for own, theirs in outer.items():
        less = 1.0 if theirs == "mm.soft_emb_norm" else 0.0
        yield from ((own + end, _Stored((theirs + end,), less=less)) for end in _ends(files, theirs))
    if names is _GEMMA3 and "mm.input_projection.weight" in files.entries:
        yield "multi_modal_projector.mm_input_projection_weight", _Stored(("mm.input_projection.weight",))
    if f"{_EMBEDDING}.weight" in files.entries:
        parts = [f"{_EMBEDDING}.weight", *([f"{_EMBEDDING}.weight.1"] if names.frames else [])]
        if all(part in files.entries for part in parts):
            yield f"{names.patches}.weight", _Stored(tuple(parts), None if names.frames else 0)
    if f"{_EMBEDDING}.bias" in files.entries:
        yield f"{names.patches}.bias", _Stored((f"{_EMBEDDING}.bias",))


def _attention(files: GGUFFile, names: _Names, before: str, block: str, heads: int) -> Iterator[tuple[str, _Stored]]:
    """Queries, keys and values, together or apart in the file and in the tower."""
    if len(names.qkv) > 1:
        for own, theirs in zip(names.qkv, QKV, strict=True):
            turned = heads if names.interleaved and theirs != "attn_v" else 0
            for end in _ends(files, block + theirs):
                yield f"{before}{own}{end}", _Stored((f"{block}{theirs}{end}",), heads=turned)
        return
    for end in (".weight", ".bias"):
        together, apart = f"{block}attn_qkv{end}", tuple(f"{block}{theirs}{end}" for theirs in QKV)
        if together in files.entries:
            yield f"{before}{names.qkv[0]}{end}", _Stored((together,))
        elif all(part in files.entries for part in apart):
            yield f"{before}{names.qkv[0]}{end}", _Stored(apart)


def _ends(files: GGUFFile, module: str) -> Iterator[str]:
    return (end for end in (".weight", ".bias") if module + end in files.entries)


def _swapped(files: GGUFFile, width: int) -> dict[str, str]:
    """Some older files have the names of the feed-forward blocks' ways up and down the wrong way round."""
    up, down = (files.entries.get(f"v.blk.0.{name}.weight") for name in ("ffn_up", "ffn_down"))
    wrong = up is not None and down is not None and down.shape[-1] == width != up.shape[-1]
    return {"up": "down", "down": "up"} if wrong else {}
