"""The jinja2 environment that chat templates run in.

A template comes with a model, from strangers: it runs in jinja2's immutable sandbox, without a loader, and with bounds
on loops, calls, repetition and output. What templates may use besides jinja2's own is what transformers gives them:
``raise_exception``, ``strftime_now``, ``tojson`` without HTML escapes, ``break``/``continue``, ``generation`` blocks.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_SPENDING = 200_000
"""Loop iterations and calls of one rendering, together."""
MAX_OUTPUT = 16 * 1024 * 1024
"""Characters, of the output and of any text made on the way."""

_GROWING_METHODS = frozenset(["center", "ljust", "rjust", "zfill", "expandtabs", "translate"])
_GROWING_FILTERS = ("center", "format", "wordwrap", "urlize", "pprint", "xmlattr", "random")
_MAX_EXPONENT = 1_000
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\*|\d{4,})")
_WIDE_BRACES = re.compile(r"\{[^{}]*(\{|:[^{}]*\d{4,})")


class Refused(TemplateError):  # noqa: N818 - an outcome that a person is told about
    """The template called ``raise_exception``; the message is the template's own."""


class Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's immutable sandbox with bounds."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"], cache_size=0
        )
        self._left = threading.local()
        for name in _GROWING_FILTERS:
            self.filters.pop(name, None)
        self.globals.pop("lipsum", None)
        self.filters.update(tojson=_tojson, _counted=self._counted, _bounded=_bounded)
        self.globals.update(raise_exception=_raise, strftime_now=_strftime_now, dict=_Dict(), namespace=_Namespace)

    def render_bounded(self, source: str, variables: dict[str, Any]) -> str:
        """Render a template. Raises jinja2's errors, SecurityError among them when a bound is reached."""
        template = self.from_string(source)
        self._left.spending = MAX_SPENDING
        parts: list[str] = []
        length = 0
        for part in template.generate(variables):
            length += len(part)
            if length > MAX_OUTPUT:
                raise SecurityError("its output does not end")
            parts.append(part)
        return "".join(parts)

    def _spend(self) -> None:
        self._left.spending = getattr(self._left, "spending", MAX_SPENDING) - 1
        if self._left.spending < 0:
            raise SecurityError("it loops without end")

    def _counted(self, items: Any) -> Any:
        return _Counted(items, self._spend)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, "_counted", [], [], None, None, lineno=loop.lineno)
        for concat in list(tree.find_all(nodes.Concat)):
            inner = nodes.Concat(concat.nodes[:-1], lineno=concat.lineno) if len(concat.nodes) > 2 else concat.nodes[0]
            concat.nodes = [nodes.Filter(inner, "_bounded", [], [], None, None, lineno=concat.lineno), concat.nodes[-1]]
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Besides what jinja2 forbids: private names, and methods that make text as long as they are told."""
        if attr.startswith("_") or (isinstance(obj, str) and attr in _GROWING_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """jinja2's safe ``str.format``, which here also refuses widths."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and _WIDE_BRACES.search(value.__self__):
            raise SecurityError("it formats text to a great width")
        return wrapped

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self._spend()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Bounds what a few characters of a template could blow up."""
        match operator:
            case "*" if _repeated(left, right) > MAX_OUTPUT:
                raise SecurityError("it repeats a text too often")
            case "+" if hasattr(left, "__len__"):
                _bounded(left)
            case "**" if not isinstance(right, int | float) or abs(right) > _MAX_EXPONENT or abs(left) > 1e9:
                raise SecurityError("it computes too large a power")
            case "%" if isinstance(left, str) and _WIDE_PERCENT.search(left):
                raise SecurityError("it formats text to a great width")
        return super().call_binop(context, operator, left, right)


class _Counted:
    """An iterable that counts what is taken from it. Its length is known where the original's is."""

    def __init__(self, items: Any, spend: Callable[[], None]) -> None:
        self._items, self._spend = items, spend

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._spend()
            yield item

    def __len__(self) -> int:
        return len(self._items)


class _GenerationBlock(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the model's own words for training; here it is transparent."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Dict:
    """``dict`` without the type: nothing of Python hangs on it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


class _Namespace(Namespace):
    """jinja2's ``namespace``, which here refuses private names."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError("it sets a private attribute")
        super().__setitem__(name, value)


def _bounded(value: Any) -> Any:
    if hasattr(value, "__len__") and len(value) > MAX_OUTPUT:
        raise SecurityError("it makes too long a text")
    return value


def _repeated(left: Any, right: Any) -> int:
    """Length of ``left * right`` when one of them is a sequence, else 0."""
    if hasattr(left, "__len__") and isinstance(right, int):
        return len(left) * right
    if hasattr(right, "__len__") and isinstance(left, int):
        return len(right) * left
    return 0


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: object) -> None:
    raise Refused(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
