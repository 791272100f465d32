"""Tools of the Lab that are no experiments, by the names that they have where experiments have theirs."""

from __future__ import annotations

COMPARE = "compare"
ROOFLINE = "roofline"
TOOLS = {COMPARE: "Compare any settings", ROOFLINE: "Roofline"}
"""Titles."""
