"""The vision tower in a checkpoint: looked at when that is opened, read when the model is loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.base.errors import CheckpointError
from engine.compute.layers.numerics import Numerics
from engine.compute.vision.interface import Tower
from engine.compute.vision.registry import has_tower, read_tower
from engine.compute.vision.settings import TowerConfig, read_processor
from engine.config.model import ModelConfig, Quantisation
from engine.config.raw import RawConfig
from engine.formats.quantised.nested import vision_entries
from engine.formats.safetensors import TensorFiles
from engine.formats.source import CPU, CheckpointSource, LoadSettings, Packing

CONFIG = "vision_config"


@dataclass(frozen=True, slots=True)
class VisionPart:
    """A tower whose settings and tensors were checked. ``weight_bytes`` is its tensors' size on disk."""

    config: TowerConfig
    files: TensorFiles
    quantisation: Quantisation | None

    @property
    def weight_bytes(self) -> int:
        return sum(entry.size for entry in self.files.entries.values())

    def tower(self, settings: LoadSettings, token_id: Callable[[str], int | None]) -> Tower:
        """Built of what ``settings`` say; see :func:`load_tower`."""
        source = CheckpointSource(self.files, self.quantisation, settings)
        return read_tower(self.config._replace(token_id=token_id), source)

    def resident_bytes(self, dtype: torch.dtype, weights: Packing = "4bit", device: torch.device = CPU) -> int:
        """Bytes that the tower will hold on ``device``."""
        meta = torch.device("meta")
        settings = LoadSettings(meta, dtype, weights, Numerics(), computing=device)
        return self.tower(settings, self.config.token_id).storage_size()


def find_vision(raw: RawConfig, folder: Path, files: TensorFiles, config: ModelConfig) -> tuple[VisionPart | None, str]:
    """The tower of a checkpoint, ``raw`` being all of its config.json and ``config`` the language model's; or why there
    is none that Kvasir can use.

    The reason is the rest of a sentence, or "" where the model has no tower.
    """
    if raw.values.get(CONFIG) is None:
        return None, ""
    if not has_tower(raw.architecture):
        return None, f"Kvasir does not have the vision tower of {raw.architecture}"
    own = copy.copy(files)  # seen by other names than the text model's
    own.entries = vision_entries(files.entries)
    if not own.entries:
        return None, "its files hold no vision tower"
    try:
        processor = read_processor(folder)
        if processor is None:
            return None, "preprocessor_config.json, which says how pictures are prepared, is missing"
        said = TowerConfig(raw, processor, config.hidden_size, unknown)
        return checked(VisionPart(said, own, config.quantisation)), ""
    except CheckpointError as error:
        return None, f"its vision tower cannot be used: {error}"


def checked(part: VisionPart) -> VisionPart:
    """The part, whose settings and tensors make a tower. Raises :class:`CheckpointError`."""
    part.resident_bytes(torch.float32)
    return part


def unknown(token: str) -> int:
    """Stands for the ids of tokens until the tokenizer is opened."""
    return 0


def load_tower(
    part: VisionPart,
    token_id: Callable[[str], int | None],
    device: torch.device,
    dtype: torch.dtype,
    weights: Packing = "4bit",
    on_module: Callable[[int], None] = lambda size: None,
) -> Tower:
    """Read the tower's weights onto ``device``. ``token_id`` is the tokenizer's.

    ``on_module(bytes)`` is called after each module. What is dense in the file stays dense. A picture's embeddings do
    not depend on others, nor on the numeric modes of the language model. Raises :class:`CheckpointError`.
    """
    try:
        with torch.inference_mode():
            return part.tower(LoadSettings(device, dtype, weights, Numerics(), on_module), token_id)
    finally:
        part.files.close()
