"""`python -m tests.bench null N`: settings compared with themselves, which must show no clear difference.

The engine is driven as the window's A/B test drives it (engine/services/answers/compare.py), prompts, pairs and
verdicts included; only the two values are equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import cycle, islice

import msgspec

from engine import catalogue
from engine.loading.model import LoadModel
from engine.loop.engine import Engine
from engine.loop.events import Event
from engine.protocol import ChatMessage, Compare, Compared, Error, Loaded, Sampling, Value, keys
from engine.services.answers.compare import replay
from engine.services.client import EngineError
from engine.services.experiments.reports.tables import say, show_line, show_table
from engine.services.hub import EngineHub
from engine.services.probes import MachineProbes

CASES: tuple[tuple[str, Value], ...] = (
    (keys.KV_CACHE, True),
    (keys.PREFIX_CACHE, True),
    (keys.SPECULATION, "auto"),
    (keys.SPECULATION, "ngram"),
    (keys.TOKEN_BUDGET, 512),
)
"""Switches by what shows them: speed, first token, tokens per step."""
CLEAR = frozenset({"better", "worse"})


class NullFigures(msgspec.Struct, frozen=True):
    tries: list[Compared]

    @property
    def conclusion(self) -> str:
        """Sentence on how many found no clear difference in the switch's own figure, which is the first, and in any."""
        clear = [[effect.verdict in CLEAR for effect in one.effects] for one in self.tries]
        return (
            f"{sum(not own for own, *_ in clear)} of {len(clear)} comparisons of a setting with itself found no clear "
            f"difference in its own figure, {sum(not any(found) for found in clear)} in any figure."
        )

    def show(self) -> None:
        columns = "setting | figure | ratio | interval | pairs | verdict | note"
        show_table("Settings compared with themselves", columns, self._rows())
        show_line(self.conclusion)

    def _rows(self) -> Iterator[str]:
        """A row for each figure, the first of a try with the setting and the note."""
        for one in self.tries:
            setting, note = f"{one.key} {one.values[0]}", one.note
            for effect in one.effects:
                ratio = "" if effect.ratio is None else f"{effect.ratio:.2f}"
                interval = f"{effect.low:.2f} to {effect.high:.2f}"
                title = effect.metric.title
                yield f"{setting} | {title} | {ratio} | {interval} | {effect.pairs} | {effect.verdict} | {note}"
                setting = note = ""


def measure_null(load: LoadModel, question: str, tries: int) -> NullFigures:
    """Run ``tries`` comparisons, the cases in turn. Raises :class:`EngineError` where the model cannot be loaded."""
    return asyncio.run(_measure(load, question, tries))


async def _measure(load: LoadModel, question: str, tries: int) -> NullFigures:
    hub = EngineHub(Engine, MachineProbes(), died=lambda: say("the engine's thread ended"))
    hub.start()
    try:
        events: asyncio.Queue[Event] = asyncio.Queue()
        stop_listening = hub.listen(events.put_nowait)
        hub.submit(load)
        while not isinstance(event := await events.get(), Loaded):
            if isinstance(event, Error):
                raise EngineError(event.message)
        stop_listening()
        prompt = [ChatMessage.of("user", question)]
        found = []
        for number, (key, value) in enumerate(islice(cycle(CASES), tries)):
            message = Compare(id=str(number), key=key, prompt=prompt, sampling=Sampling(seed=number))
            compared = await replay(hub, message, catalogue.option(key), (value, value), lambda progress: None)
            found.append(compared)
            say(f"{number + 1}/{tries} {key}: {compared.effects[0].verdict} after {compared.effects[0].pairs} pairs")
        return NullFigures(found)
    finally:
        await hub.stop()
