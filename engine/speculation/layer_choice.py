"""Which of a model's layers guess: found by a search beside the model (engine/speculation/layer_search.py), or by rule.

`speculation.json` is {"exit_layer": 3, "skip": [4, 5], "layers": 8, ...}; what else it has says what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = "speculation.json"


class LayerChoice(NamedTuple):
    """``exit_layer``: so many layers guess by early exit. ``skip``: those that guessing by layer skipping leaves out.

    ``notice`` is a sentence for a person where this is only the default; ``refused``: because a file is of no use.
    """

    exit_layer: int
    skip: frozenset[int]
    notice: str = ""
    refused: bool = False


def default_choice(num_layers: int, reason: str = "No layers were chosen for this model by a search") -> LayerChoice:
    """The first quarter of the layers for early exit; of the middle half every other one to be skipped.

    What is read and written early and late in a model is missed most (section 3.2 of Draft & Verify).
    """
    exit_layer = max(1, num_layers // 4)
    skip = frozenset(range(num_layers // 4 + 1, num_layers - num_layers // 4, 2))
    passed = f"skipping {len(skip)} of them" if skip else "skipping none"
    notice = (
        f"{reason}: early exit guesses with the first {exit_layer} of {num_layers} layers, layer skipping by {passed}."
    )
    return LayerChoice(exit_layer, skip, notice)


def read_choice(folders: Sequence[Path], num_layers: int) -> LayerChoice:
    """What the first of the folders says that has a `speculation.json`; else the default, which says so."""
    for folder in folders:
        file = folder / FILE
        try:
            if not file.is_file():
                continue
            return _checked(json.loads(file.read_bytes()), num_layers)
        except (OSError, ValueError) as error:
            return default_choice(num_layers, f"{file} is of no use ({error})")._replace(refused=True)
    return default_choice(num_layers)


def save_choice(choice: LayerChoice, folder: Path, num_layers: int, **measured: Any) -> Path:
    """Write the choice to `folder`, with anything else that is worth knowing of it; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"exit_layer": choice.exit_layer, "skip": sorted(choice.skip), "layers": num_layers, **measured}
    file = folder / FILE
    part = file.with_name(f"{FILE}.part")
    part.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    part.replace(file)
    return file


def _checked(values: Any, num_layers: int) -> LayerChoice:
    """Raises ValueError with the reason why the values do not suit a model of so many layers."""
    if not isinstance(values, dict):
        raise ValueError("it is no object")
    if values.get("layers") != num_layers:
        raise ValueError(f"it is for a model of {values.get('layers')} layers")
    exit_layer, skip = values.get("exit_layer"), values.get("skip")
    if type(exit_layer) is not int or not 1 <= exit_layer < num_layers:
        raise ValueError(f"there is no exit after layer {exit_layer}")
    if not isinstance(skip, list) or any(type(layer) is not int or not 0 <= layer < num_layers for layer in skip):
        raise ValueError(f"these are no layers: {skip}")
    if len(set(skip)) == num_layers:
        raise ValueError("it skips all layers")
    return LayerChoice(exit_layer, frozenset(skip))
