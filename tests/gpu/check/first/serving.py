"""What the first minutes ask of the whole engine: parts 0, 8 and 10. They are those of `engine_steps`, in part."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.library.paths import cache_folder
from engine.services.client import EngineClient
from engine.services.experiments.workloads.shapes import EIGHT_B, gptq_folder
from tests.gpu.check import notes
from tests.gpu.check.engine_steps import BATCHES, EARLY, SERVED, EngineBench
from tests.gpu.check.notes import Measures, Setting
from tests.gpu.check.watching import watching

SHORT_8B = replace(EIGHT_B, name="llama-8b-of-2-layers", layers=2, vocabulary=32064)
"""All kernels of the 8B, and a sixteenth of its bytes: what is compiled does not depend on the number of layers."""
GRAPHS = "graphs"
NOW = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
ANSWERS = 64


@contextmanager
def bench_of(setting: Setting, short: bool) -> Iterator[EngineBench]:
    """An engine for the 8B, or for the first layers of one."""
    with ExitStack() as stack:
        watch = stack.enter_context(watching())
        root = cache_folder() / "bench"
        if setting.dry:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvasir-check-")))
        bench = EngineBench(stack.enter_context(EngineClient()), watch, root, setting)
        if not setting.dry:
            bench.shape = SHORT_8B if short else EIGHT_B
        bench.rounds = 1
        yield bench


def start(setting: Setting) -> Measures:
    """``figures``: the state of the card; what loading a short 8B compiles that no cache had."""
    yield "card", lambda: dict(zip(NOW.split(","), notes.asked(NOW).split(", "), strict=False))
    with bench_of(setting, short=True) as bench:

        def load() -> dict[str, Any]:
            bench.folder = gptq_folder(bench.shape, bench.root, packed_head=False)
            began = time.perf_counter()
            bench.client.load(str(bench.folder))
            seconds = time.perf_counter() - began
            watch = bench.watch
            return {
                "seconds": seconds,
                "variants": len(watch.compiled),
                "hits": len(watch.hits),
                "misses": len(watch.misses),
                "missed": sorted(set(watch.misses)),
                "captured": len(watch.captures),
            }

        yield "load", load
        yield "load again", bench.load_again


def engine(setting: Setting) -> Measures:
    """``figures`` as those of the part "engine" of gpu-check."""
    with bench_of(setting, short=False) as bench:
        bench.modes = (GRAPHS, SERVED, *EARLY)
        # A call that goes on has the figures of the load, and no engine.
        loaded = _once(lambda: list(bench.load())[-1])
        yield "load", loaded
        for batch in BATCHES:
            yield f"decode {batch}", _after(loaded, lambda batch=batch: bench.decode(batch))
            if batch == 1:
                yield "profile", _after(loaded, bench.profile)
        yield "prompts", _after(loaded, bench.prompts)
        yield "8-bit head", _after(loaded, bench.packed_head)


def equal(setting: Setting) -> Measures:
    """``figures``: answers that differ from eager ones; kernels that a chat of 8,000 tokens compiles."""
    with bench_of(setting, short=True) as bench:
        loaded = _once(lambda: list(bench.load())[-1])
        yield "chat", _after(loaded, bench.chat)
        yield "shape", _after(loaded, bench.equal_on_shape)
        yield "answers", lambda: bench.equal_answers(1 if setting.dry else ANSWERS // 2)


def _once(load: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """The same, which loads at its first call and then knows what it found."""
    found: list[dict[str, Any]] = []

    def loaded() -> dict[str, Any]:
        if not found:
            found.append(load())
        return found[0]

    return loaded


def _after(loaded: Callable[[], dict[str, Any]], measure: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    def measured() -> Iterator[Any]:
        loaded()
        result = measure()
        if isinstance(result, Iterator):
            yield from result
        else:
            yield result

    return measured
