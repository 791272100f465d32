"""Layers that draft by early exit or layer skipping: from a file next to the model, or by a default rule.

A search (engine/services/training/layer_search.py) writes the file. `speculation.json` is {"exit_layer": 3, "skip": [4,
5], "layers": 8, ...}; further keys record what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.base.errors import CheckpointError
from engine.base.files import read_json

FILE = "speculation.json"


class LayerChoice(NamedTuple):
    """``exit_layer``: the number of layers that draft by early exit. ``skip``: the layers left out by layer skipping.

    ``notice`` is a sentence for the user where this is the default; ``refused``: it is so because a file is invalid.
    """

    exit_layer: int
    skip: frozenset[int]
    notice: str = ""
    refused: bool = False


def default_choice(num_layers: int, reason: str = "No layers were chosen for this model by a search") -> LayerChoice:
    """The first quarter of the layers for early exit; every other layer of the middle half to be skipped.

    Skipping the first or last layers of a model hurts most (section 3.2 of Draft & Verify).
    """
    exit_layer = max(1, num_layers // 4)
    skip = frozenset(range(num_layers // 4 + 1, num_layers - num_layers // 4, 2))
    passed = f"skipping {len(skip)} of them" if skip else "skipping none"
    notice = (
        f"{reason}: early exit drafts with the first {exit_layer} of {num_layers} layers, layer skipping by {passed}."
    )
    return LayerChoice(exit_layer, skip, notice)


def read_choice(folders: Sequence[Path], num_layers: int) -> LayerChoice:
    """The choice in the first folder that has a `speculation.json`; else the default, whose notice says so."""
    for folder in folders:
        file = folder / FILE
        try:
            values = read_json(file)
            if values is not None:
                return _checked(values, num_layers)
        except CheckpointError as error:
            reason = str(error).partition(". ")[0]
            return default_choice(num_layers, reason)._replace(refused=True)
        except ValueError as error:
            return default_choice(num_layers, f"{file} is of no use ({error})")._replace(refused=True)
    return default_choice(num_layers)


def save_choice(choice: LayerChoice, folder: Path, num_layers: int, **measured: Any) -> Path:
    """Write the choice and the ``measured`` values to `folder`; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"exit_layer": choice.exit_layer, "skip": sorted(choice.skip), "layers": num_layers, **measured}
    file = folder / FILE
    part = file.with_name(f"{FILE}.part")
    part.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    part.replace(file)
    return file


def _checked(values: dict[str, Any], num_layers: int) -> LayerChoice:
    """The choice in ``values``. Raises ValueError with the reason if it does not suit a model of ``num_layers``."""
    if values.get("layers") != num_layers:
        raise ValueError(f"it is for a model of {values.get('layers')} layers")
    exit_layer, skip = values.get("exit_layer"), values.get("skip")
    if type(exit_layer) is not int or not 1 <= exit_layer < num_layers:
        raise ValueError(f"there is no exit after layer {exit_layer}")
    if not isinstance(skip, list) or any(type(layer) is not int or not 0 <= layer < num_layers for layer in skip):
        raise ValueError(f"these are not layers: {skip}")
    if len(set(skip)) == num_layers:
        raise ValueError("it skips all layers")
    return LayerChoice(exit_layer, frozenset(skip))
