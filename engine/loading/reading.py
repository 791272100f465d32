"""Reading a model's weights, of the target or of its draft, and proving them by a first token."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.formats.load import load_model
from engine.formats.quantised.repacked import Kept
from engine.formats.source import Packing
from engine.formats.times import LoadTimes
from engine.library import paths
from engine.loading.files import ModelFiles
from engine.loading.model import Progress
from engine.loading.placement import DevicePlacement
from engine.loading.runners import new_runner, prove


class WeightReading(NamedTuple):
    """Settings that parts are read with.

    ``quantises``: activations may be quantised. ``progress`` and ``cancelled`` as in
    :func:`engine.formats.load.load_model`; ``notices`` are added to, sentences for a person.
    """

    place: DevicePlacement
    quantises: bool
    times: LoadTimes
    progress: Progress
    cancelled: Callable[[], bool]
    notices: list[str]

    def between(self, first: float, last: float, of: str = "") -> WeightReading:
        """The same for a part whose progress goes from ``first`` to ``last``, its stages named with ``of``."""
        progress = self.progress
        return self._replace(progress=lambda stage, done: progress(f"{stage}{of}", first + (last - first) * done))

    def model(self, files: ModelFiles, packing: Packing) -> CausalLM:
        """Read a model and compute one token with it. Raises :class:`CheckpointError` where it is damaged, and
        :class:`engine.base.errors.LoadCancelled`."""
        kept, place = self._kept(files), self.place
        numerics = Numerics(quantises=self.quantises)
        asked = place.device, place.dtype, packing, self.progress, self.cancelled, numerics, kept, self.times
        model = load_model(files.checkpoint, *asked)
        model.kv_dtype = place.kv_dtype
        if kept is not None and kept.notice and kept.notice not in self.notices:
            self.notices.append(kept.notice)
        prove(new_runner(model, 2, place.device), files.checkpoint)
        return model

    def _kept(self, files: ModelFiles) -> Kept | None:
        """The store of quantised weights that an earlier load may have kept; None if there is nothing to quantise or
        keeping them is switched off."""
        if files.checkpoint.quantise is None or not paths.keeps_quantised():
            return None
        with self.times.of("looking for kept weights"):
            return files.checkpoint.kept(paths.quantised_folder(), self.place.device)
