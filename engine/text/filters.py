"""jinja2's filters within the bounds of a rendering."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.exceptions import SecurityError

from engine.text.bounds import MAX_SIZE, RenderBudget

REMOVED = ("batch", "center", "format", "pprint", "random", "slice", "striptags", "urlize", "wordwrap", "xmlattr")
"""Filters that make as much as they are told, or text without order, and that no chat template needs."""
_MAX_DIGITS = 300
_MAX_INDENT = 64

Filter = Callable[..., Any]


def bounded_filters(filters: Mapping[str, Any], budget: Callable[[], RenderBudget]) -> dict[str, Filter]:
    """``filters``, each counting what it makes, and those asking first that could make much of little."""

    def asking(name: str, ask: Filter) -> Filter:
        inner: Filter = filters[name]
        return functools.wraps(inner)(lambda *args, **kwargs: inner(*ask(*args, **kwargs)))

    def join(context: Any, items: Any, separator: Any = "", attribute: Any = None) -> tuple[Any, ...]:
        return context, budget().joined(str(separator), items), separator, attribute

    def replace(context: Any, text: Any, old: Any, new: Any, count: Any = None) -> tuple[Any, ...]:
        budget().replaced(str(text), old, new, count)
        return context, text, old, new, count

    def indent(text: str, width: Any = 4, first: bool = False, blank: bool = False) -> tuple[Any, ...]:
        wide = width if isinstance(width, int) else len(width)
        budget().fits(len(text) + wide * (1 + len(text.splitlines())))
        return text, width, first, blank

    def to_list(context: Any, items: Any) -> tuple[Any, ...]:
        return context, budget().joined("", items)

    def total(environment: Any, items: Any, attribute: Any = None, start: Any = 0) -> tuple[Any, ...]:
        if not isinstance(start, int | float):
            raise SecurityError("it sums what is no number")
        return environment, items, attribute, start

    def rounded(value: Any, precision: Any = 0, method: Any = "common") -> tuple[Any, ...]:
        if abs(precision) > _MAX_DIGITS:
            raise SecurityError("it rounds to too many digits")
        return value, precision, method

    asked: dict[str, Filter] = {
        "join": join,
        "replace": replace,
        "indent": indent,
        "list": to_list,
        "sum": total,
        "round": rounded,
    }
    every = {**filters, **{name: asking(name, ask) for name, ask in asked.items()}, "tojson": tojson}
    return {name: _counting(inner, budget) for name, inner in every.items()}


def _counting(inner: Filter, budget: Callable[[], RenderBudget]) -> Filter:
    @functools.wraps(inner)
    def counting(*args: Any, **kwargs: Any) -> Any:
        budget().tick()
        return budget().made(inner(*args, **kwargs))

    return counting


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers' templates get it, without HTML escapes."""
    wide = indent if isinstance(indent, int) else len(indent or "")
    if wide > _MAX_INDENT or sum(map(len, separators or ())) > _MAX_INDENT:
        raise SecurityError("it writes JSON to a great width")
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None:
        return encoder.encode(value)
    parts, length = [], 0
    for part in encoder.iterencode(value):  # deep values take more indentation than text
        length += len(part)
        if length > MAX_SIZE:
            raise SecurityError("it makes too large a text or list")
        parts.append(part)
    return "".join(parts)
