"""jinja2's filters within the bounds of a rendering."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.exceptions import SecurityError

from engine.text.bounds import MAX_SIZE, RenderBudget

REMOVED = ("random", "urlize", "xmlattr")
"""Filters that make text for web pages, or without order, and that no chat template needs."""
_MAX_DIGITS = 300
_MAX_INDENT = 64
_MAX_SLOW = 1 << 14
"""Characters of what filters take that may need the square of that."""

_LISTED = ("batch", "slice")
"""Filters that make list after list, which here are made at once, so that they can be counted."""

Filter = Callable[..., Any]


def bounded_filters(filters: Mapping[str, Any], budget: Callable[[], RenderBudget]) -> dict[str, Filter]:
    """``filters``, each counting what it makes, and those asking first that could make much of little."""

    def asking(name: str, ask: Filter) -> Filter:
        inner: Filter = filters[name]
        if name not in _LISTED:
            return functools.wraps(inner)(lambda *args, **kwargs: inner(*ask(*args, **kwargs)))
        return functools.wraps(inner)(lambda *args, **kwargs: list(inner(*ask(*args, **kwargs))))

    # Arguments are called as jinja2 calls them, since templates may name them.
    def join(context: Any, value: Any, d: Any = "", attribute: Any = None) -> tuple[Any, ...]:
        return context, budget().joined(str(d), value), d, attribute

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
            raise SecurityError("it sums what is not a number")
        return environment, items, attribute, start

    def rounded(value: Any, precision: Any = 0, method: Any = "common") -> tuple[Any, ...]:
        if abs(precision) > _MAX_DIGITS:
            raise SecurityError("it rounds to too many digits")
        return value, precision, method

    percent: Filter = filters["format"]

    def format_(value: Any, *args: Any, **kwargs: Any) -> Any:
        budget().formatted(str(value), *args, *kwargs.values())
        return percent(value, *args, **kwargs)

    def center(value: Any, width: int = 80) -> tuple[Any, ...]:
        budget().padded(str(value), width)
        return value, width

    def batch(value: Any, linecount: int, fill_with: Any = None) -> tuple[Any, ...]:
        if fill_with is not None:
            budget().repeated([fill_with], linecount)
        return budget().joined("", value), linecount, fill_with

    def slice_(context: Any, value: Any, slices: int, fill_with: Any = None) -> tuple[Any, ...]:
        budget().repeated([[fill_with]], slices)
        return context, budget().joined("", value), slices, fill_with

    def wordwrap(environment: Any, s: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        wrap = kwargs.get("wrapstring", args[2] if len(args) > 2 else None)
        budget().fits(len(*slow(s)) * (1 + len(wrap or "")))
        named = {"width": 79, "break_long_words": True, "wrapstring": None, "break_on_hyphens": True}
        given = dict(zip(named, args, strict=False)) | kwargs
        return environment, s, *(named | given).values()

    def slow(value: Any) -> tuple[Any, ...]:
        if budget().size(value) > _MAX_SLOW:
            raise SecurityError("it changes too long a text")
        return (value,)

    asked: dict[str, Filter] = {
        "batch": batch,
        "center": center,
        "pprint": slow,
        "slice": slice_,
        "striptags": slow,
        "wordwrap": wordwrap,
        "join": join,
        "replace": replace,
        "indent": indent,
        "list": to_list,
        "sum": total,
        "round": rounded,
    }
    every = {**filters, **{name: asking(name, ask) for name, ask in asked.items()}, "format": format_}
    every["tojson"] = tojson
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
