"""A LoRA adapter in PEFT's format: a folder of adapter_config.json and adapter_model.safetensors.

Names, shapes and dtypes are compared with the model that is loaded before any weight is read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.base.files import unreadable
from engine.compute.models.adapters import Factors, Site
from engine.compute.models.registry import names_of
from engine.formats.adapters.config import FILE, LoraConfig, read_lora_config, refused
from engine.formats.adapters.patterns import NotRead
from engine.formats.adapters.sites import Sites
from engine.formats.quantised.nested import PREFIXES
from engine.formats.safetensors import TensorFiles, TensorInfo, read_header
from engine.formats.tensors import FLOATING

WEIGHTS = "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_BUFFER = 1 << 20


class Pair(NamedTuple):
    """The two tensors of one module: ``down [r, in_features]`` and ``up [out_features, r]``; ``scale`` multiplies
    their product."""

    down: TensorInfo
    up: TensorInfo
    scale: float

    @property
    def rank(self) -> int:
        return self.down.shape[0]


class AdapterFiles(NamedTuple):
    """An adapter that was opened and fits the model; ``pairs`` are by the names that its modules have in the model."""

    folder: Path
    config: LoraConfig
    files: TensorFiles
    pairs: dict[str, Pair]

    def size(self, dtype: torch.dtype) -> int:
        """Bytes that its weights take in memory."""
        return sum(pair.down.numel + pair.up.numel for pair in self.pairs.values()) * dtype.itemsize

    def read(self, dtype: torch.dtype, device: torch.device) -> dict[str, Factors]:
        """Its weights. Raises :class:`CheckpointError` where they are not numbers."""
        return {name: self._factors(pair, dtype, device) for name, pair in self.pairs.items()}

    def _factors(self, pair: Pair, dtype: torch.dtype, device: torch.device) -> Factors:
        down, up = (self.files.map(info).float() for info in (pair.down, pair.up))
        scaled = self._finite(pair.up, (up * pair.scale).to(dtype))
        return Factors(self._finite(pair.down, down.to(dtype)).to(device), scaled.to(device))

    def _finite(self, info: TensorInfo, values: Tensor) -> Tensor:
        if not bool(torch.isfinite(values).all()):
            raise refused(
                self.folder, f"{info.name} holds values that are not numbers, or too large for {values.dtype}"
            )
        return values.contiguous()

    def fingerprint(self) -> str:
        """64 hexadecimal digits that differ for other contents: SHA-256 of both files."""
        digest = hashlib.sha256()
        for name in (FILE, WEIGHTS):
            try:
                with (self.folder / name).open("rb") as stream:
                    while part := stream.read(_BUFFER):
                        digest.update(part)
            except OSError as error:
                raise unreadable(self.folder / name, error) from error
            digest.update(b"\0")
        return digest.hexdigest()


def open_adapter(folder: Path, sites: Sites, architecture: str) -> AdapterFiles:
    """Reads the configuration and the header of the weights.

    Raises :class:`CheckpointError` with the first name or shape that does not fit the model of these ``sites``.
    """
    if not os.path.isdir(folder):  # False also for a name that is too long
        raise CheckpointError(f"There is no folder {folder}. Choose the folder of a LoRA adapter in PEFT's format.")
    config = read_lora_config(folder)
    entries = _header(folder)
    halves: dict[str, dict[str, TensorInfo]] = {}
    own: dict[str, str] = {}
    words = names_of(architecture)
    for info in entries:
        name, module, half = _module(folder, info, words)
        if half in halves.setdefault(module, {}):
            raise refused(folder, f"two of its tensors are lora_{half} of {module}")
        halves[module][half], own[module] = info, name
    for module, found in halves.items():
        _check_pair(folder, module, found, sites)
    try:
        # Patterns are of the names that the modules had where it was trained.
        numbers = config.of_modules(list(own.values()))
    except NotRead as error:
        raise refused(folder, str(error)) from error
    pairs = {}
    for module, found in halves.items():
        rank, scale = numbers[own[module]]
        pairs[module] = Pair(found["A"], found["B"], scale)
        _check_shapes(folder, pairs[module], rank, sites.found[module])
    return AdapterFiles(folder, config, TensorFiles({info.name: info for info in entries}), pairs)


def _header(folder: Path) -> list[TensorInfo]:
    file = folder / WEIGHTS
    try:
        entries = read_header(file)
    except CheckpointError as error:
        if file.exists():
            raise
        pickled = (folder / "adapter_model.bin").exists()
        why = "its weights are pickled, which can run any code when they are read" if pickled else f"it lacks {WEIGHTS}"
        raise refused(folder, why) from error
    if not entries:
        raise refused(folder, f"{WEIGHTS} holds no tensor")
    return entries


def _module(folder: Path, info: TensorInfo, words: Sequence[tuple[str, str]]) -> tuple[str, str, str]:
    """The module of a tensor as the adapter and as the text model calls it, and which of both matrices it is."""
    found = _NAME.fullmatch(info.name)
    if found is None:
        raise refused(folder, f"its tensor {info.name:.200} is not a matrix of a LoRA adapter of linear modules")
    plain = f"{found[1]}."
    for prefix, by in PREFIXES:
        if plain.startswith(prefix):
            plain = by + plain.removeprefix(prefix)
            break
    for own, usual in words:
        plain = plain.replace(own, usual)
    return found[1], plain.removesuffix("."), found[2]


def _check_pair(folder: Path, module: str, halves: dict[str, TensorInfo], sites: Sites) -> None:
    if len(halves) < 2:
        there, lacking = ("A", "B") if "A" in halves else ("B", "A")
        raise refused(folder, f"{halves[there].name:.200} has no lora_{lacking} with it")
    for info in (halves["A"], halves["B"]):
        if info.dtype not in FLOATING or len(info.shape) != 2:
            raise refused(folder, f"{info.name:.200} is not a matrix of 16- or 32-bit numbers")
    if module in sites.found:
        return
    if ".experts." in module or module.startswith((*sites.others, "lm_head", "model.embed_tokens")):
        reason = "Kvasir computes no adapters of experts, latent attention, recurrent layers, token table and head"
        raise refused(folder, f"it adapts {module:.200}, and {reason}")
    raise refused(folder, f"it was made for another model: the one that is loaded has no module {module:.200}")


def _check_shapes(folder: Path, pair: Pair, rank: int, site: Site) -> None:
    expected = (rank, site.in_features), (site.stop - site.start, rank)
    for info, shape in zip((pair.down, pair.up), expected, strict=True):
        if info.shape != shape:
            text = f"{info.name:.200} has the shape {list(info.shape)}, where {list(shape)} is needed for rank {rank}"
            raise refused(folder, f"it was made for another model, or is damaged: {text}")
