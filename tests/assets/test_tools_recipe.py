"""The recipe of the model that calls tools: its conversations, what of them is learned, and the files that it wrote."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import ChatMessage, ToolCall
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
FOLDER = DEMO / "kvasir-tools"


@pytest.fixture(scope="module")
def recipe() -> Iterator[Any]:
    before = set(sys.modules)
    sys.path.insert(0, str(DEMO))
    yield importlib.import_module("tools")
    sys.path.remove(str(DEMO))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(DEMO)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def tokenizer(recipe: Any) -> Any:
    return recipe.make_tokenizer()


def test_the_files_are_the_recipes(recipe: Any, tokenizer: Any) -> None:
    assert json.loads((FOLDER / "tokenizer.json").read_text("utf-8")) == json.loads(tokenizer.to_str())
    assert (FOLDER / "chat_template.jinja").read_text("utf-8") == recipe.TEMPLATE
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    assert config["vocab_size"] == recipe.VOCABULARY >= tokenizer.get_vocab_size()


def test_only_tools_that_are_offered_are_called_with_what_was_asked(recipe: Any) -> None:
    writer, calls, words = recipe.Writer(7), 0, set()
    for tools, messages in (writer.conversation() for _ in range(100)):
        for before, message in itertools.pairwise(messages):
            for call in message.calls:
                assert call.name in {tool.name for tool in tools}
                given = json.loads(call.arguments)
                assert list(given) == list(recipe.TOOLS[call.name])
                assert all(str(value) in before.content for value in given.values())
                calls += 1
            words |= {message.content} & {recipe.NO_TOOL, *recipe.TALK}
    assert calls > 50
    assert recipe.NO_TOOL in words
    assert len(words) > 3


def test_what_is_learned_is_what_the_model_has_to_say(recipe: Any, tokenizer: Any) -> None:
    template, writer = ChatTemplate(recipe.TEMPLATE), recipe.Writer(8)
    text = recipe.text_of(template, *max((writer.conversation() for _ in range(20)), key=lambda made: len(made[1])))
    ids, wanted = recipe.row(tokenizer, text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert ids == tokenizer.encode(text).ids
    told = tokenizer.decode([id for id in wanted if id != recipe.IGNORED], skip_special_tokens=False)
    turns = [turn.split(recipe.STOP)[0] for turn in text.split(recipe.ASSISTANT)[1:]]
    assert len(turns) > 1
    assert told == "".join(turn + recipe.STOP for turn in turns)


def test_a_name_is_the_same_tokens_wherever_it_stands(recipe: Any) -> None:
    shipped = Tokenizer.open(FOLDER)
    call = ChatMessage.of("assistant", "", calls=[ToolCall("0", "weather", '{"city": "Basel"}')])
    text = ChatTemplate.open(FOLDER).render([ChatMessage.of("user", "Weather in Basel"), call])
    ids, name = shipped.encode(text, special=True), shipped.encode("Basel")
    assert [ids[at : at + len(name)] for at in range(len(ids))].count(name) == 2
