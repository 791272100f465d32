"""Compiling every kernel variant that a model's steps will meet, before an answer waits for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.cache.pool import pages_for
from engine.cache.types import StateRun
from engine.compute.batch import ROW_CLASSES, SequenceRows
from engine.compute.native.triton_launch import Different, compile_all, gathering
from engine.compute.runner.graphs import classes_of
from engine.compute.runner.runner import Runner

PROMPT_ROWS = (128, 512, 2048)
"""Rows of prompts: more than a captured step has."""
ROWS = (1, 2, 8, 16, 32, 64)
"""Rows of which kernels are cut differently: the largest of each of their classes, and of each class of batches."""
_TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


def compile_ahead(
    runner: Runner, context: int, progress: Callable[[int, int], None], besides: Callable[[], None] | None = None
) -> int:
    """Compile what steps of every class launch, in several threads; ``progress(done, of)`` follows. Returns how many.

    The steps are gone through without launching kernels, over page 0, which is emptied afterwards. ``context`` is the
    longest sequence, in tokens; ``besides()`` launches what else is to be compiled. Raises what a compiler raises.
    """
    try:
        with gathering(Different()) as launches:
            for rows in steps(context, runner.kv.num_groups):
                runner.run_eagerly(rows)
            if besides is not None:
                besides()
    finally:
        # What was computed from kernels that did not run may be no numbers, which page 0 must not hold.
        store = runner.kv
        for arena in (store, *filter(None, [store.recent])):
            arena.clear_pages([0])
    return compile_all(launches, progress)


def capture_ahead(runner: Runner, context: int) -> None:
    """Capture the steps that every chat begins with, one answer that is written, for texts of every length."""
    if runner.graphs is None:
        return
    for length in classes_of(context):
        pages = (0,) * pages_for(length)
        more = (pages,) * (runner.kv.num_groups - 1)
        runner.forward([SequenceRows([0], length - 1, pages, 1, more_pages=more, states=(StateRun(1, 0, 0),))])
        runner.graphs.capture_one()


def steps(context: int, groups: int) -> Iterator[list[SequenceRows]]:
    """Steps that together launch every variant: decoding, checking chains and a tree, reading prompts, each over a
    short and a long text."""

    def rows(count: int, length: int, parents: tuple[int, ...] | None = None) -> SequenceRows:
        pages = (0,) * pages_for(length)
        return SequenceRows(
            [0] * count,
            length - count,
            pages,
            min(count, ROW_CLASSES[-1]),
            parents,
            (pages,) * (groups - 1),
            states=(StateRun(count, 0, 0),),
        )

    lengths = classes_of(context)
    for length in dict.fromkeys((lengths[0], lengths[-1])):
        for count in ROWS:
            yield [rows(1, length)] * count
            if 1 < count <= length:
                yield [rows(count, length)]
        if length >= len(_TREE):
            yield [rows(len(_TREE), length, _TREE)]
        yield from ([rows(count, length)] for count in PROMPT_ROWS if count <= length)
