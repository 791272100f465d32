"""Kill -9 of the window and of the engine, a few times; ``python -m tests.app.kills`` does it more often."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from app.history.store import HistoryStore
from tests.app import kills
from tests.app.killed_program import Person

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
    pytest.mark.timeout(1800),  # a busy machine takes a minute for each start of the engine
]


def lost_nothing(found: kills.Figures, asked: int) -> None:
    assert found.failures == 0, found
    assert (found.kills, found.questions >= asked) == (asked, True)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.long)])
def test_a_killed_window_loses_nothing(qapp, tmp_path: Path, count: int) -> None:
    """Half answers are there at the next start, marked interrupted; the engine follows its window."""
    lost_nothing(kills.kill_windows(tmp_path / "home", count, random.Random(7)), count)
    store = HistoryStore(tmp_path / "home" / "data" / "history.db")
    states = {message.state for chat in store.chats() for message in store.messages(chat.id)}
    store.close()
    assert "interrupted" in states
    assert "streaming" not in states


def test_a_window_killed_at_any_moment_would_lose_nothing(qtbot, start, own_folders: Path) -> None:
    """In this process, at moments that real kills meet by chance: long after the first text of an answer was kept."""
    home, chance = own_folders / "kvasir", random.Random(7)
    program = start("--rate", "8")
    person = Person(program, home, 0, 7, program.close)
    cut = 0
    for _ in range(5):
        qtbot.wait(round(1000 * chance.uniform(1.0, 2.0)))
        found = kills.if_killed_now(home)
        assert found.failures == 0, found
        cut += found.cut
    program.close()
    del person
    assert cut >= 4, "most moments are in the middle of an answer"


@pytest.mark.slow
def test_a_killed_engine_costs_nothing_that_was_shown(qtbot, start, own_folders: Path) -> None:
    """In this process, with an engine that only looks like one."""
    home, over = own_folders / "kvasir", list[bool]()
    program = start("--rate", "100")
    heard = program.link.state_changed
    person = Person(program, home, 5, 7, lambda: heard.connect(lambda *_: over.append(True)), life=(0.0, 1.5))
    qtbot.waitUntil(lambda: bool(over))
    program.close()
    del person
    lost_nothing(kills.count_engines(home), 5)


@pytest.mark.long
def test_a_killed_real_engine_costs_nothing_that_was_shown(tmp_path: Path) -> None:
    lost_nothing(kills.kill_engines(tmp_path / "home", 5, seed=7), 5)
