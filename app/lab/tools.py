"""Tools of the Lab that are no experiments, by the names that they have where experiments have theirs."""

from __future__ import annotations

from app.language import tr

COMPARE = "compare"
ROOFLINE = "roofline"
TOOLS = {COMPARE: tr("Compare any settings"), ROOFLINE: tr("Roofline")}
"""Titles."""
