"""Batches padded in every size, as captured steps are: what a runner's `policy` may do."""

from __future__ import annotations

from engine.batch import power_of_two
from engine.runner.buffers import Bucket


def powers_of_two(shape: Bucket) -> Bucket:
    """Every size rounded up to a power of two."""
    return Bucket(power_of_two(shape.T), power_of_two(shape.S), power_of_two(shape.L), shape.tree)
