"""Folders to which heads are written: next to their model, where a load looks first, or the user's own folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.library import paths as config
from engine.services.training.errors import RecipeError
from engine.services.training.features import disk_error
from engine.services.training.target import TargetModel
from engine.services.training.training import write_tensors

UNFINISHED = "training"
"""Folder within the heads' own that holds what a run needs to go on; gone when it is done."""


def place_for(target: TargetModel, kind: str = "") -> Path:
    """``MODEL_FOLDER/heads/{kind}``, or below `paths.heads_folder` where that cannot be written to.

    Without a kind: the folder of all. A GGUF file may lie among others, so its heads go there too.
    """
    model = target.checkpoint.path
    own = model / "heads" / kind
    nearest = next(path for path in (own, *own.parents) if path.exists())
    if model.is_dir() and os.access(nearest, os.W_OK):
        return own
    return config.heads_folder() / target.fingerprint / kind


def unfinished_folder(heads: Path) -> Path:
    """Makes it. Raises :class:`RecipeError`."""
    folder = heads / UNFINISHED
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(f"{heads} cannot be made ({error.strerror}). Name another folder with --out.") from error
    return folder


def write_heads(folder: Path, file: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Write the weights and config.json, without the state of the training."""
    write_tensors(folder / file, {name: tensor.contiguous() for name, tensor in tensors.items()}, {})
    text = json.dumps(values, indent=1) + "\n"
    try:
        (folder / "config.json").write_text(text, "utf-8")
    except OSError as error:
        raise disk_error(folder / "config.json", error) from error
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)


def rounded(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors in the dtype of the file. Raises :class:`RecipeError` for weights that it cannot hold."""
    found = {name: tensor.detach().to("cpu", dtype) for name, tensor in tensors.items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in found.values()):
        raise RecipeError("The trained weights are not numbers, so they were not written. Train again with --fresh.")
    return found
