"""Pooling that an embedding model was trained with, as its files name it, and the dense layers that follow it.

Source: sentence-transformers' ``1_Pooling/config.json``, ``2_Dense`` and so on, and its prompts; GGUF's
``{architecture}.pooling_type``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engine.base.errors import CheckpointError
from engine.base.files import POOLING_FILE, read_json
from engine.compute.models.projection import Projection
from engine.config.model import ModelConfig
from engine.config.pooling import Pooling
from engine.formats.safetensors import AGAIN, TensorFiles

PROMPTS = "config_sentence_transformers.json"
DENSE = ("dense_2.weight", "dense_3.weight")
"""The dense layers in GGUF."""
_MODES: dict[str, Pooling] = {
    "cls": "cls",
    "cls_token": "cls",
    "lasttoken": "last",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean",  # the same at length 1
    "mean_tokens": "mean",
}
_PREFIX = "pooling_mode_"
_TYPES: Mapping[object, Pooling | None] = {None: None, 0: None, 1: "mean", 2: "cls", 3: "last"}


def folder_pooling(folder: Path) -> Pooling | None:
    """The pooling of a folder's embedding model; None for a model that is made for something else.

    Raises :class:`CheckpointError` for one that Kvasir does not have.
    """
    values = read_json(folder / POOLING_FILE)
    if values is None:
        return None
    named = values.get("pooling_mode")
    modes = [named] if isinstance(named, str) else _flags(values)
    if len(modes) != 1 or modes[0] not in _MODES:
        raise _unknown(f"{folder.name}/{POOLING_FILE}", ", ".join(modes))
    return _MODES[modes[0]]


def folder_prompt(folder: Path, kind: str) -> str:
    """The words that a model's makers put before a text of a ``kind``, such as "query"; "" where they name none.

    Raises :class:`UnreadableFileError`.
    """
    prompts = (read_json(folder / PROMPTS) or {}).get("prompts") if folder.is_dir() else None
    found = prompts.get(kind) if isinstance(prompts, dict) else None
    return found if isinstance(found, str) else ""


def pooling_of(config: ModelConfig, ranks: bool, named: Pooling | None) -> Pooling | None:
    """The pooling of a model whose files name that one; of one that ``ranks`` it follows from its kind."""
    encodes = config.attention.bidirectional
    if ranks:
        return "cls" if encodes else "last"
    return named or ("mean" if encodes else None)


def read_projections(folder: Path, device: torch.device) -> list[Projection]:
    """The dense layers after the pooling, in their order, on ``device``. Raises :class:`CheckpointError`."""
    places = sorted(folder.glob("*_Dense"), key=lambda place: (len(place.name), place.name))
    return [_projection(place, device) for place in places]


def _projection(folder: Path, device: torch.device) -> Projection:
    values = read_json(folder / "config.json") or {}
    activation = str(values.get("activation_function")).rpartition(".")[2]
    if activation not in ("Identity", "Tanh"):
        raise CheckpointError(
            f"{folder.name} has the activation {activation[:40]!r}, and Kvasir has Identity and Tanh there. Choose "
            "another embedding model."
        )
    files = TensorFiles.open(folder)
    with contextlib.closing(files):
        found = {name: files.view(name).to(device, torch.float32, copy=True) for name in files.entries}
    weight, bias = found.get("linear.weight"), found.get("linear.bias")
    shape = (values.get("out_features"), values.get("in_features"))
    if weight is None or weight.shape != shape or (bias is not None and bias.shape != shape[:1]):
        raise CheckpointError(f"The weights in {folder.name} are not those that its config.json names. {AGAIN}")
    return Projection(weight, bias, activation == "Tanh")


def _flags(values: Mapping[str, Any]) -> list[str]:
    return [name.removeprefix(_PREFIX) for name, on in values.items() if name.startswith(_PREFIX) and on is True]


def gguf_pooling(metadata: Mapping[str, Any], architecture: str) -> Pooling | None:
    """The same of a GGUF file. Raises :class:`CheckpointError`."""
    kind = metadata.get(f"{architecture}.pooling_type")
    if kind not in _TYPES:
        raise _unknown("The GGUF file", f"{kind!r:.20}")
    return _TYPES[kind]


def _unknown(where: str, mode: str) -> CheckpointError:
    return CheckpointError(
        f"{where} names a pooling that Kvasir does not have ({mode[:80] or 'none'}): it has mean, last token and cls. "
        "Choose another embedding model."
    )
