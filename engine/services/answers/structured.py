"""Grammars of structured output, compiled once for each model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.services.answers.refused import Refused
from engine.text.grammar import Grammar, GrammarError

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel
    from engine.protocol import StructuredOutput
    from engine.services.hub import EngineHub

LONG = 1 << 13
"""Characters of a long grammar."""


def compiled(loaded: LoadedModel, asked: StructuredOutput | None) -> Grammar | None:
    """The grammar of what is asked for; None where nothing is. Raises :class:`Refused`."""
    if asked is None:
        return None
    assert loaded.files is not None
    try:
        return loaded.files.grammars.compile(asked)
    except GrammarError as error:
        raise Refused("bad_structure", str(error)) from error


async def compiled_in_thread(hub: EngineHub, loaded: LoadedModel, asked: StructuredOutput | None) -> Grammar | None:
    """Same as :func:`compiled`, while other requests are served. Long grammars are compiled one at a time, since some
    take many seconds."""
    if asked is None:
        return None
    executor = hub.long_prompts if len(asked.source) >= LONG else None
    return await asyncio.get_running_loop().run_in_executor(executor, compiled, loaded, asked)
