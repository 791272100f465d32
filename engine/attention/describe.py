"""The description of attention in `kvasir doctor`."""

from __future__ import annotations

from typing import NamedTuple

import torch

from engine.attention.interface import AttnProblem, AttnSpec
from engine.attention.registry import choose


class Description(NamedTuple):
    """Which backend a device uses for a kind of layer, and why those before it declined."""

    case: str
    backend: str
    declined: list[tuple[str, str]]


def describe(device: str, dtype: torch.dtype) -> list[Description]:
    """The choice for ordinary layers, windows, softcapped scores, drafted trees and batch-invariant numerics."""
    plain = AttnProblem(device, dtype, AttnSpec(scale=0.125))
    cases = {
        "attention": plain,
        "sliding window": plain._replace(spec=AttnSpec(scale=0.125, window=4096)),
        "softcapped scores": plain._replace(spec=AttnSpec(scale=0.125, softcap=50.0)),
        "drafted trees": plain._replace(tree=True),
        "batch-invariant numerics": plain._replace(batch_invariant=True),
    }
    chosen = {case: choose(problem) for case, problem in cases.items()}
    return [Description(case, choice.backend.name, choice.declined) for case, choice in chosen.items()]
