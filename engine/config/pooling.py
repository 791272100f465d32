"""How the states of a text's tokens become one embedding."""

from __future__ import annotations

from typing import Literal

Pooling = Literal["mean", "last", "cls"]
"""The mean of all states, or the state of the last token, or that of the first (BERT's [CLS])."""
