"""Constrained output: every mask against a definition by brute force, and answers against the jsonschema library."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from engine.library.paths import bundled_folder
from engine.protocol import StructuredOutput
from engine.text.channels import TagPair, TagParser
from engine.text.grammar import (
    MAX_SOURCE,
    MAX_TOOL,
    AllowedTokens,
    GrammarConstraint,
    GrammarError,
    Grammars,
    lark_of,
    lark_problem,
)
from engine.text.tokenizer import Tokenizer
from tests.kit.examples import examples

TOKENIZER = Tokenizer.open(bundled_folder() / "kvasir-guide")
VOCABULARY = TOKENIZER.vocabulary + 70
"""Models have more rows than tokens."""
END = 2
GRAMMARS = Grammars(TOKENIZER, [END, 0], VOCABULARY)
PIECES = {token: piece for token in range(TOKENIZER.vocabulary) if (piece := TOKENIZER.id_to_bytes(token))}
THINK, DONE = 0, 1
"""Tokens that stand for tags here: any special ones do."""
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", 3, None]}, "maxItems": 2},
        "inner": {"$ref": "#/$defs/inner"},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
    "$defs": {"inner": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}},
}
SCHEMAS: list[Any] = [
    PERSON,
    {"type": "array", "items": {"type": "number", "minimum": -2, "maximum": 2}, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"const": "a text"}, {"type": "string", "pattern": "^[0-9]{3}-[a-f]{2}$"}, {"type": "null"}]},
    {
        "type": "object",
        "patternProperties": {"^[a-c]{1,3}$": {"type": "integer", "maximum": 9, "minimum": 0}},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    {"type": "string", "format": "date"},
    {
        "type": "object",
        "properties": {"format": {"anyOf": [{"type": "null", "format": "x"}, {"type": "boolean"}]}},
        "required": ["format"],
        "additionalProperties": False,
    },
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]},
    {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "null"}}}},
        "required": ["a"],
    },
    {
        "type": "object",
        "allOf": [
            {"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"properties": {"b": {"type": "null"}}, "required": ["b"], "additionalProperties": True},
        ],
        "maxProperties": 2,
    },
]


def schema(given: Any) -> StructuredOutput:
    return StructuredOutput("json_schema", json.dumps(given))


def constraint(
    asked: StructuredOutput, channels: TagParser | None = None, opens: Sequence[int] = ()
) -> GrammarConstraint:
    return GRAMMARS.compile(asked).constraint(0, channels, opens)


def listed(allowed: AllowedTokens | None) -> list[int]:
    assert allowed is not None
    found: list[int] = np.flatnonzero(np.unpackbits(allowed.words.view(np.uint8), bitorder="little")).tolist()
    return found


def tokens_of(allowed: AllowedTokens | None) -> set[int]:
    return set(listed(allowed))


def walk(made: GrammarConstraint, chance: random.Random, most: int = 200) -> list[int]:
    """An answer drawn from what is allowed, each token alike; it ends when it may."""
    tokens: list[int] = []
    while len(tokens) < most:
        may = listed(made.allowed(tokens))
        assert may
        tokens.append(END if END in may else chance.choice(may))
        if tokens[-1] in (END, 0):
            return tokens
    raise AssertionError(f"no end after {most} tokens: {TOKENIZER.decode(tokens)!r}")


@examples(60)
@given(st.lists(st.text('abé "\\\n{😀', min_size=1, max_size=7), min_size=1, max_size=4), st.randoms())
def test_a_choice_allows_what_begins_one_of_its_texts(choices: list[str], chance: random.Random) -> None:
    made = constraint(StructuredOutput("choice", json.dumps(choices)))
    wanted = {choice.encode() for choice in choices}
    tokens: list[int] = []
    written = b""
    while True:
        left = [each.removeprefix(written) for each in wanted if each.startswith(written)]
        begins = {token for token, piece in PIECES.items() if any(rest.startswith(piece) for rest in left)}
        begins |= {END, 0} if b"" in left else set()
        may = tokens_of(made.allowed(tokens))
        if len({rest[:1] for rest in left}) > 1:
            assert may == begins
        else:  # where only one byte may come next, it is written as the tokenizer would
            assert may
            assert may <= begins
        tokens.append(chance.choice(sorted(may)))
        if tokens[-1] in (END, 0):
            break
        written += TOKENIZER.id_to_bytes(tokens[-1])
    assert written in wanted


@pytest.mark.parametrize("asked", SCHEMAS, ids=range(len(SCHEMAS)))
@examples(40)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_drawn_is_valid(asked: Any, seed: int) -> None:
    tokens = walk(constraint(schema(asked)), random.Random(seed))
    jsonschema.validate(json.loads(TOKENIZER.decode(tokens)), asked)


@examples(40)
@given(st.integers(0, 2**32), st.integers(0, 5), st.lists(st.integers(0, TOKENIZER.vocabulary - 1), max_size=4))
def test_a_drafted_path_is_as_if_it_were_written(seed: int, known: int, more: list[int]) -> None:
    answer = walk(constraint(schema(PERSON)), random.Random(seed))
    made = constraint(schema(PERSON))
    before, path = answer[:known], answer[known : known + 3]
    for end in range(len(path) + 1):
        there = made.allowed(before, path[:end])
        assert tokens_of(there) == tokens_of(constraint(schema(PERSON)).allowed([*before, *path[:end]]))
    drafted = made.allowed(before, [*path, *more])
    written: list[int] = [*before, *path]
    for token in more:
        if token not in tokens_of(constraint(schema(PERSON)).allowed(written)) or written[-1:] == [END]:
            assert drafted is None, "nothing comes of what follows a token that is not allowed"
            break
        written.append(token)
    assert tokens_of(made.allowed(before)) == tokens_of(constraint(schema(PERSON)).allowed(before)), "it is undone"


@examples(20)
@given(st.integers(0, 2**32))
def test_forced_tokens_are_the_only_ones(seed: int) -> None:
    answer = walk(constraint(schema(PERSON)), random.Random(seed))
    made = constraint(schema(PERSON))
    most = 0
    for known in range(len(answer)):
        forced = made.forced(answer[:known])
        for place, token in enumerate(forced):
            assert tokens_of(made.allowed(answer[:known], forced[:place])) == {token}
        most = max(most, len(forced))
    assert most > 2, "keys have several tokens"


def test_only_the_end_is_left_at_the_end() -> None:
    made = constraint(StructuredOutput("choice", '["a"]'))
    (letter,) = TOKENIZER.encode("a", special=False)
    found = made.allowed([]), made.allowed([], [letter]), made.allowed([letter])
    assert [each is not None and each.ends for each in found] == [False, True, True]
    assert tokens_of(found[1]) == {END, 0}
    assert made.allowed([letter], [END]) is None
    assert made.failed == ""


def test_thinking_is_free_and_the_content_after_it_is_not() -> None:
    style = ([TagPair("<think>", "</think>")], None, False, {THINK: "<think>", DONE: "</think>"})
    yes = StructuredOutput("choice", '["yes"]')
    text = TOKENIZER.encode("anything { at all", special=False)
    start = tokens_of(constraint(yes).allowed([]))
    made = constraint(yes, TagParser(*style), [THINK])
    assert tokens_of(made.allowed([])) == start | {THINK}
    assert made.allowed([], [THINK]) is None
    assert made.allowed([], [THINK, *text]) is None
    assert tokens_of(made.allowed([], [THINK, *text, DONE])) == start
    assert made.allowed([THINK, *text]) is None
    assert tokens_of(made.allowed([THINK, *text], [DONE])) == start
    assert tokens_of(made.allowed([THINK, *text, DONE])) == start
    without = constraint(yes, TagParser(*style), [THINK])
    first = min(start)
    assert THINK not in tokens_of(without.allowed([first]))
    opened = constraint(yes, TagParser(style[0], style[0][0], False, style[3]))
    assert opened.allowed([]) is None
    assert tokens_of(opened.allowed([*text, DONE])) == start


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (schema({"type": "objekt"}), "The JSON schema cannot be served at #: Invalid type: objekt."),
        (
            schema({"properties": {"a": {"items": {"type": "array", "uniqueItems": True}}}}),
            'at #/properties/a/items: Unimplemented keys: ["uniqueItems"].',
        ),
        (schema({"anyOf": [{}, {"not": {}}]}), 'at #/anyOf/1: Unimplemented keys: ["not"].'),
        (schema({"$defs": {"b": {"pattern": "("}}, "$ref": "#/$defs/b"}), "at #/$defs/b: unclosed group."),
        (schema({"$ref": "https://example.org/schema.json"}), "retrieving it failed"),
        (schema({"type": "integer", "minimum": 4, "maximum": 3}), "Unsatisfiable schema"),
        (schema(False), "Unsatisfiable schema"),
        (StructuredOutput("json_schema", "{"), "The JSON schema cannot be read:"),
        (StructuredOutput("json_schema", "[" * 100_000), "The JSON schema cannot be read:"),
        (StructuredOutput("json_schema", " " * (MAX_SOURCE + 1)), "has 1,048,577 characters"),
        (StructuredOutput("regex", "(a"), "The regular expression cannot be served: unclosed group."),
        (StructuredOutput("grammar", "start: other"), 'The grammar cannot be served: at 1(8): unknown name: "other".'),
        (StructuredOutput("grammar", "\0?"), "The grammar cannot be read: Expected name at line 1"),
        (StructuredOutput("choice", "[]"), "The list of choices cannot be read: it is empty."),
    ],
    ids=lambda value: value.kind if isinstance(value, StructuredOutput) else "",
)  # fmt: skip
def test_what_cannot_be_served_is_refused_with_its_place(asked: StructuredOutput, told: str) -> None:
    with pytest.raises(GrammarError) as refused:
        GRAMMARS.compile(asked)
    assert told in str(refused.value)


def test_large_ones_are_served() -> None:
    deep: Any = {"type": "string"}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    wide = {"type": "object", "properties": {f"key{n}": {"type": "string"} for n in range(200)}}
    recursive = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
    for asked in (schema(deep), schema(wide), schema(recursive), StructuredOutput("regex", "((a{1,99}){1,99}){1,99}")):
        assert tokens_of(constraint(asked).allowed([]))


def test_thousands_of_rules_that_name_each_other_end_no_process() -> None:
    rules = "\n".join(f'r{n}: "a" r{n + 1}?' for n in range(5000))
    source = f'start: r0\n{rules}\nr5000: "x"'
    assert tokens_of(constraint(StructuredOutput("grammar", source)).allowed([]))
    inner = {f"r{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/r{n + 1}"}}} for n in range(2000)}
    assert lark_problem("\n".join(["start: r0", *(f"r{n}: r{n + 1}" for n in range(4500)), 'r4500: "x"'])) == ""
    chain = {"$ref": "#/$defs/r0", "$defs": {**inner, "r2000": {"type": "string"}}}
    assert tokens_of(constraint(schema(chain)).allowed([]))


def test_the_grammar_of_a_tool_is_checked() -> None:
    assert lark_problem("x" * (MAX_TOOL + 1)) == "it has 65,537 characters, and at most 65,536 are read."
    assert lark_problem('start: "a" b\n') == 'at 1(8): unknown name: "b".'
    for expression, text in ((r"a/b\/c\\/", "a/b/c\\/"), ("a\nb", "a\nb")):
        assert lark_problem(lark_of(expression)) == ""
        made = constraint(StructuredOutput("grammar", lark_of(expression)))
        assert TOKENIZER.decode(made.forced([])) == text


def test_a_regular_expression_that_explodes_says_so_in_a_line() -> None:
    made = constraint(StructuredOutput("regex", "(.{1,500}){1,500}z"))
    ids = TOKENIZER.encode("the pages of the cache " * 20, special=False)
    for known in range(len(ids)):
        made.allowed(ids[:known])
    assert made.failed == "lexer error: too many expressions constructed"


def test_a_vocabulary_that_cannot_write_it() -> None:
    inner = Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "end": 2}, unk_token="b")))
    grammars = Grammars(inner, [2], 3)
    assert tokens_of(grammars.compile(StructuredOutput("regex", "ac?")).constraint(0, None).allowed([])) == {0}
    stuck = grammars.compile(StructuredOutput("regex", "ac")).constraint(0, None)
    stuck.allowed([], [0])
    assert not stuck.failed, "nobody has taken the path that goes nowhere"
    stuck.allowed([0, 1])
    assert stuck.failed, "b is no c"


def test_other_forms_of_a_grammar() -> None:
    for source in ('start: "a" "b"*', 'root ::= "a" b\nb ::= "" | "b" b'):
        made = constraint(StructuredOutput("grammar", source))
        assert TOKENIZER.decode([min(tokens_of(made.allowed([])))]).startswith("a")
    walked = walk(constraint(StructuredOutput("regex", "[0-9]{4}|x")), random.Random(1))
    assert TOKENIZER.decode(walked) in {"x", *map("{:04}".format, range(10_000))}
    any_object = constraint(StructuredOutput("json_object"))
    assert tokens_of(any_object.allowed([])) <= {t for t in range(VOCABULARY) if TOKENIZER.id_to_bytes(t)[:1] == b"{"}
