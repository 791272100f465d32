"""DeepSeek-V3.2 and GLM-5 (2025, 2026): DeepSeek-V3 whose tokens attend to the keys that an indexer ranks highest.

Their configuration is read, so that what they take is known. They are not computed: :class:`Model` refuses them.
"""

from __future__ import annotations

from dataclasses import replace

from engine.base.errors import CheckpointError
from engine.compute.layers.interface import WeightSource
from engine.compute.models.families import deepseek_v2, deepseek_v3
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

SHARED = ("shared", "S")
"""Names in files of layers that choose the keys that the layer before them has chosen."""


def read_config(raw: RawConfig) -> ModelConfig:
    """A token leaves an index key in each layer that ranks keys, besides its latent."""
    config = deepseek_v2.read_latent(raw, deepseek_v3.read_experts)
    latent, ranking = config.attention.latent, sum(kind not in SHARED for kind in _indexers(raw, config.num_layers))
    assert latent is not None
    return config.changed(latent=replace(latent, index_elements=ranking * raw.integer("index_head_dim", 128)))


def _indexers(raw: RawConfig, layers: int) -> list[str]:
    """One word or letter for each layer. Where the file has none, every ``index_topk_freq``-th ranks keys."""
    stated = raw.values.get("indexer_types") or raw.values.get("index_topk_pattern")
    if stated is None:
        every, first = raw.integer("index_topk_freq", 1, least=0) or 1, raw.integer("index_skip_topk_offset", 2)
        return ["full" if max(index - first + 1, 0) % every == 0 else "shared" for index in range(layers)]
    if not isinstance(stated, list | str) or len(stated) < layers:
        raise raw.wrong(f'"indexer_types" does not have one entry for each of the {layers} layers')
    for kind in stated:
        if kind not in ("full", "F", *SHARED):
            raise raw.wrong(f"its indexer type {kind!r:.100} is not one that Kvasir knows")
    return list(stated[:layers])


class Model(deepseek_v2.Model):
    """Never made."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        raise CheckpointError(
            f"A token of this model ({config.architecture}) attends to the keys that an indexer chooses "
            '("index_topk"), which Kvasir does not compute. Choose another model.'
        )
