"""Multi-token layers of a checkpoint's own: which it has, and how they are read."""

from __future__ import annotations

from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.mtp import MultiToken, MultiTokenLayout, layout_of
from engine.config.raw import RawConfig
from engine.decoding.speculation.heads.features import FeatureHeads
from engine.decoding.speculation.heads.kind import HeadFiles
from engine.formats.load import Checkpoint


class MultiTokenFiles(FeatureHeads):
    """The first such layer; ``layout`` of its files is the checkpoint, and the layer's names there."""

    name, title, short, own = "mtp", "multi-token layers", "checkpoint's multi-token layer", True

    def of_checkpoint(self, checkpoint: Checkpoint) -> HeadFiles | None:
        layout = multi_token_layout(checkpoint)
        if layout is None:
            return None
        return HeadFiles(self, checkpoint.path, RawConfig({}, checkpoint.path), checkpoint.files, (checkpoint, layout))

    def read(self, files: HeadFiles, target: CausalLM) -> MultiToken:
        checkpoint: Checkpoint
        checkpoint, layout = files.layout
        source = checkpoint.source(target.device, target.dtype, files.packing, Numerics(), computing=files.device)
        return MultiToken(target, source, layout, checkpoint.has_tensor(layout.table))


HEADS = MultiTokenFiles()


def multi_token_layout(checkpoint: Checkpoint) -> MultiTokenLayout | None:
    """Layout of the multi-token layer, if there is one that Kvasir has.

    Nemotron's is two layers of one block each, attention and experts. (In GGUF they are one, which is left out.)
    """
    if checkpoint.config.mlp.only and not checkpoint.has_tensor("mtp.layers.0.mlp.gate.weight"):
        return None
    return layout_of(checkpoint.has_tensor, checkpoint.config.num_layers)
