"""The engine driven from a plain thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.library.paths import bundled_model
from engine.protocol import Sampling, keys
from engine.services.client import EngineClient, EngineError

GREEDY = Sampling(temperature=0.0, ignore_eos=True, max_tokens=40, seed=1)
PLAIN = {keys.SPECULATION: "off"}
PROMPT = list(range(300, 340))


@pytest.fixture
def client() -> Iterator[EngineClient]:
    with EngineClient() as client:
        client.load(bundled_model().path)
        yield client


def test_what_fails_leaves_nothing_behind_for_the_next_answer(client: EngineClient) -> None:
    """The other answer is cut off in its middle: its tokens and steps are not those of what comes after."""
    alone = client.answer(PROMPT, GREEDY, PLAIN)
    too_long = [300] * (client.model.card.context + 1)
    for _ in range(3):
        with pytest.raises(EngineError, match="context"):
            client.together([PROMPT, too_long], GREEDY, PLAIN)
        after = client.answer(PROMPT, GREEDY, PLAIN)
        assert after.ids == alone.ids
        assert [step.generated for step in after.steps] == [1] * GREEDY.max_tokens
