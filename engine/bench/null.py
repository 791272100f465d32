"""``kvasir bench --null N``: settings compared with themselves, which must show no clear difference.

The engine is driven as the window's A/B test drives it (engine/server/session/compare.py), prompts, pairs and verdicts
included; only the two values are equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import cycle, islice

import msgspec
from rich.console import Console
from rich.table import Table

from engine import catalogue
from engine.bench.client import EngineError
from engine.catalogue import keys
from engine.core.engine import Engine
from engine.core.events import Event
from engine.loading.model import LoadModel
from engine.protocol import ChatMessage, Compare, Compared, Error, Loaded, LoadOptions, Sampling, Value
from engine.server.hub import EngineHub
from engine.server.probes import MachineProbes
from engine.server.session.compare import replay

CASES: tuple[tuple[str, Value], ...] = (
    (keys.KV_CACHE, True),
    (keys.PREFIX_CACHE, True),
    (keys.SPECULATION, "auto"),
    (keys.SPECULATION, "ngram"),
    (keys.TOKEN_BUDGET, 512),
)
"""Switches by what shows them: speed, first token, tokens per step."""
CLEAR = frozenset({"better", "worse"})


class NullTry(msgspec.Struct, frozen=True):
    value: Value
    compared: Compared

    @property
    def own(self) -> bool:
        """Whether the switch's own figure was called different."""
        return self.compared.effects[0].verdict in CLEAR

    @property
    def anything(self) -> bool:
        """Whether any figure was called different."""
        return any(effect.verdict in CLEAR for effect in self.compared.effects)


class NullFigures(msgspec.Struct, frozen=True):
    tries: list[NullTry]

    @property
    def conclusion(self) -> str:
        count = len(self.tries)
        right = sum(not one.own for one in self.tries)
        silent = sum(not one.anything for one in self.tries)
        return (
            f"{right} of {count} comparisons of a setting with itself found no clear difference in its own figure, "
            f"{silent} in any figure."
        )


def measure_null(
    path: str, draft: str, options: LoadOptions, question: str, tries: int, say: Callable[[str], None]
) -> NullFigures:
    """Run ``tries`` comparisons, the cases in turn. Raises :class:`EngineError` where the model cannot be loaded."""
    return asyncio.run(_measure(LoadModel(path, draft, options), question, tries, say))


async def _measure(load: LoadModel, question: str, tries: int, say: Callable[[str], None]) -> NullFigures:
    hub = EngineHub(Engine, MachineProbes(), died=lambda: say("the engine's thread ended"))
    hub.start()
    try:
        await _loaded(hub, load)
        prompt = [ChatMessage(role="user", content=question)]
        found = []
        for number, (key, value) in enumerate(islice(cycle(CASES), tries)):
            message = Compare(id=str(number), key=key, prompt=prompt, sampling=Sampling(seed=number))
            compared = await replay(hub, message, catalogue.option(key), (value, value), lambda progress: None)
            found.append(NullTry(value, compared))
            say(f"{number + 1}/{tries} {key}: {compared.effects[0].verdict} after {compared.effects[0].pairs} pairs")
        return NullFigures(found)
    finally:
        await hub.stop()


async def _loaded(hub: EngineHub, load: LoadModel) -> None:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def listener(event: Event) -> None:
        if ended.done():
            return
        if isinstance(event, Loaded):
            ended.set_result(None)
        elif isinstance(event, Error):
            ended.set_exception(EngineError(event.message))

    stop = hub.listen(listener)
    hub.submit(load)
    try:
        await ended
    finally:
        stop()


def show_null(figures: NullFigures, console: Console) -> None:
    table = Table(title="Settings compared with themselves")
    for column in ("setting", "figure", "ratio", "interval", "pairs", "verdict", "note"):
        table.add_column(column)
    for one in figures.tries:
        for effect in one.compared.effects:
            first = effect is one.compared.effects[0]
            table.add_row(
                f"{one.compared.key} {one.value}" if first else "",
                effect.metric.title,
                "" if effect.ratio is None else f"{effect.ratio:.2f}",
                f"{effect.low:.2f} to {effect.high:.2f}",
                str(effect.pairs),
                effect.verdict,
                one.compared.note if first else "",
            )
    console.print(table)
    console.print(figures.conclusion)
