"""Choosing the layers by which a model drafts for itself, on the user's own text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine.decoding.speculation.proposers.layer_choice import save_choice
from engine.services.training.errors import RecipeError
from engine.services.training.features import disk_error
from engine.services.training.layer_search import LayerSearchResult, find_layers
from engine.services.training.places import place_for
from engine.services.training.target import Opening, TargetModel
from engine.services.training.text import passages, text_files


def choose_layers(
    model: str,
    text: Sequence[Path],
    length: int,
    out: Path | None = None,
    opening: Opening = Opening(),
    show: Callable[[str, float], None] = lambda stage, done: None,
) -> tuple[LayerSearchResult, Path]:
    """Search, and write ``speculation.json`` to ``out``, else to the model's ``heads`` or the user's own folder.

    Returns what was found, and the file. Raises :class:`RecipeError` and :class:`CheckpointError` with sentences.
    """
    files = text_files(text)
    target = TargetModel.open(model, length, opening, show)
    pieces = [passage.tokens for passage in passages(files, target.words, target.length)]
    try:
        found = find_layers(target.model, pieces, show)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    folder = out or place_for(target)
    measured = {
        "exit_agreement": [round(share, 4) for share in found.exits],
        "skip_agreement": round(found.skip_agreement, 4),
    }
    try:
        return found, save_choice(found.choice, folder, target.config.num_layers, **measured)
    except OSError as error:
        raise disk_error(folder, error) from error
