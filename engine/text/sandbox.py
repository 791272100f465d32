"""The jinja2 environment that chat templates run in.

A template comes with a model, from strangers: it runs in jinja2's immutable sandbox, without a loader, and within the
bounds of :mod:`engine.text.bounds`. What templates may use besides jinja2's own is what transformers gives them:
``raise_exception``, ``strftime_now``, ``tojson`` without HTML escapes, ``break``/``continue``, ``generation`` blocks.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, cast

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engine.text.bounds import MAX_SIZE, RenderBudget
from engine.text.filters import REMOVED, bounded_filters

MAX_SOURCE = 1 << 16
"""Characters of a template; the longest in use have 30,000."""

_REFUSED_METHODS = {
    str: frozenset(["translate", "maketrans", "encode"]),
    int: frozenset(["to_bytes", "from_bytes"]),
}
_JINJAS_OWN = ("_loop_vars", "_block_vars")
"""Arguments that a compiled template adds to its calls."""
_MAX_EXPONENT = 1_000
_WIDE_BRACES = re.compile(r"\{[^{}]*\{|\{[^{}:]*:[^{}]*\d{4}")


class TemplateRefused(TemplateError):  # noqa: N818 - an outcome that a person is told about
    """The template called ``raise_exception``; the message is the template's own."""


class Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's immutable sandbox with bounds."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
            cache_size=0,
            finalize=self._made,
        )
        self._now = threading.local()
        self._compiled: dict[str, Template] = {}
        for name in REMOVED:
            self.filters.pop(name, None)
        self.globals.pop("lipsum", None)
        self.filters.update(bounded_filters(self.filters, lambda: self._budget))
        self.filters.update(_counted=lambda items: _Counted(items, self._budget.step), _made=self._made)
        self.tests.update({name: self._ticking(test) for name, test in self.tests.items()})
        self.globals.update(raise_exception=_raise, strftime_now=_strftime_now, dict=_Dict(), namespace=_Namespace)

    def render_bounded(self, source: str, variables: dict[str, Any]) -> str:
        """Render a template. Raises jinja2's errors, SecurityError among them when a bound is reached."""
        if len(source) > MAX_SOURCE:
            raise SecurityError("it is too long")
        try:
            self._now.budget = RenderBudget()
            template = self._compiled.get(source) or self.from_string(source)
            self._compiled = {source: template}
            self._now.budget = RenderBudget()
            parts: list[str] = []
            length = 0
            for part in template.generate(variables):
                length += len(part)
                if length > MAX_SIZE:
                    raise SecurityError("its output does not end")
                parts.append(part)
            return "".join(parts)
        finally:
            self._now.budget = RenderBudget()  # the old one holds on to what the template made

    @property
    def _budget(self) -> RenderBudget:
        if not hasattr(self._now, "budget"):
            self._now.budget = RenderBudget()
        budget: RenderBudget = self._now.budget
        return budget

    def _made(self, value: Any) -> Any:
        return self._budget.made(value)

    def _ticking(self, test: Any) -> Callable[..., Any]:
        @functools.wraps(test)
        def ticking(*args: Any, **kwargs: Any) -> Any:
            self._budget.tick()
            return test(*args, **kwargs)

        return ticking

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = _filtered(loop.iter, "_counted")
        for concat in list(tree.find_all(nodes.Concat)):
            concat.nodes = [_filtered(node, "_made") for node in concat.nodes]
        return _with_counted_containers(tree)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Besides what jinja2 forbids: private names, and methods that make as much as they are told."""
        return not (attr.startswith("_") or _left_out(obj, attr)) and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """An error at once; jinja2's would come only from what is done with the value."""
        if _left_out(obj, attribute):
            raise SecurityError(f"it uses the method {attribute!r}, which Kvasir leaves out.")
        raise SecurityError(f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe.")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """jinja2's safe ``str.format``, which here also refuses widths and too long results."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        if _WIDE_BRACES.search(value.__self__):
            raise SecurityError("it formats text to a great width")

        @functools.wraps(wrapped)
        def bounded(*args: Any, **kwargs: Any) -> str:
            self._budget.filled(value.__self__, "{", *args, *kwargs.values())
            return wrapped(*args, **kwargs)

        return bounded

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        budget = __self._budget
        budget.step()
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str):
            named = {name: value for name, value in kwargs.items() if name not in _JINJAS_OWN}
            match getattr(__obj, "__name__", ""):
                case "join" if args:
                    args = (budget.joined(text, args[0]),)
                case "replace":
                    budget.replaced(text, *args, **named)
                case "split" | "rsplit":
                    budget.split(text, *args, **named)
                case "splitlines":
                    budget.split(text)
                case "center" | "ljust" | "rjust" | "zfill" if args:
                    budget.padded(text, args[0])
                case "expandtabs":
                    budget.repeated(text.count("\t") * " ", named.get("tabsize", args[0] if args else 8))
        return budget.made(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Bounds what a few characters of a template could blow up."""
        budget = self._budget
        match operator:
            case "*":
                budget.repeated(left, right)
            case "+":
                budget.fits(budget.size(left) + budget.size(right))
            case "**" if not isinstance(right, int | float) or abs(right) > _MAX_EXPONENT or abs(left) > 1e9:
                raise SecurityError("it computes too large a power")
            case "%" if isinstance(left, str):
                budget.formatted(left, right)
        return budget.made(super().call_binop(context, operator, left, right))


def _left_out(obj: Any, attribute: str) -> bool:
    return any(isinstance(obj, kind) and attribute in names for kind, names in _REFUSED_METHODS.items())


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno)


def _with_counted_containers(tree: nodes.Template) -> nodes.Template:
    """Let every list, tuple and dict that the template writes down be counted when it is made."""

    def visit(node: nodes.Node) -> None:
        for field, value in node.iter_fields():
            if isinstance(value, list):
                setattr(node, field, [counted(child) for child in value])
            elif isinstance(value, nodes.Node):
                setattr(node, field, counted(value))

    def counted(child: Any) -> Any:
        if not isinstance(child, nodes.Node):
            return child
        visit(child)
        written = isinstance(child, nodes.List | nodes.Dict) or (isinstance(child, nodes.Tuple) and child.ctx == "load")
        return _filtered(child, "_made") if written else child

    visit(tree)
    return tree


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

    def __repr__(self) -> str:
        return "<Namespace>"  # its values may be namespaces, and those again


def _raise(message: object) -> None:
    raise TemplateRefused(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
