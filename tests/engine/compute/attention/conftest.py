"""Native attention with every set of instructions at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.compute.native.instructions import VARIABLE
from tests.engine.compute.native.instruction_sets import at_hand


@pytest.fixture(scope="module", params=at_hand())
def each_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a set, which KVASIR_NATIVE forces meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param
