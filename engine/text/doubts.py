"""Requirements of a model's chat template that its tokenizer does not meet, told once when the model is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import nodes
from jinja2.exceptions import TemplateError

from engine.text.sandbox import MAX_SOURCE, Sandbox
from engine.text.template import ChatTemplate, PromptError
from engine.text.tokenizer import Tokenizer

CUT_UP = (
    "The chat template of {name} writes {marks}, which its tokenizer cuts into several tokens, so that the model does "
    "not read the chat as it was trained to. Download the tokenizer's files again, or choose another version of the "
    "model."
)
NO_VALUE = (
    "The chat template of {name} writes {names}, and none of the model's files says which text that is, so nothing is "
    "written there. If its answers are poor, download the model's small files again, or choose another version of it."
)
_MARK = re.compile(r"<[^<>\s{}'\"]{1,80}>|\[/?[A-Za-z_]*[A-Z][A-Za-z0-9_]*\]")
"""Marks of turns in chats: <|im_start|>, <start_of_turn>, <｜User｜>, [INST]. Jinja's own brackets are not of it."""
_SHOWN = 3
"""Names that a notice lists."""


def chat_doubts(tokenizer: Tokenizer, template: ChatTemplate, name: str) -> Iterator[str]:
    """Sentences about the chat template of the model ``name``."""
    if not template.own:
        return
    cut = [mark for mark in dict.fromkeys(_MARK.findall(template.source)) if _cut_up(tokenizer, mark)]
    if cut:
        yield CUT_UP.format(name=name, marks=_listed(cut))
    lacking = missing_tokens(template)
    if lacking:
        yield NO_VALUE.format(name=name, names=_listed(lacking))


def _cut_up(tokenizer: Tokenizer, mark: str) -> bool:
    """Return True if a mark of the vocabulary does not become its token."""
    number = tokenizer.token_id(mark)
    try:
        return number is not None and tokenizer.encode(mark, special=False) != [number]
    except PromptError:
        return True


def missing_tokens(template: ChatTemplate) -> list[str]:
    """The names of tokens that a template prints without asking whether they are there, and that have no text."""
    if len(template.source) > MAX_SOURCE:
        return []
    try:
        tree = Sandbox().parse(template.source)
    except (TemplateError, RecursionError):
        return []  # what is wrong with it is told when it is used
    asked = {name for test in _questions(tree) for name in _names(test, "load")}
    given = {*template.special_tokens, *_names(tree, "store"), *_names(tree, "param")}
    printed = (name for output in tree.find_all(nodes.Output) for name in _names(output, "load"))
    return [name for name in dict.fromkeys(printed) if name.endswith("_token") and name not in given | asked]


def _questions(tree: nodes.Node) -> Iterator[nodes.Node]:
    """The parts of a template that look at a value and need not print it."""
    for node in tree.find_all((nodes.If, nodes.CondExpr, nodes.Test, nodes.Filter, nodes.Or, nodes.And)):
        match node:
            case nodes.If() | nodes.CondExpr():
                yield node.test
            case nodes.Test():
                yield node.node
            case nodes.Or() | nodes.And():
                yield node.left
            case nodes.Filter(name="default" | "d", node=nodes.Node() as value):
                yield value


def _names(node: nodes.Node, context: str) -> Iterator[str]:
    found = node.find_all(nodes.Name) if not isinstance(node, nodes.Name) else (node, *node.find_all(nodes.Name))
    return (name.name for name in found if name.ctx == context)


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
