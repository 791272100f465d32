"""The figures of `kvasir bench` and of the tools here, in one file."""

from __future__ import annotations

from engine.services.experiments.bench import Report
from tests.bench.assisted import AssistedFigures
from tests.bench.compare import PeerComparison
from tests.bench.null import NullFigures
from tests.bench.peers import PeersFigures
from tests.bench.soak_figures import SoakFigures
from tests.bench.streams import StreamsFigures


class AllFigures(Report):
    """Also those that only developers measure."""

    null: NullFigures | None = None
    soak: SoakFigures | None = None
    assisted: AssistedFigures | None = None
    comparisons: list[PeerComparison] = []
    peers: list[PeersFigures] = []
    streams: StreamsFigures | None = None
