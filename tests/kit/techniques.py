"""Fills the catalogue, as a plugin: what a conftest.py imports would count as tested by every case that has content."""

from __future__ import annotations

import engine.loading.techniques  # noqa: F401
