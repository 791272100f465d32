"""The rows that heads learn from: passages as they stand, and passages that the model itself goes on with.

Heads have to predict what the *model* says next, not what a text says; so the model writes the rest of every second row
(self-distillation). Rows are made in blocks, each of which depends on the seed and its number alone, so that a broken
run goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.services.training.errors import RecipeError
from engine.services.training.target import TargetModel
from engine.services.training.text import Passage

LEAST_ROWS = 4
_HELD_OUT, _MOST_HELD_OUT = 8, 128


class TrainingRow(NamedTuple):
    """``tokens[counted:]`` are what heads are measured on: what the model wrote, or all if it is to write nothing."""

    tokens: list[int]
    counted: int


class Recipe(NamedTuple):
    """Recipe by which rows are made. ``temperature`` is what the model writes with."""

    rows: int
    temperature: float
    distil: bool
    seed: int


def chosen(passages: Sequence[Passage], recipe: Recipe) -> list[Passage]:
    """Choose the wanted number of passages, or all if there are fewer, in random order.

    Raises :class:`RecipeError` for too little text.
    """
    if len(passages) < LEAST_ROWS:
        raise RecipeError(
            f"The text is too short: it gives {len(passages)} rows, and {LEAST_ROWS} at least are needed. Add text."
        )
    order = torch.randperm(len(passages), generator=_generator(recipe.seed, -1)).tolist()
    return [passages[i] for i in order[: recipe.rows]]


def block_rows(target: TargetModel) -> int:
    """Rows of a block: as many of the model's own as it writes at once, and as many others."""
    return 2 * target.together


def block(target: TargetModel, passages: Sequence[Passage], number: int, recipe: Recipe) -> list[TrainingRow]:
    """The rows of block ``number``: the passages' own text and the model's, in turn."""
    size = block_rows(target)
    mine = passages[number * size : (number + 1) * size]
    if not recipe.distil:
        return [TrainingRow(passage.tokens, 0) for passage in mine]
    rows = [TrainingRow(passage.tokens, len(passage.tokens)) for passage in mine]
    places = list(range(0, len(rows), 2))
    prompts = [mine[i] for i in places]
    generator = _generator(recipe.seed, number)
    texts = target.write([p.tokens[: p.start] for p in prompts], recipe.temperature, generator)
    for place, prompt, text in zip(places, prompts, texts, strict=True):
        rows[place] = TrainingRow(text, prompt.start)
    return rows


def held_out(count: int) -> int:
    """Number of rows, the first ones, that are never learned from."""
    return max(2, min(_MOST_HELD_OUT, count // _HELD_OUT))


def to_tensors(rows: Sequence[TrainingRow]) -> dict[str, Tensor]:
    return {
        "tokens": torch.tensor([token for row in rows for token in row.tokens], dtype=torch.int32),
        "lengths": torch.tensor([len(row.tokens) for row in rows], dtype=torch.int32),
        "counted": torch.tensor([row.counted for row in rows], dtype=torch.int32),
    }


def from_tensors(tensors: dict[str, Tensor]) -> list[TrainingRow]:
    texts = tensors["tokens"].split(tensors["lengths"].tolist())
    return [
        TrainingRow(text.tolist(), counted) for text, counted in zip(texts, tensors["counted"].tolist(), strict=True)
    ]


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number + 1) & 0x7FFF_FFFF_FFFF_FFFF)
