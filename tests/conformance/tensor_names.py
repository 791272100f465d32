"""Tensors renamed as newer and older files have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor


def newer(name: str) -> str:
    """As transformers 5 names it within the program; some files have that."""
    for old, new in (("language_model.model.", "model.language_model."), ("language_model.lm_head.", "lm_head.")):
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


def older(name: str) -> str:
    for old, new in (("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")):
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name.removeprefix("model.") if name.startswith(("model.vision", "model.visual")) else name


def rename(folder: Path, name: Callable[[str], str]) -> None:
    file = folder / "model.safetensors"
    tensors: dict[str, Tensor] = {name(key): tensor for key, tensor in load_file(file).items()}
    save_file(tensors, file)
