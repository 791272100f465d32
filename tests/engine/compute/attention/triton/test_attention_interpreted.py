"""The cases that need Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.interpreter import run_cases

CASES = sorted(Path(__file__).parent.glob("cases_*.py"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_kernels_compute_what_the_definitions_say(request: pytest.FixtureRequest) -> None:
    run_cases(CASES, "not long", request)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_the_kernels_at_more_sizes(request: pytest.FixtureRequest) -> None:
    run_cases(CASES, "long", request)
