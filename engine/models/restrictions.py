"""Which page policies a model can be served with."""

from __future__ import annotations

from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.models.base import ModelConfig


def refuses(policy: PagePolicy, config: ModelConfig) -> str:
    """Why the model cannot be served with the policy, a sentence for a person; empty if it can.

    Sinks are seen by a query that is rotated to another position, which must be possible. In the absorbed form of
    latent attention the layer attends with what it made of rotated queries, and in the expanded form to a temporary
    copy of all keys.
    """
    if isinstance(policy, KeepAll):
        return ""
    if config.latent is not None:
        return "Models with multi-head latent attention keep all pages: their cache is small already."
    if isinstance(policy, WindowWithSinks) and not any(config.rotary):
        return "This model adds learned positions to its tokens, so a query cannot be moved next to the first tokens."
    return ""
