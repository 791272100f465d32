"""Mixtral (Jiang et al. 2024): Mistral with eight experts in every layer, of which each token asks two."""

from __future__ import annotations

from engine.compute.models.common import read_decoder, read_moe
from engine.compute.models.decoder import Decoder
from engine.config.feed_forward import ExpertNames
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """No window unless the file has one. The shares of the chosen experts add up to 1."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    moe = read_moe(
        raw,
        count="num_local_experts",
        per_token=2,
        intermediate_size=raw.integer("intermediate_size"),
        sparse=(True,) * layers,
        normalised=True,
        names=ExpertNames(block="block_sparse_moe.", experts=("w1", "w3", "w2")),
    )
    return read_decoder(
        raw,
        theta=1_000_000.0,
        eps=1e-5,
        max_position=raw.integer("max_position_embeddings", 131072),
        windows=(raw.optional_integer("sliding_window"),) * layers,
        moe=moe,
    )


Model = Decoder
