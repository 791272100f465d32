"""Purposes of the models that come with Kvasir."""

from __future__ import annotations

ABOUT = {
    "kvasir-guide": "answers questions about Kvasir, and nothing else",
    "kvasir-hybrid": "shows hybrid layers (gated delta nets) and built-in speculative decoding",
    "kvasir-needle": "finds codes in long texts: for KIVI and QUEST in the Lab",
    "kvasir-seeing": "sees coloured shapes: for trying out pictures",
    "kvasir-tools": "calls four tools: for trying out clients that have some",
}
"""Purpose by a model's name, as a clause."""
