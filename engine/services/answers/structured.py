"""Grammars of structured output, compiled once for each model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from engine.protocol import StructuredOutput
from engine.services.answers.refused import Refused
from engine.text.grammar import Grammar, GrammarError

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel
    from engine.protocol import ToolConfig
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


class HeldAnswer(NamedTuple):
    """What an answer is held to, and what its prompt ends with for that."""

    grammar: Grammar | None = None
    begins: str = ""


def held(loaded: LoadedModel, asked: StructuredOutput | None, tools: ToolConfig | None) -> HeldAnswer:
    """The grammar of what is asked for, or of a call of the ``tools`` that must, or may, come instead. Raises
    :class:`Refused`, for the schema of a tool with its name and the place in it."""
    assert loaded.files is not None
    if tools is None or not tools.allowed:
        return HeldAnswer(compiled(loaded, asked))
    if tools.choice == "auto" and asked is None:
        return HeldAnswer(compiled(loaded, loaded.files.tools.watched(tools)))
    if tools.choice == "auto" and asked is not None and asked.kind not in ("json_object", "json_schema"):
        text = "Besides calls of tools, an answer can be held to JSON alone. Leave the tools or that grammar out."
        raise Refused("bad_structure", text)
    forced = loaded.files.tools.forced(tools, asked if tools.choice == "auto" else None)
    try:
        grammar = loaded.files.grammars.compile(forced.structured, at_once=bool(forced.begins))
    except GrammarError as error:
        for tool in tools.allowed:
            try:
                loaded.files.grammars.compile(StructuredOutput(kind="json_schema", source=tool.parameters))
            except GrammarError as wrong:
                raise Refused("bad_tool", f"The parameters of the tool {tool.name!r}: {wrong}") from wrong
        raise Refused("bad_structure", str(error)) from error
    return HeldAnswer(grammar, forced.begins)


async def held_in_thread(
    hub: EngineHub, loaded: LoadedModel, asked: StructuredOutput | None, tools: ToolConfig | None = None
) -> HeldAnswer:
    """Same as :func:`held`, while other requests are served. Long grammars are compiled one at a time, since some take
    many seconds."""
    if asked is None and (tools is None or (tools.choice == "auto" and not any(each.grammar for each in tools.tools))):
        return HeldAnswer()
    sources = [tool.parameters + tool.grammar for tool in tools.allowed] if tools is not None else []
    size = sum(map(len, sources)) + (len(asked.source) if asked is not None else 0)
    executor = hub.long_prompts if size >= LONG else None
    return await asyncio.get_running_loop().run_in_executor(executor, held, loaded, asked, tools)
