"""Sequences with several groups at once: each goes on from where all of them can, and all come back."""

from __future__ import annotations

from typing import ClassVar

import pytest

from engine.cache.groups.residual import ResidualPart
from engine.cache.groups.state import StatePart
from engine.cache.prefix.states import StateSnapshots
from engine.cache.sequences import SequenceCache
from engine.cache.slots import WindowSlots, first_seen
from tests.contracts.sequence_cache import Fault, SequenceCacheContract
from tests.engine.cache.sequences_support import Asked, House, prompt, run

pytestmark = pytest.mark.content
longest, keep = StatePart.longest, StateSnapshots.keep


@pytest.mark.slow
class TestWindowsAndStates(SequenceCacheContract):
    kind, tight = "windows, states", {"window": 40, "slots": 8, "states": 8}
    cases: ClassVar = {
        "fault": {
            "a beginning whose window is gone": Fault(WindowSlots, "longest", lambda self, pages, tokens: tokens),
            "a beginning without a state": Fault(
                StatePart, "longest", lambda self, cache, tokens, pages: longest(self, cache, tokens, pages) and tokens
            ),
            "a group that is not asked": Fault(
                SequenceCache, "_longest", lambda self, pages, tokens: self.parts[-1].longest(self, tokens, pages)
            ),
        }
    }


class TestRecentAndStates(SequenceCacheContract):
    kind, tight = "recent, states", {"residual": 64, "recent_pages": 14, "states": 8}
    cases: ClassVar = {
        "fault": {
            "a beginning without recent tokens": Fault(ResidualPart, "open", lambda self, cache: None),
            "a state that is kept for another place": Fault(
                StateSnapshots, "keep", lambda self, name, keys, *more: keep(self, name, keys[:-1] or keys, *more)
            ),
        }
    }


class TestRecentAndWindows(SequenceCacheContract):
    kind, tight = "recent, windows", {"residual": 64, "recent_pages": 14, "window": 100, "slots": 13}
    cases: ClassVar = {
        "fault": {
            "half a group is given up": Fault(
                WindowSlots, "first", lambda self, tokens: first_seen(tokens, self.window) + 1
            ),
            "a beginning whose window is gone": Fault(WindowSlots, "longest", lambda self, pages, tokens: tokens),
        }
    }


@pytest.mark.slow
class TestAllAtOnce(SequenceCacheContract):
    kind, tight = "recent, windows, states", TestRecentAndWindows.tight | {"states": 8}
    cases: ClassVar = {
        "fault": {"a beginning without recent tokens": Fault(ResidualPart, "open", lambda self, cache: None)}
    }


@pytest.mark.always
def test_a_text_goes_on_where_a_state_and_recent_tokens_are_kept() -> None:
    """Near the end of a prompt, at the end of an answer, and where two texts parted."""
    house = House(80, residual=64, recent_pages=60, states=40)
    first = house.add(Asked(0, 0, prompt((1, 250)), 30, alphabet=1))
    run(house, 50)
    for asked, found in ((prompt((1, 240), (0, 20)), 224), ([*first.tokens, 0, 0, 0], 272), (prompt((1, 250)), 240)):
        again = house.add(Asked(found, 0, asked, 4))
        run(house, 12)
        assert again.prompt_length + 3 - again.computed_rows == found


@pytest.mark.always
def test_a_text_goes_on_after_the_last_state_whose_window_is_there() -> None:
    """Both are kept near the end of a prompt; without the window's slots, or the state, all is read again."""
    for lost in ("nothing", "windows", "states"):
        house = House(60, window=40, slots=30, states=20)
        house.add(Asked(0, 0, prompt((1, 150)), 4))
        run(house, 12)
        if lost == "windows":
            house.manager.groups[0].slots.make_room(29)  # type: ignore[attr-defined]
        elif lost == "states":
            house.manager.groups[1].snapshots.make_room(19)  # type: ignore[attr-defined]
        again = house.add(Asked(1, 0, prompt((1, 140), (0, 20)), 4))
        house.drain()
        assert again.prompt_length + 3 - again.computed_rows == (128 if lost == "nothing" else 0)
