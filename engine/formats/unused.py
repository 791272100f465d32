"""Tensors of a checkpoint that its model does not ask for: a head of its own where config.json says that it is tied to
the token table, and others, which are counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from engine.config.model import ModelConfig
from engine.formats.safetensors import TensorFiles
from engine.formats.source import COMPANIONS, HEAD

TABLE = "model.embed_tokens.weight"
OWN_HEAD = (
    "config.json of {name} says that its output head is the token table, and its weights hold another head, which is "
    "used."
)
UNUSED = (
    "The weights of {name} hold {count} that the model does not use and Kvasir leaves out ({which}). If its answers "
    "are poor, choose another version of the model."
)
_HEADS = tuple(f"{HEAD}.{part}" for part in ("weight", "qweight", "weight_packed"))
_WHOLE = 64 << 20
"""Bytes up to which two tensors are compared whole."""
_PART, _PARTS = 1 << 20, 64
"""Bytes of a larger one's parts that are compared, from its first to its last, and how many."""
_SHOWN = 3
_PARTS_OF_MODULES = re.compile(r"[^.]+|weight\..+")
"""Rest of a tensor's name after its module's: "weight", "qweight", "weight.quant_map"."""
_KNOWN = re.compile(
    r"(?:.*\.)?(?:"
    r"rotary_emb\..+|rotary_pos_emb\..+|(?:original_)?inv_freq"  # computed from the configuration
    r"|position_ids|masked_bias|(?:attn|attention)\.bias|num_batches_tracked|version"  # masks and counters of old files
    r"|pooler\.dense\.(?:weight|bias)"  # BERT's second way to make one vector of a text
    r"|dense_[23]\.weight"  # what follows the pooling of an embedding model, in GGUF
    r"|(?:mtp|nextn)\w*\..+"  # multi-token layers, which draft where they can
    r"|rope_factors_\w+\.weight|rope_freqs\.weight|attn_rot_embd\.weight"  # GGUF's
    r")"
)
"""Tensors that sound models have besides those that a forward pass reads."""
_LAYER = re.compile(r"(?:model\.(?:decoder\.)?layers|blk)\.(\d+)\.(.+)")
_SHARED = re.compile(r"self_attn\.[kv]_(?:proj|norm)\..+|attn_(?:k|v|k_norm|v_norm)\.weight")
"""Keys and values of a layer, which one that reads those of another may have, too."""


def with_own_head(files: TensorFiles, config: ModelConfig) -> ModelConfig:
    """The configuration, not tied where the weights hold a head that differs from the token table."""
    if not config.tie_word_embeddings:
        return config
    head = next((name for name in _HEADS if name in files.entries), None)
    if head is None or (head == f"{HEAD}.weight" and _alike(files, head, TABLE)):
        return config
    return replace(config, tie_word_embeddings=False)


def _alike(files: TensorFiles, one: str, other: str) -> bool:
    """Return True if two matrices are equal, as far as their parts tell, or if there is no ``other`` to differ from."""
    if other not in files.entries or files.entries[one].shape != files.entries[other].shape:
        return other not in files.entries
    try:
        first, second = files.view(one), files.view(other)
        coarse = min(first.dtype, second.dtype, key=lambda dtype: dtype.itemsize)
        return all(torch.equal(first[rows].to(coarse), second[rows].to(coarse)) for rows in _parts(first))
    finally:
        files.close()


def _parts(matrix: Tensor) -> Iterator[slice]:
    """Rows to compare: all of them, or some from the first to the last."""
    rows = matrix.shape[0] if matrix.ndim else 0
    each = max(1, _PART * rows // max(1, matrix.nbytes))
    starts: Iterable[int] = range(0, rows, each)
    if matrix.nbytes > _WHOLE:
        starts = (part * (rows - each) // (_PARTS - 1) for part in range(_PARTS))
    return (slice(start, start + each) for start in starts)


def unused(names: Iterable[str], asked: set[str], config: ModelConfig) -> list[str]:
    """Names of the tensors that no part of the model asked for, and that are no known by-product. ``asked`` are names
    of tensors and of modules."""
    return [name for name in names if not _asked(name, asked) and not _by_product(name, config)]


def _asked(name: str, asked: set[str]) -> bool:
    end = len(name)
    while end > 0:
        if name[:end] in asked:
            return end == len(name) or _PARTS_OF_MODULES.fullmatch(name, end + 1) is not None
        end = name.rfind(".", 0, end)
    return False


def _by_product(name: str, config: ModelConfig) -> bool:
    if _KNOWN.fullmatch(name) or name.endswith(COMPANIONS):
        return True
    if config.tie_word_embeddings and name.startswith(f"{HEAD}."):
        return True
    layer = _LAYER.fullmatch(name)
    if layer is None:
        return False
    index = int(layer[1])
    if index >= config.num_layers:
        return True
    return config.attention.source_of(index) != index and _SHARED.fullmatch(layer[2]) is not None


def told(names: list[str], model: str) -> str:
    """A sentence about the tensors ``names``; "" where there are none."""
    if not names:
        return ""
    more = len(names) - _SHOWN
    which = ", ".join(name[:100] for name in names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    count = "a tensor" if len(names) == 1 else f"{len(names):,} tensors"
    return UNUSED.format(name=model, count=count, which=which)
