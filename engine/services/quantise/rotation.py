"""A model whose residual stream is rotated and which computes what it did (Ashkboos et al. 2024, QuaRot, 2404.00456).

The residual stream of many models has a few channels many times as large as the others, and so have the weights that
read or write them: weights that share a scale with such a one have few codes left. With an orthogonal R the stream x
becomes xR. RMSNorm, its weight moved into the linear layers that read it, gives norm(x)R; those that read it become WR,
those that write it R^T W, and all logits stay as they were. R is the diagonal of random signs times the Hadamard
matrix, which spreads each channel over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from engine.base.files import read_json
from engine.compute.layers.hadamard import Hadamard
from engine.compute.layers.numerics import Numerics
from engine.formats.load import LAYER, Checkpoint
from engine.formats.quantised.quantise import CHUNK
from engine.formats.safetensors import TensorFiles, TensorInfo
from engine.formats.source import CPU
from engine.services.quantise.packed import OutputTensor, PackedItem, copied, write_json, write_shards
from engine.services.quantise.plain import copy_beside, plain_checkpoint
from engine.services.training.errors import RecipeError

TABLE, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
_LAYER_NORM = re.compile(r"(input|post_attention)_layernorm\.weight")
_READS = re.compile(r"(self_attn\.(q|k|v|qkv)|mlp\.(gate|up|gate_up))_proj\.weight")
_WRITES = re.compile(r"(self_attn\.o|mlp\.down)_proj\.(weight|bias)")
_STAYS = re.compile(
    r"(self_attn\.(q|k|v|qkv)|mlp\.(gate|up|gate_up))_proj\.bias|self_attn\.([qk]_norm\.weight|rotary_emb\.inv_freq)"
)
_FACTOR = 64
"""A larger Hadamard matrix is the Kronecker product of one of this size and another: two products with small ones."""


class Rotation:
    """``x [T, width]`` -> ``x R`` float32.

    R is of the largest power of two that divides the width, for that many neighbouring channels at a time.
    """

    def __init__(self, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._signs = torch.randint(2, (width,), generator=generator).mul(2.0).sub(1)
        self._inner = min(width & -width, _FACTOR)
        self._neighbours = Hadamard(self._inner, CPU, Numerics())
        self._across = Hadamard(width // self._inner, CPU, Numerics())

    def __call__(self, x: Tensor) -> Tensor:
        parts = (x.float() * self._signs).unflatten(-1, (-1, self._inner))
        parts = self._across(self._neighbours(parts).transpose(1, 2).contiguous())
        return parts.transpose(1, 2).flatten(1)


def check(checkpoint: Checkpoint) -> None:
    """Raises :class:`RecipeError` for a model that has other parts than Llama and its kin."""
    for name in TensorFiles.open(checkpoint.path).entries:
        part, parts = LAYER.sub("", name), (_LAYER_NORM, _READS, _WRITES, _STAYS)
        known = any(each.fullmatch(part) for each in parts) if part != name else name in (TABLE, NORM, HEAD)
        if not known:
            raise RecipeError(
                f"{checkpoint.path.name} cannot be rotated: that is known of models built like Llama alone, and it has "
                f"{name} besides. Leave --rotate out."
            )


def rotated_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the weights that :func:`rotated` writes: the output head is no longer tied to the token table then."""
    tied = checkpoint.config.tie_word_embeddings
    return checkpoint.weight_bytes + (checkpoint.files.entries[TABLE].size if tied else 0)


def rotated(
    checkpoint: Checkpoint, out: Path, report: Callable[[int, int, str], None], stopped: Callable[[], bool]
) -> Checkpoint:
    """Write the model, which has passed :func:`check`, rotated into the folder ``out``; returns what lies there.

    It has the source's dtypes, and one tensor is in memory at a time. ``report(done, total, name)`` is called after
    each. What an earlier run left in ``out`` is kept. Raises :class:`RecipeError` where the disk refuses, and
    :class:`engine.services.training.errors.RecipeStopped` soon after ``stopped()``.
    """
    config = out / "config.json"  # written last
    if not config.exists():
        out.mkdir(parents=True, exist_ok=True)
        files = TensorFiles.open(checkpoint.path)
        items = list(_items(checkpoint, files))
        done = 0

        def wrote(item: PackedItem) -> None:
            nonlocal done
            done += 1
            report(done, len(items), item.tensors[0].name)

        try:
            write_shards(items, out, wrote, stopped)
        finally:
            files.close()
        copy_beside(checkpoint.path, out)
        values = read_json(checkpoint.path / "config.json") or {}
        write_json(config, values | {"tie_word_embeddings": False})
    return plain_checkpoint(out)


def _items(checkpoint: Checkpoint, files: TensorFiles) -> Iterator[PackedItem]:
    rotation, offset = Rotation(checkpoint.config.hidden_size), float(checkpoint.config.unit_offset_norms)

    def item(name: str, entry: TensorInfo, make: Callable[[], Iterator[Tensor]]) -> PackedItem:
        return PackedItem(
            (OutputTensor(name, entry.dtype, entry.shape),), lambda: (part.to(entry.dtype) for part in make())
        )

    def reads(name: str, norm: str, of: str = "") -> PackedItem:
        """Input features are rotated, after they took the weight of the norm in."""
        entry = files.entries[of or name]

        def make() -> Iterator[Tensor]:
            scales = files.view(norm).float() + offset if norm else torch.ones(())
            for rows in files.view(entry.name).split(max(1, CHUNK // entry.shape[1])):
                yield rotation(rows.float() * scales)

        return item(name, entry, make)

    def writes(entry: TensorInfo) -> PackedItem:
        """Output features are rotated."""

        def make() -> Iterator[Tensor]:
            stored = files.view(entry.name)
            yield rotation(stored.t()).t() if stored.dim() == 2 else rotation(stored[None])[0]

        return item(entry.name, entry, make)

    def ones(entry: TensorInfo) -> PackedItem:
        return item(entry.name, entry, lambda: iter([torch.ones(entry.shape) - offset]))

    tied = checkpoint.config.tie_word_embeddings
    for name, entry in sorted(files.entries.items(), key=lambda pair: (pair[1].file.name, pair[1].start)):
        part = LAYER.sub("", name)
        layer = name.removesuffix(part)
        if name == TABLE:
            yield reads(name, "")
            if tied:
                yield reads(HEAD, NORM, TABLE)
        elif name == HEAD:
            if not tied:
                yield reads(name, NORM)
        elif _READS.fullmatch(part):
            norm = "input" if part.startswith("self_attn") else "post_attention"
            yield reads(name, f"{layer}{norm}_layernorm.weight")
        elif _WRITES.fullmatch(part):
            yield writes(entry)
        elif name == NORM or _LAYER_NORM.fullmatch(part):
            yield ones(entry)
        else:
            yield copied(files, entry)
