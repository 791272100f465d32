"""The errors that a person may be shown, held as they are: one that is lost or reworded is noticed.

``python -m tests.test_user_facing_errors`` writes tests/user_facing_errors.json anew, for a change that is meant.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

import engine.loading.techniques  # noqa: F401  (fills the catalogue, whose refusals count)
from engine.catalogue import exclusions
from tests.kit.content import statements

ROOT = Path(__file__).parents[1]
HELD = Path(__file__).with_name("user_facing_errors.json")
Names = ChainMap[str, list[ast.expr]]
"""What is assigned to each name, anywhere in a function or at the top of any file; what a function returns."""


@functools.cache
def found() -> dict[str, list[str]]:
    """Codes (and fields at fault), sentences of the catalogue, and those that errors are raised or sent with."""
    files = [ast.parse(path.read_text()) for folder in ("engine", "app") for path in (ROOT / folder).rglob("*.py")]
    defined = [node for tree in files for node in statements(tree)]
    kinds = {"Error", *(node.name for node in defined if isinstance(node, ast.ClassDef) and _raised(node))}
    constants = _assigned(node for tree in files for node in tree.body)
    strings = set()
    for function in (node for node in defined if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        nodes = list(ast.walk(function))
        calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") in kinds]
        names = ChainMap(_assigned(nodes) if calls else {}, constants)
        for call in calls:
            for value in (*call.args, *(keyword.value for keyword in call.keywords)):
                strings |= set(_texts(value, names))
    rules = (*exclusions.EXCLUSIONS, *exclusions.SHAPES)
    declared = {rule.reason for rule in rules} | set(exclusions.MISSING.values())
    declared |= {exclusions.ODD_WIDTH, exclusions.NO_WINDOW_OVER_KIND, exclusions.NO_WINDOW}
    return {
        "codes": sorted(text for text in strings if text.replace("_", "").isalpha() and text.islower()),
        "catalogue": sorted(declared),
        "errors": sorted(text for text in strings - declared if " " in text.strip()),
    }


def _raised(node: ast.ClassDef) -> bool:
    """Whether it is an exception of Kvasir's own; Python's say something to a programmer."""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return any(base.endswith(("Error", "Exception", "Failed")) for base in bases)


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values[target.id].append(node.value)
        elif isinstance(node, ast.NamedExpr):
            values[node.target.id].append(node.value)
        elif isinstance(node, ast.FunctionDef):
            values[node.name] += [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
    return dict(values)


def _texts(value: ast.expr, names: Names) -> Iterator[str]:
    """The strings that an expression may be, with ``{}`` for each value that is put in."""
    match value:
        case ast.Constant(value=str() as text):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.Call(func=ast.Name(id="tr"), args=[text, *_]):
            yield from (re.sub(r"\{.*?\}", "{}", each) for each in _texts(text, names))
        case ast.Call(func=ast.Name(id="plural"), args=[one, many, *_]):
            yield from (re.sub(r"\{.*?\}", "{}", each) for text in (one, many) for each in _texts(text, names))
        case ast.IfExp(body=one, orelse=other):
            yield from chain(_texts(one, names), _texts(other, names))
        case ast.BoolOp(values=parts) | ast.Dict(values=parts):
            yield from chain.from_iterable(_texts(part, names) for part in parts)
        case ast.Call(func=ast.Name(id="tr" | "plural"), args=written):
            for each in written:
                yield from (re.sub(r"{[^{}]*}", "{}", text) for text in _texts(each, names))
        case ast.Call(func=ast.Attribute(value=text)):
            yield from _texts(text, names)
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            others = names.new_child({name: []})
            yield from chain.from_iterable(_texts(each, others) for each in names.get(name, []))


@pytest.mark.slow
def test_no_error_is_lost_or_reworded() -> None:
    held = json.loads(HELD.read_text(encoding="utf-8"))
    for part, texts in found().items():
        gone, come = set(held[part]) - set(texts), set(texts) - set(held[part])
        assert (gone, come) == (set(), set()), f"{part}: if it is meant, run python -m tests.test_user_facing_errors"


def test_every_reason_of_the_catalogue_is_a_sentence() -> None:
    for text in found()["catalogue"]:
        assert text[0].isupper() or text[0] == "{", text
        assert text.endswith("."), text


if __name__ == "__main__":
    HELD.write_text(json.dumps(found(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
