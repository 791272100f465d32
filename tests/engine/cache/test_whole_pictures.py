"""Runs of rows that must be read in one step (pictures whose tokens see each other), in caches of several parts."""

from __future__ import annotations

import pytest

from engine.cache.groups.base import AnyGroup
from engine.cache.groups.residual import ResidualGroup
from engine.cache.groups.window import WindowGroup
from engine.cache.manager import KVCacheManager
from engine.cache.pool import PagePool
from engine.cache.sequences import SequenceCache
from engine.cache.slots import WindowSlots
from engine.cache.text import NewSequence
from engine.decoding.scheduling.plan import Limits
from engine.decoding.scheduling.policy import QueueStanding, SchedulingPolicy
from engine.decoding.scheduling.scheduler import Scheduler
from engine.loading.memory.estimate import plan

WINDOW, RESIDUAL, PICTURE = 1024, 128, 280
LIMITS = Limits(512)


class Content:
    def copy_page(self, src: int, dst: int) -> None:
        """Nothing is held."""


class Asked:
    """What the scheduler knows of a request."""

    def __init__(self, manager: KVCacheManager, arrival: int, tokens: int, wholes: list[tuple[int, int]]) -> None:
        owner = (str(arrival), 0)
        self.cache = SequenceCache(manager, NewSequence(owner, list(range(tokens)), namespace=arrival, wholes=wholes))
        self.arrival, self.standing = arrival, QueueStanding()
        self.cached, self.reach, self.max_draft_tokens = True, 10_000, 0


def manager_of(pages: int, group: AnyGroup) -> KVCacheManager:
    return KVCacheManager(PagePool(pages), content=Content(), groups=[group])


def windowed(slots: int) -> KVCacheManager:
    return manager_of(2000, WindowGroup(WindowSlots(2000, slots, WINDOW), Content()))


def residual(pages: int) -> KVCacheManager:
    return manager_of(600, ResidualGroup(PagePool(pages), RESIDUAL, Content()))


KIVI = {"free": 1_600_000, "residual": RESIDUAL, "recent_bytes": 1000.0}
WINDOWS = {"free": 4_000_000, "window": WINDOW, "window_bytes": 1000.0}


def planned(at_once: int, kind: dict[str, float]) -> int:
    """Recent pages, or windows' pages, where there is hardly room for more than one text's."""
    shared = {"weights": 0, "kv_bytes": 100.0, "activations": 0, "context": 8192, "rows": 2048, "memory": 1.0}
    made = plan(**shared, **kind, at_once=at_once)  # type: ignore[arg-type]
    return made.recent_pages + made.window_pages


def run(manager: KVCacheManager, asked: list[Asked], steps: int = 60) -> list[Asked]:
    """Read all prompts; returns those that failed."""
    scheduler, failed = Scheduler(manager, SchedulingPolicy()), []
    for each in asked:
        scheduler.add(each)
    for _ in range(steps):
        made = scheduler.plan(LIMITS, {})
        for each in made.failed:
            failed.append(each)
            scheduler.remove(each)
        for piece in made.slices:
            piece.sequence.cache.advance(piece.rows)
            if not piece.sequence.cache.pending:
                piece.sequence.cache.tokens.append(1)
            scheduler.settle(piece.sequence, LIMITS)
    return failed


def read(asked: Asked) -> bool:
    return asked.cache.pending <= 1


@pytest.mark.parametrize("begin", range(2000, 2016))
def test_what_is_planned_holds_the_largest_picture_wherever_it_begins(begin: int) -> None:
    for manager in (residual(planned(PICTURE, KIVI)), windowed(planned(PICTURE, WINDOWS))):
        asked = Asked(manager, 1, 3000, [(begin, begin + PICTURE)])
        assert run(manager, [asked]) == []
        assert read(asked)


def test_more_is_planned_only_where_it_must_be() -> None:
    for kind in (KIVI, WINDOWS):
        assert planned(0, kind) < planned(PICTURE, kind) < planned(1120, kind)


def test_a_picture_without_room_is_told_so_and_in_nobodys_way() -> None:
    manager = residual(16)
    large, text = Asked(manager, 1, 3000, [(2001, 2257)]), Asked(manager, 2, 50, [])
    assert run(manager, [large, text]) == [large]
    assert read(text)


def test_an_answer_and_a_large_picture_do_not_take_turns() -> None:
    """What is admitted has room for its largest step; else it was preempted and admitted again, for ever."""
    manager = windowed(166)
    answer, picture = Asked(manager, 1, 900, []), Asked(manager, 2, 3000, [(2000, 3120)])
    run(manager, [answer, picture], 200)
    assert picture.standing.preemptions < 3
    assert answer.standing.preemptions == 0
