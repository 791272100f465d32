"""Reading trained heads back, to measure them or to see what they draft."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from engine.errors import CheckpointError
from engine.files import read_json
from engine.recipes.eagle import EagleHead
from engine.recipes.errors import RecipeError
from engine.recipes.heads import Heads
from engine.recipes.medusa import TrainableMedusaHeads
from engine.recipes.target import TargetModel


def load_heads(folder: Path, target: TargetModel) -> Heads:
    """The heads that a training wrote there, in float32. Raises :class:`RecipeError`."""
    try:
        values = read_json(folder / "config.json")
        if values is None:
            raise CheckpointError(f"{folder} has no config.json.")
        heads: Heads
        if "medusa_num_heads" in values:
            heads = TrainableMedusaHeads(target.config.hidden_size, int(values["medusa_num_heads"]))
        else:
            heads = EagleHead(target.config, torch.Generator())
        heads.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / heads.file).items()})
    except (CheckpointError, OSError, ValueError, TypeError, RuntimeError) as error:
        raise RecipeError(f"{folder} holds no heads that were trained for {target.name}. Train them again.") from error
    return heads.to(target.device)
