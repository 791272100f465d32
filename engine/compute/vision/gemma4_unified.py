"""Substitute for a tower in Gemma 4 12B (Google DeepMind 2026): squares of pixels are projected, each by itself."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.compute.layers.interface import WeightSource
from engine.compute.layers.norm import RMSNorm
from engine.compute.vision.gemma4 import Gemma4Pictures
from engine.compute.vision.interface import Picture
from engine.compute.vision.layers import read_norm
from engine.compute.vision.settings import Section, TowerConfig

EPS = 1e-5
"""Epsilon of its norms with a mean."""


class Gemma4Embedder(Gemma4Pictures):
    """A token is a square of pixels, normalised and projected; the embeddings of its column and its row are added."""

    def __init__(self, said: TowerConfig, source: WeightSource) -> None:
        super().__init__(said, 0, "vision", True, source)
        self.title = "Gemma 4 picture embedder"
        config = Section(said.raw, "vision_config")
        inner, places = config.integer("mm_embed_dim", 3840), config.integer("mm_posemb_size", 1120)
        if self.budget > places:
            raise config.wrong(f'"mm_posemb_size" is {places}, too small for {self.budget} tokens in a row')
        own, pixels = "vision_embedder.", 3 * self.side**2
        sizes = ("patch_ln1", pixels), ("patch_ln2", inner), ("pos_norm", inner)
        self.norms = [read_norm(source, own + name, size, EPS, False) for name, size in sizes]
        self.dense = source.linear(own, ("patch_dense",), [inner], pixels, True)
        self.table = source.array(f"{own}pos_embedding", (places, 2, inner)).to(source.dtype)
        ones = torch.ones(inner, dtype=source.dtype, device=source.device)
        self.norm = RMSNorm(ones, config.positive("rms_norm_eps", 1e-6), source.numerics)
        self.projection = source.linear("embed_vision.", ("embedding_projection",), [said.width], inner, False)

    def _embed(self, picture: Picture) -> Tensor:
        rows, columns = picture.grid
        row = torch.arange(rows, device=self.device).repeat_interleave(columns)
        column = torch.arange(columns, device=self.device).repeat(rows)
        first, second, last = (norm.forward for norm in self.norms)
        x = second(self.dense(first(picture.pixels.to(self.device, self.dtype))))
        return self.projection(self.norm.forward(last(x + self.table[column, 0] + self.table[row, 1])))
