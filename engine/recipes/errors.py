"""What can stop a recipe, said to a person."""

from __future__ import annotations


class RecipeError(Exception):
    """The recipe cannot go on; the message says what happened and what to do."""
