"""A folder of its own for what is kept, no GPU, and as many threads afterwards as before."""

from __future__ import annotations

from tests.engine.services.experiments.bench.conftest import _home  # noqa: F401 - for these tests too
