"""Errors that stop a recipe, said to a person."""

from __future__ import annotations


class RecipeError(Exception):
    """The recipe cannot go on; the message says what happened and what to do."""


class RecipeStopped(Exception):  # noqa: N818 - the user asked for it, it is no error
    """The recipe was stopped; what it made so far is kept, and the same command goes on with it."""


STOPPED = "It was stopped. The same command goes on where it ended."
