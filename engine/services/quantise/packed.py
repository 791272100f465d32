"""A checkpoint in 16 or 32 bits written anew with its linear layers packed, module by module.

``nf4``: bitsandbytes' serialised 4 bits (see engine/formats/quantised/bitsandbytes.py), blocks of 64 with plain
magnitudes. ``int8``: compressed-tensors' "pack-quantized" with 8 bits and a scale for each row, activations as they are
(W8A16). Not bitsandbytes' LLM.int8: what reads that quantises the activations too, so that the same file gives other
logits there than here, while this layout says the same to Kvasir, transformers and vLLM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.base.files import read_json
from engine.compute.layers.numerics import Numerics
from engine.compute.models.registry import family
from engine.formats.load import Checkpoint
from engine.formats.quantised.quantise import BLOCK, CHUNK, NF4, Module, Quantiser, check_finite
from engine.formats.safetensors import DTYPES, TensorFiles, TensorInfo
from engine.formats.source import CPU, HEAD, CheckpointSource, LoadSettings
from engine.services.quantise.pieces import FilePiece, as_bytes, cannot_write, write_file

SHARD = 4 << 30
"""Bytes of a file from which on another one is begun."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_TITLES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
Report = Callable[[int, int, str], None]


class OutputTensor(NamedTuple):
    """A tensor of a file that is to be written."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class PackedItem(NamedTuple):
    """Tensors that are made together; ``make`` gives parts of them in this order. ``module``: the one packed in it.

    ``place``: items of a file are in its order, so that all numbers lie where they can be viewed.
    """

    tensors: tuple[OutputTensor, ...]
    make: Callable[[], Iterable[Tensor]]
    module: str = ""
    place: int = 1

    @property
    def size(self) -> int:
        return sum(tensor.size for tensor in self.tensors)


def write_packed(checkpoint: Checkpoint, to: str, out: Path, report: Report, stopped: Callable[[], bool]) -> None:
    """Weights and config.json of ``checkpoint`` in the folder ``out``, config.json last; ``to`` is nf4 or int8."""
    files = TensorFiles.open(checkpoint.path)
    modules = linear_modules(checkpoint)
    plain = {entry.name: name.removesuffix(".weight") for name, entry in checkpoint.files.entries.items()}
    packed: list[PackedItem] = []
    others = {HEAD}
    for entry in sorted(files.entries.values(), key=lambda entry: (entry.file.name, entry.start)):
        module = modules.get(plain.get(entry.name, ""))
        if module is not None:
            packed += _PACKERS[to](entry, module)
            continue
        packed.append(copied(files, entry))
        if len(entry.shape) == 2 and entry.name.endswith(".weight"):
            others.add(entry.name.removesuffix(".weight"))
    done = 0

    def wrote(item: PackedItem) -> None:
        nonlocal done
        if item.module:
            done += 1
            report(done, len(modules), item.module)

    try:
        write_shards(packed, out, wrote, stopped)
    finally:
        files.close()
        checkpoint.files.close()
    values = read_json(checkpoint.path / "config.json") or {}
    write_json(out / "config.json", values | {"quantization_config": _CONFIGS[to](checkpoint, sorted(others))})


def linear_modules(checkpoint: Checkpoint) -> dict[str, Module]:
    """The linear modules whose weights can be packed, by their names in the text model; no head and no router."""
    listing = _Listing()
    settings = LoadSettings(torch.device("meta"), torch.float32, "4bit", Numerics(), quantiser=listing)
    family(checkpoint.config.architecture).Model(checkpoint.config, CheckpointSource(checkpoint.files, None, settings))
    return listing.modules


class _Listing(Quantiser):
    """Remembers what it is asked for."""

    def __init__(self) -> None:
        super().__init__("nf4", CPU)
        self.modules: dict[str, Module] = {}

    def packed(self, module: Module) -> Any:
        found = super().packed(module)
        if found is not None:
            self.modules[module.name] = module
        return found


def write_json(file: Path, values: dict[str, Any]) -> None:
    """Raises :class:`RecipeError`."""
    unfinished = file.with_name(file.name + ".unfinished")
    try:
        unfinished.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", "utf-8")
        unfinished.replace(file)
    except OSError as error:
        raise cannot_write(file, error) from error


# --- modules ---------------------------------------------------------------------------------------------------------


def copied(files: TensorFiles, entry: TensorInfo) -> PackedItem:
    """A tensor as it is."""

    def make() -> Iterator[Tensor]:
        yield from files.view(entry.name).flatten().split(CHUNK)

    return PackedItem((OutputTensor(entry.name, entry.dtype, entry.shape),), make)


def _nf4(entry: TensorInfo, module: Module) -> Iterator[PackedItem]:
    weights = module.out_features * module.in_features
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": _TITLES[entry.dtype], "shape": list(entry.shape)}
    raw = torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)

    def make() -> Iterator[Tensor]:
        packed = Quantiser("nf4", CPU).packed(module)
        assert packed is not None, "it is one of linear_modules()"
        part = packed.read()
        yield from (part.absmax, torch.tensor(NF4), part.packed)

    tensors = (
        OutputTensor(f"{entry.name}.absmax", torch.float32, (-(-weights // BLOCK),)),
        OutputTensor(f"{entry.name}.quant_map", torch.float32, (len(NF4),)),
        OutputTensor(entry.name, torch.uint8, (weights // 2, 1)),
    )
    yield PackedItem(tensors, make, module.name)
    name = f"{entry.name}.quant_state.bitsandbytes__nf4"
    yield PackedItem((OutputTensor(name, torch.uint8, (len(raw),)),), lambda: [raw], place=2)


def _int8(entry: TensorInfo, module: Module) -> Iterator[PackedItem]:
    rows, columns = module.out_features, module.in_features
    yield PackedItem(
        (OutputTensor(f"{entry.name}_shape", torch.int64, (2,)),), lambda: [torch.tensor([rows, columns])], place=0
    )

    def make() -> Iterator[Tensor]:
        scales = []
        for some in module.weight().split(max(1, CHUNK // columns)):
            codes, scale = to_int8(some.float(), entry.dtype)
            check_finite(module.name, scale, "int8")
            scales.append(scale)
            yield codes.view(torch.uint8) ^ 128  # codes are stored without a sign, 128 higher
        yield torch.cat(scales)

    tensors = (
        OutputTensor(f"{entry.name}_packed", torch.int32, (rows, columns // 4)),
        OutputTensor(f"{entry.name}_scale", entry.dtype, (rows, 1)),
    )
    yield PackedItem(tensors, make, module.name)


def to_int8(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``rows [n, K]`` float32 -> codes int8 alike, -127 to 127, and what multiplies them, ``[n]`` in ``dtype``.

    The scales are rounded before the codes are chosen, which so make up for it.
    """
    scales = (rows.abs().amax(1) / 127).to(dtype)
    factor = torch.where(scales == 0, 0.0, 1.0 / scales.float())
    return (rows * factor[:, None]).round_().clamp_(-127, 127).to(torch.int8), scales


_PACKERS: dict[str, Callable[[TensorInfo, Module], Iterator[PackedItem]]] = {"nf4": _nf4, "int8": _int8}


# --- files -----------------------------------------------------------------------------------------------------------


def write_shards(
    items: Sequence[PackedItem], out: Path, wrote: Callable[[PackedItem], None], stopped: Callable[[], bool]
) -> None:
    """``items`` in files of about :data:`SHARD` bytes in the folder ``out``, with an index where they are several.

    ``wrote`` is called after each, and what an earlier run left in ``out`` is kept (:func:`pieces.write_file`).
    """
    ends, total = [], 0
    for item in items:
        ends.append(total // SHARD)
        total += item.size
    shards = [[item for item, _ in group] for _, group in groupby(zip(items, ends, strict=True), lambda pair: pair[1])]
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        shard.sort(key=lambda item: item.place)
        several = len(shards) > 1
        file = out / (f"model-{number:05}-of-{len(shards):05}.safetensors" if several else "model.safetensors")
        index |= {tensor.name: file.name for item in shard for tensor in item.tensors}
        pieces = [FilePiece(item.size, lambda item=item: map(as_bytes, item.make())) for item in shard]  # type: ignore[misc]
        write_file(file, _head(shard), pieces, lambda place, shard=shard: wrote(shard[place]), stopped)  # type: ignore[misc]
    if len(shards) > 1:
        about = {"metadata": {"total_size": total}, "weight_map": index}
        write_json(out / "model.safetensors.index.json", about)


def _head(shard: Iterable[PackedItem]) -> bytes:
    """Header of a safetensors file (engine/formats/safetensors.py)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for item in shard:
        for tensor in item.tensors:
            end = at + tensor.size
            header[tensor.name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [at, end],
            }
            at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _nf4_config(checkpoint: Checkpoint, others: list[str]) -> dict[str, Any]:
    return {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": _TITLES[checkpoint.config.dtype],
        "bnb_4bit_quant_storage": "uint8",
        "llm_int8_skip_modules": others,
    }


def _int8_config(checkpoint: Checkpoint, others: list[str]) -> dict[str, Any]:
    # In the program some modules have a prefix that they have not in the file (those of a vision tower).
    ignored = [f"re:(.*[.])?{re.escape(name)}$" for name in others]
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ignored,
    }


_CONFIGS = {"nf4": _nf4_config, "int8": _int8_config}
