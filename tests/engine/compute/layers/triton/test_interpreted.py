"""The cases that need Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.interpreter import run_cases

CASES = sorted(Path(__file__).parent.glob("cases_*.py"))
EXPERTS = [file for file in CASES if file.stem == "cases_experts"]
PARTS = {"experts": EXPERTS, "others": [file for file in CASES if file not in EXPERTS]}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_kernels_compute_what_the_definitions_say(part: str, request: pytest.FixtureRequest) -> None:
    run_cases(PARTS[part], "not long", request)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_kernels_at_more_sizes(request: pytest.FixtureRequest) -> None:
    run_cases(CASES, "long", request)
