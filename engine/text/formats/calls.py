"""Calls of tools as formats write them: what reads one, and what makes the grammar of one that must be written."""

from __future__ import annotations

import ast
import json
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.protocol import Tool, ToolCallDelta
from engine.text.formats.reading import Emit, FormatError, Reading, Unread, json_value, whole_json

_LETTERS = string.ascii_letters + string.digits
CUT_SHORT = "A call of a tool was not written as this model's format wants it, and stands in the text as it is."


class Schema(NamedTuple):
    """A place in a grammar where JSON stands that a schema describes."""

    schema: Any


class Lark(NamedTuple):
    """A place in a grammar where text stands that another grammar describes."""

    source: str


class FreeText(NamedTuple):
    """A place in a grammar where any text stands, and the first ``end`` behind it. With ``marks``: special tokens of
    the format, too."""

    end: str
    marks: bool = False


class Alternatives(NamedTuple):
    """A place in a grammar where one of these texts stands."""

    texts: Sequence[str]


Placed = str | Schema | Lark | FreeText | Alternatives


class Optional(NamedTuple):
    """Terms of a grammar that may be missing together."""

    terms: Sequence[Placed]


Term = Placed | Optional
"""A place in a grammar: text as it stands, or what is described."""


class CallWriter:
    """Parts of an answer that were read, until they are taken."""

    def __init__(self, tools: Sequence[Tool], id_length: int = 24) -> None:
        self.properties = {tool.name: _properties(tool) for tool in tools}
        self.content: list[str] = []
        self.calls: list[ToolCallDelta] = []
        self.notices: list[str] = []
        self.index = -1
        self._id_length = id_length

    def say(self, text: str) -> None:
        if text:
            self.content.append(text)

    def begin(self, name: str, id: str = "") -> None:
        """Begin a call. Raises FormatError without a name."""
        if not name:
            raise FormatError("the call names no tool")
        self.index += 1
        self.calls.append(ToolCallDelta(index=self.index, id=id or self._new_id(), name=name))

    def argue(self, text: str) -> None:
        """Add to the arguments of the call that was begun last."""
        if text:
            self.calls.append(ToolCallDelta(index=self.index, arguments=text))

    def _new_id(self) -> str:
        drawn = "".join(secrets.choice(_LETTERS) for _ in range(self._id_length))
        return drawn if self._id_length < 24 else f"call_{drawn}"


def _properties(tool: Tool) -> dict[str, Any]:
    """The schemas of a tool's arguments by name, each with what it may refer to."""
    schema = json.loads(tool.parameters)
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    found = schema.get("properties")
    inner = found.items() if isinstance(found, dict) else ()
    return {name: {**shared, **each} if isinstance(each, dict) else each for name, each in inner}


@dataclass(frozen=True, kw_only=True)
class CallFormat(ABC):
    """Interface to the format of one family.

    ``opens`` are the marks that a call begins with, ``closes`` the one that it ends with ("": none), ``dropped`` marks
    around several calls, which say nothing. ``joint`` stands between two calls. ``bare``: an answer that is nothing but
    JSON with the name of a tool is a call, too. ``id_length``: letters of the names that calls get.
    """

    opens: Sequence[str]
    closes: str = ""
    dropped: Sequence[str] = ()
    joint: str = "\n"
    bare: bool = False
    id_length: int = 24

    @abstractmethod
    def read(self, unread: Unread, calls: CallWriter, bare: bool = False) -> Reading[None]:
        """Read what follows an opening mark (or stands without one), to the end of the call or calls. Raises
        FormatError."""

    @abstractmethod
    def terms(self, tool: Tool) -> Sequence[Term]:
        """A call of a tool as a grammar has it, marks around it included."""

    def holds(self, tool: Tool) -> bool:
        """True if the grammar of a tool can hold its text: if that stands in a call as it is."""
        return any(isinstance(term, Lark) for term in self.terms(tool))

    def begun(self, tool: Tool) -> Sequence[Term]:
        """A call as :meth:`terms` has it, from behind the mark that opens it; of a tool without a grammar any."""
        head, *rest = self.terms(tool)
        assert isinstance(head, str)
        return [head.removeprefix(self.opens[0]), *(rest if self.holds(tool) else [FreeText(self.closes, marks=True)])]

    @property
    def around(self) -> tuple[str, str]:
        """What stands around all calls of an answer."""
        begins, ends = (self.dropped[0], self.dropped[1]) if len(self.dropped) > 1 else ("", "")
        return begins, ends

    @property
    def marks(self) -> Iterator[str]:
        yield from (*self.opens, *self.dropped)
        if self.closes:
            yield self.closes

    def close(self, unread: Unread) -> Reading[None]:
        """Read the closing mark; an answer that ends without it has a whole call all the same. Raises FormatError."""
        yield from unread.spaces()
        if self.closes and (yield from unread.peek()):
            yield from unread.expect(self.closes)


@dataclass(frozen=True, kw_only=True)
class JsonCalls(CallFormat):
    """Each call is an object with a name and arguments, alone, one behind the other, or (``listed``) in a list."""

    listed: bool = False
    arguments: str = "arguments"
    space: str = "\n"
    """What stands between marks and object."""

    def read(self, unread: Unread, calls: CallWriter, bare: bool = False) -> Reading[None]:
        yield from unread.spaces()
        listed = yield from unread.found("[")
        while True:
            yield from unread.spaces()
            yield from _object_call(unread, calls, bare)
            yield from unread.spaces()
            joined = (yield from unread.found(",")) or (yield from unread.found(";"))
            if not joined and (listed or (yield from unread.peek()) != "{"):
                break
        if listed:
            yield from unread.expect("]")
        if not bare:
            yield from self.close(unread)

    def terms(self, tool: Tool) -> Sequence[Term]:
        head = f'{{"name": {json.dumps(tool.name)}, "{self.arguments}": '
        inner: list[Term] = [head, Schema(json.loads(tool.parameters)), "}"]
        if self.listed:
            return inner
        opens = self.opens[0] if self.opens else ""
        return [opens + (self.space if opens else ""), *inner, (self.space if self.closes else "") + self.closes]

    @property
    def around(self) -> tuple[str, str]:
        return (self.opens[0] + "[", "]" + self.closes) if self.listed else super().around


_NAMES, _ARGUMENTS = ("name", "tool_name"), ("arguments", "parameters", "args")


def _object_call(unread: Unread, calls: CallWriter, known: bool) -> Reading[None]:
    """A call as an object; ``known``: only of a tool that there is."""
    held: list[str] = []
    before = calls.index
    argued = yield from _members(unread, calls, held, known)
    if calls.index == before:
        raise FormatError("the call names no tool")
    if held or not argued:
        calls.argue("".join(held) or "{}")


def _members(unread: Unread, calls: CallWriter, held: list[str], known: bool) -> Reading[bool]:
    """Read the members of a call; returns True if it has arguments. Those before its name are ``held``."""
    before, argued = calls.index, False
    yield from unread.expect("{")
    while True:
        yield from unread.spaces()
        if (yield from unread.found("}")):
            return argued
        key = yield from whole_json(unread)
        yield from unread.spaces()
        yield from unread.expect(":")
        yield from unread.spaces()
        if key == "function" and (yield from unread.peek()) == "{":
            argued = (yield from _members(unread, calls, held, known)) or argued
        elif key in _NAMES:
            name = yield from whole_json(unread)
            if not isinstance(name, str) or (known and name not in calls.properties):
                raise FormatError("the call names no tool")
            calls.begin(name)
        elif key in _ARGUMENTS:
            argued = True
            yield from _arguments(unread, calls.argue if calls.index > before else held.append)
        else:
            yield from whole_json(unread)
        yield from unread.spaces()
        yield from unread.found(",")


def _arguments(unread: Unread, emit: Emit) -> Reading[None]:
    """Arguments as an object, or as the text of one."""
    first = yield from unread.peek()
    if first == "{":
        yield from json_value(unread, emit)
        return
    value = yield from whole_json(unread)
    emit((value.strip() if isinstance(value, str) else json.dumps(value or {})) or "{}")


@dataclass(frozen=True, kw_only=True)
class NamedCalls(CallFormat):
    """The name of the tool, a mark, and the arguments as JSON.

    ``before`` stands in front of the name, ``between`` are the marks behind it, of which the last comes before the
    arguments, and ``after`` stands behind them. ``numbered``: the name is "functions.NAME:0", and the call's own name.
    """

    before: str = ""
    between: Sequence[str]
    after: str = ""
    numbered: bool = False

    def read(self, unread: Unread, calls: CallWriter, bare: bool = False) -> Reading[None]:
        yield from unread.spaces()
        if self.before:
            yield from unread.found(self.before)
        name, id = (yield from unread.before(self.between)).strip(), ""
        if len(self.between) > 1 and unread.marked.endswith(self.between[0]):
            id = yield from unread.before(self.between[-1:])
        if self.numbered:
            id, name = name, name.removeprefix("functions.").rpartition(":")[0] or name
        calls.begin(name, id)
        yield from json_value(unread, calls.argue, "{")
        if self.after:
            yield from unread.spaces()
            yield from unread.found(self.after.strip())
        yield from self.close(unread)

    def terms(self, tool: Tool) -> Sequence[Term]:
        name = f"functions.{tool.name}:0" if self.numbered else tool.name
        head = f"{self.opens[0]}{self.before}{name}{self.between[-1]}"
        return [head, Schema(json.loads(tool.parameters)), self.after + self.closes]

    @property
    def marks(self) -> Iterator[str]:
        yield from super().marks
        yield from self.between


class Brackets(NamedTuple):
    """What stands before a name, behind it, and at the end of what it names."""

    before: str
    behind: str
    ends: str


@dataclass(frozen=True, kw_only=True)
class TaggedCalls(CallFormat):
    """The arguments in tags, as text: their types are those that the tool's schema names.

    ``value`` opens the value where that has a tag of its own.
    """

    function: Brackets
    parameter: Brackets
    value: str = ""
    padding: str = "\n"
    """What stands around a value and does not belong to it."""

    def read(self, unread: Unread, calls: CallWriter, bare: bool = False) -> Reading[None]:
        yield from unread.spaces()
        yield from unread.expect(self.function.before)
        ends = [each for each in (self.function.behind, self.parameter.before, self.function.ends) if each]
        name = yield from self._name(unread, ends)
        calls.begin(name)
        properties, count = calls.properties.get(name, {}), 0
        while True:
            yield from unread.spaces()
            if (yield from unread.found(self.function.ends)):
                break
            yield from unread.expect(self.parameter.before)
            key = (yield from unread.before([self.parameter.behind])).strip()
            calls.argue(("{" if not count else ", ") + json.dumps(key, ensure_ascii=False) + ": ")
            count += 1
            if self.value:
                yield from unread.spaces()
                yield from unread.expect(self.value)
            yield from self._value(unread, calls.argue, _types(properties.get(key)))
        calls.argue("}" if count else "{}")
        if self.closes != self.function.ends:
            yield from self.close(unread)

    def _name(self, unread: Unread, ends: Sequence[str]) -> Reading[str]:
        """The name, before whatever comes behind it; marks of what follows stay."""
        name = yield from unread.before(ends)
        found = next(each for each in ends if unread.marked.endswith(each))
        if found != self.function.behind:
            unread.at -= len(found)
        return name.strip()

    def _value(self, unread: Unread, emit: Emit, types: Sequence[str]) -> Reading[None]:
        if self.padding:
            yield from unread.found(self.padding)
        ends = [self.padding + self.parameter.ends, self.parameter.ends] if self.padding else [self.parameter.ends]
        if {*types} - {"string"}:
            emit(json.dumps(_typed((yield from unread.before(ends)), types), ensure_ascii=False))
        else:
            emit('"')
            if not (yield from unread.until(ends, lambda text: emit(_escaped(text)), whole=False)):
                raise FormatError("a value has no end")
            emit('"')

    def terms(self, tool: Tool) -> Sequence[Term]:
        opens = "" if self.opens[0] == self.function.before else self.opens[0] + self.padding
        closes = "" if self.closes == self.function.ends else self.padding + self.closes
        head = f"{opens}{self.function.before}{tool.name}{self.function.behind}"
        return [head, *_parameters(tool, self._parameter, joined=False), self.padding + self.function.ends + closes]

    def _parameter(self, key: str, schema: Any, first: bool) -> Sequence[Placed]:
        ends = self.padding + self.parameter.ends
        opens = f"\n{self.value}" if self.value else ""
        head = f"\n{self.parameter.before}{key}{self.parameter.behind}{opens}{self.padding}"
        if (texts := _choices(schema)) is not None:
            return [head, Alternatives(texts), ends]
        return [head, FreeText(ends)] if _is_text(schema) else [head, Schema(schema), ends]


def _parameters(tool: Tool, write: Callable[[str, Any, bool], Sequence[Placed]], joined: bool = True) -> Iterator[Term]:
    """The arguments of a call in the order of its schema, required ones first, and each of the others if it is wanted.

    Where they are ``joined`` the first one always stands there, so that what joins them is certain.
    """
    wanted, properties = json.loads(tool.parameters).get("required", ()), _properties(tool)
    for place, key in enumerate(sorted(properties, key=lambda key: key not in wanted)):
        terms = write(key, properties[key], not place)
        if tool.grammar:
            terms = [each for term in terms for each in _held(term, tool.grammar)]
        if key in wanted or (joined and not place):
            yield from terms
        else:
            yield Optional(terms)


def _held(term: Placed, grammar: str) -> Sequence[Placed]:
    return [Lark(grammar), term.end] if isinstance(term, FreeText) else [term]


def _is_text(schema: Any) -> bool:
    """True if a value is text, which has no quotes in tags."""
    return not {*_types(schema)} - {"string"}


def _choices(schema: Any) -> list[str] | None:
    """The values that a schema names, as text; None where it names none."""
    found = _referred(schema)
    values = [found["const"]] if "const" in found else found.get("enum")
    if not isinstance(values, list):
        return None
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}


def _types(schema: Any) -> tuple[str, ...]:
    """The types that a schema allows; none where it names none."""
    found = _referred(schema)
    said = found.get("type")
    types = [said] if isinstance(said, str) else [each for each in said or () if isinstance(each, str)]
    for each in (*found.get("anyOf", ()), *found.get("oneOf", ())):
        types += _types({**found, "anyOf": (), "oneOf": (), "type": None, **each} if isinstance(each, dict) else each)
    values = [found["const"]] if "const" in found else found.get("enum") or ()
    return tuple(types) or tuple(_KINDS.get(type(value), "null") for value in values)


def _referred(schema: Any) -> dict[str, Any]:
    """The schema, or the one that it refers to."""
    if not isinstance(schema, dict):
        return {}
    place = schema.get("$ref")
    match place.split("/") if isinstance(place, str) else ():
        case ["#", "$defs" | "definitions" as table, name] if isinstance(schema.get(table, {}).get(name), dict):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return {**rest, **schema[table][name]}
    return schema


def _typed(text: str, types: Sequence[str]) -> Any:
    """The value that a text without quotes means; the text itself if that is none of these types."""
    words = {"true": True, "false": False, "none": None, "null": None}
    try:
        word = text.strip()
        value = words[word.lower()] if word.lower() in words else _python(word)
    except FormatError:
        return text
    if isinstance(value, float) and value.is_integer() and "number" not in types:
        value = int(value)
    kind = _KINDS.get(type(value), "null")
    return value if kind in types or (kind == "integer" and "number" in types) else text


def _escaped(text: str) -> str:
    """Text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass(frozen=True, kw_only=True)
class PythonCalls(CallFormat):
    """A list of calls as Python writes them, with named arguments: ``[f(a=1), g()]``."""

    def read(self, unread: Unread, calls: CallWriter, bare: bool = False) -> Reading[None]:
        yield from unread.spaces()
        yield from unread.expect("[")
        while True:
            yield from unread.spaces()
            if (yield from unread.found("]")):
                break
            name = (yield from unread.before(["("])).strip()
            if bare and name not in calls.properties:
                raise FormatError("the call names no tool")
            calls.begin(name)
            yield from _written(unread, calls, "=", ")", _python)
            yield from unread.spaces()
            yield from unread.found(",")
        if not bare:
            yield from self.close(unread)

    @property
    def around(self) -> tuple[str, str]:
        return (self.opens[0] if self.opens else "") + "[", "]" + self.closes

    def terms(self, tool: Tool) -> Sequence[Term]:
        return [f"{tool.name}(", *_parameters(tool, self._parameter), ")"]

    def _parameter(self, key: str, schema: Any, first: bool) -> Sequence[Placed]:
        return [f"{'' if first else ', '}{key}=", Schema(schema)]


@dataclass(frozen=True, kw_only=True)
class KeyedCalls(CallFormat):
    """``call:NAME{key:value,…}``, where text stands between marks of its own (``quote``) and the rest as in JSON, but
    for keys without quotes."""

    quote: str
    before: str = "call:"

    def read(self, unread: Unread, calls: CallWriter, bare: bool = False) -> Reading[None]:
        yield from unread.spaces()
        yield from unread.expect(self.before)
        calls.begin((yield from unread.before(["{"])).strip())
        yield from _written(unread, calls, ":", "}", self._converted, self.quote)
        yield from self.close(unread)

    def _converted(self, text: str) -> Any:
        """The value of an argument. Raises FormatError."""
        inner = Unread()
        inner.text, inner.ended = text, True
        try:
            next(reading := _keyed_value(inner, self.quote))
        except StopIteration as done:
            return done.value
        reading.close()
        raise FormatError("a value has no end")

    @property
    def marks(self) -> Iterator[str]:
        yield from super().marks
        yield self.quote

    def terms(self, tool: Tool) -> Sequence[Term]:
        return [f"{self.opens[0]}{self.before}{tool.name}{{", *_parameters(tool, self._parameter), "}" + self.closes]

    def _parameter(self, key: str, schema: Any, first: bool) -> Sequence[Placed]:
        head = f"{'' if first else ','}{key}:"
        if (texts := _choices(schema)) is not None and "string" in _types(schema):
            return [head + self.quote, Alternatives(texts), self.quote]
        if not _is_text(schema):
            return [head, Schema(schema)]
        return [head + self.quote, FreeText(self.quote)]


def _written(
    unread: Unread, calls: CallWriter, equals: str, ends: str, value: Callable[[str], Any], quote: str = ""
) -> Reading[None]:
    """Arguments with their names, up to what ``ends`` them; each is told once it is whole."""
    count = 0
    while True:
        yield from unread.spaces()
        if (yield from unread.found(ends)):
            calls.argue("}" if count else "{}")
            return
        key = (yield from unread.before([equals])).strip().strip("\"'")
        given = value((yield from _balanced(unread, "," + ends, quote)).strip())
        head = ("{" if not count else ", ") + json.dumps(key, ensure_ascii=False)
        calls.argue(f"{head}: {json.dumps(given, ensure_ascii=False)}")
        count += 1
        yield from unread.found(",")


def _balanced(unread: Unread, ends: str, quote: str) -> Reading[str]:
    """Text up to one of these characters outside of brackets and quotes. Raises FormatError where it has no end."""
    start, depth = unread.at, 0
    while character := (yield from unread.peek()):
        if not depth and character in ends:
            return unread.text[start : unread.at]
        if quote and (yield from unread.found(quote)):
            yield from unread.before([quote])
            continue
        unread.at += 1
        if character in "\"'" and not (quote and character == "'"):
            yield from _quoted(unread, character)
        depth += (character in "([{") - (character in ")]}")
    raise FormatError("a value has no end")


def _quoted(unread: Unread, quote: str) -> Reading[None]:
    """Read to the end of a string that was begun."""
    while character := (yield from unread.peek()):
        unread.at += 1
        if character == "\\":
            yield from unread.peek()
            unread.at += 1
        elif character == quote:
            return


def _python(text: str) -> Any:
    """A value as Python or JSON writes it. Raises FormatError."""
    for read in (ast.literal_eval, json.loads):
        try:
            value = read(text)
            json.dumps(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return value
    raise FormatError(f"{text[:40]!r} is no value")


def _keyed_value(unread: Unread, quote: str) -> Reading[Any]:
    yield from unread.spaces()
    if (yield from unread.found(quote)):
        return (yield from unread.before([quote]))
    if (yield from unread.found("[")):
        items: list[Any] = []
        while not (yield from unread.found("]")):
            items.append((yield from _keyed_value(unread, quote)))
            yield from unread.spaces()
            yield from unread.found(",")
        return items
    if (yield from unread.found("{")):
        found: dict[str, Any] = {}
        while not (yield from unread.found("}")):
            key = yield from _key(unread, quote)
            found[key] = yield from _keyed_value(unread, quote)
            yield from unread.spaces()
            yield from unread.found(",")
            yield from unread.spaces()
        return found
    return (yield from whole_json(unread))


def _key(unread: Unread, quote: str) -> Reading[str]:
    if (yield from unread.found(quote)):
        key = yield from unread.before([quote])
        yield from unread.before([":"])
        return key
    return (yield from unread.before([":"])).strip().strip('"')
