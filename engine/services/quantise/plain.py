"""Formats that need no calibration: each weight is rounded by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from engine.formats.gguf.checkpoint import GGUFCheckpoint
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.formats.quantised.fp8 import Fp8Files
from engine.services.quantise.packed import write_packed
from engine.services.quantise.pieces import UNFINISHED, cannot_write
from engine.services.training.errors import RecipeError

PACKED = ("nf4", "int8")
GGUF = ("gguf-q4_0", "gguf-q4_1", "gguf-q5_0", "gguf-q5_1", "gguf-q8_0")
FORMATS = (*PACKED, *GGUF)
_BESIDE = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.*"),
    *("generation_config.json", "*preprocessor_config.json", "processor_config.json", "LICENSE*", "NOTICE*"),
)
"""Files of a model's folder that belong to it whatever its weights are packed as."""


def convert(
    source: Path, to: str, out: Path, report: Callable[[int, int, str], None], stopped: Callable[[], bool]
) -> None:
    """Write the model of the folder ``source``, in 16 or 32 bits, into the folder ``out`` in one of :data:`FORMATS`.

    At most one tensor is in memory at a time. ``report(done, total, name)`` is called after each linear layer. What an
    earlier run that was stopped or killed left in ``out`` is kept. Raises :class:`RecipeError` and
    :class:`engine.base.errors.CheckpointError` with sentences, and
    :class:`engine.services.training.errors.RecipeStopped` soon after ``stopped()``.
    """
    if to not in FORMATS:
        raise RecipeError(f"{to} needs calibration text, or is not a format. Choose one of {', '.join(FORMATS)}.")
    checkpoint = plain_checkpoint(source)
    if to in GGUF:
        try:
            from engine.services.quantise.gguf_file import write_gguf
        except ImportError as error:  # a GPU pack, which writes no such files, goes without the package
            raise RecipeError(
                f"GGUF cannot be written by this Python ({error}). Give --device cpu, which leaves a GPU pack out, or "
                "install the package: pip install gguf."
            ) from error
        write_gguf(checkpoint, to, out, report, stopped)
        return
    if checkpoint.config.moe is not None:
        raise RecipeError(
            f"{source.name} is a mixture of experts, whose experts transformers does not read in {to}. "
            "Load it with --quantise instead, which packs it in memory."
        )
    copy_beside(source, out)
    write_packed(checkpoint, to, out, report, stopped)


def plain_checkpoint(source: Path) -> Checkpoint:
    """The model, opened. Raises :class:`RecipeError` unless it is a folder of 16- or 32-bit safetensors."""
    checkpoint = open_checkpoint(source)
    if checkpoint.packed or isinstance(checkpoint, GGUFCheckpoint) or isinstance(checkpoint.files, Fp8Files):
        raise RecipeError(
            f"{source.name} is not a model in plain 16 or 32 bits ({checkpoint.quantisation_title}). Choose the "
            "model's own safetensors."
        )
    return checkpoint


def copy_beside(source: Path, out: Path) -> None:
    """Copy tokenizer, chat template, sampling settings and licence. Raises :class:`RecipeError`."""
    for file in sorted({file for pattern in _BESIDE for file in source.glob(pattern) if file.is_file()}):
        unfinished = out / (file.name + UNFINISHED)
        try:
            shutil.copyfile(file, unfinished)
            unfinished.replace(out / file.name)
        except OSError as error:
            raise cannot_write(out / file.name, error) from error
