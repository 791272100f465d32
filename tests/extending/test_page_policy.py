"""A page policy in one folder: attention within chunks, with a switch of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

from engine import catalogue
from tests.contracts.page_policy import PagePolicyContract
from tests.extending.busy_engine import Served, check
from tests.extending.chunked.policy import Chunked
from tests.extending.chunked.technique import TECHNIQUE


class TestChunks(PagePolicyContract):
    policies = st.builds(Chunked, st.integers(16, 300))


@pytest.mark.slow
def test_a_page_policy(model: Path) -> None:
    catalogue.register(TECHNIQUE)
    served = check(model, {"page_policy": "chunked", "chunk_tokens": 96}, shares=False)
    assert "chunked" in served.shown("page_policy")
    plain = Served(model, {})
    plain.ask(1, {})
    plain.run()
    assert plain.text(1) != served.text(1), "what rows do not see makes another text"
