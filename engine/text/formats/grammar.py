"""The grammar of an answer that must call a tool, in the words of llguidance's Lark.

Source: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.protocol import ToolConfig
from engine.text.formats.calls import Alternatives, CallFormat, FreeText, Lark, Optional, Schema, Term
from engine.text.grammar import ON_ONE_LINE, held_schema

MOST_CALLS = 16
"""Calls of an answer that must make some: a small model may not end by itself."""
_ANY = r"/(.|\n)*/"


def forced(format: CallFormat, config: ToolConfig, special: Mapping[str, int], otherwise: Sequence[Term] = ()) -> str:
    """A grammar of one call or several, or of something ``otherwise``. ``special`` are marks that are tokens without
    text, and their ids."""
    lark = _Grammar(special)
    begins, ends = format.around
    tools = " | ".join(lark.sequence(format.terms(tool)) for tool in config.allowed)
    more = f" ({lark.text(format.joint)} call){{0,{MOST_CALLS - 1}}}" if config.parallel else ""
    other = f" | {lark.sequence(otherwise)}" if otherwise else ""
    start = f"start: {lark.text(begins)} call{more} {lark.text(ends)}{other}"
    return "\n".join([start, f"call: {tools}", *lark.rules])


def called(calls: Sequence[Sequence[Term]], special: Mapping[str, int]) -> str:
    """A grammar of an answer that is one of these calls."""
    lark = _Grammar(special)
    return "\n".join(["start: " + " | ".join(map(lark.sequence, calls)), *lark.rules])


def watched(format: CallFormat, config: ToolConfig, special: Mapping[str, int]) -> str:
    """A grammar of any answer in which calls, once begun, are of tools that there are, and the texts of those with a
    grammar hold to it."""
    lark = _Grammar(special)
    until = lark.sequence([FreeText(format.opens[0])])
    calls = " | ".join(lark.sequence(format.begun(tool)) for tool in config.allowed)
    return "\n".join([f"start: ({until} ({calls}))* REST", f"REST: {_ANY}", *lark.rules])


class _Grammar:
    """Rules of one grammar."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special
        self._split = re.compile("(" + "|".join(map(re.escape, special)) + ")") if special else None
        self.rules: list[str] = []

    def sequence(self, terms: Sequence[Term]) -> str:
        return " ".join(map(self._term, terms))

    def text(self, text: str) -> str:
        """Text as it stands, with special tokens where its marks are."""
        parts = self._split.split(text) if self._split is not None else [text]
        return " ".join(self._part(part) for part in parts if part)

    def _part(self, part: str) -> str:
        id = self._special.get(part)
        return json.dumps(part, ensure_ascii=False) if id is None else f"<[{id}]>"

    def _term(self, term: Term) -> str:
        match term:
            case str():
                return self.text(term)
            case Schema():
                return self._rule(f"part_{len(self.rules)}", f"%json {_schema(term.schema)}")
            case Lark(source):
                return self._rule(f"part_{len(self.rules)}", f"%lark {{\n{source}\n}}")
            case FreeText(end, marks) if end in self._special:  # no text has it
                text = self._rule(f"TEXT_{len(self.rules)}", _ANY)
                others = " | ".join(self.text(mark) for mark in self._special if marks and mark != end)
                return f"({text} ({others}))* {text} {self.text(end)}" if others else f"{text} {self.text(end)}"
            case FreeText(end):
                name = f"part_{len(self.rules)}"
                self.rules.append(f"{name}[suffix={json.dumps(end, ensure_ascii=False)}]: {_ANY}")
                return name
            case Alternatives(texts):
                return "(" + " | ".join(map(self.text, texts)) + ")"
            case Optional():
                return f"({self.sequence(term.terms)})?"

    def _rule(self, name: str, body: str) -> str:
        self.rules.append(f"{name}: {body}")
        return name


def _schema(schema: Any) -> str:
    return json.dumps({**held_schema(schema), "x-guidance": ON_ONE_LINE})
