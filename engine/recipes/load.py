"""Reading trained heads back, to measure them or to see what they guess."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from engine.recipes.eagle import EagleHead
from engine.recipes.errors import RecipeError
from engine.recipes.heads import Heads
from engine.recipes.medusa import MedusaHeads
from engine.recipes.target import Target


def load_heads(folder: Path, target: Target) -> Heads:
    """The heads that a training wrote there, in float32. Raises :class:`RecipeError`."""
    try:
        values = json.loads((folder / "config.json").read_text("utf-8"))
        heads: Heads
        if "medusa_num_heads" in values:
            heads = MedusaHeads(target.config.hidden_size, int(values["medusa_num_heads"]))
        else:
            heads = EagleHead(target.config, torch.Generator())
        heads.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / heads.file).items()})
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise RecipeError(f"{folder} holds no heads that were trained for {target.name}. Train them again.") from error
    return heads.to(target.device)
