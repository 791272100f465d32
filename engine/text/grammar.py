"""Constrained output: which tokens may come next, so that an answer is what a schema, an expression or a grammar asks.

Masks are made by llguidance (Microsoft, MIT licence; https://github.com/guidance-ai/llguidance), an Earley parser over
derivatives of regular expressions. It was chosen by measurement, see docs/measurements.md.

A model may think before it answers: only what belongs to the content is constrained.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from engine.protocol import StructuredOutput
from engine.text.channels import ChannelParser
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

MAX_SOURCE = 1 << 20
"""Characters of a schema or grammar."""
MAX_TOOL = 1 << 16
"""Characters of the grammar of a tool, which is checked while others wait."""
ON_ONE_LINE: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON has one space after commas and colons, as Python writes it. Where more is allowed, a small model may write
nothing else, and where none need be, less of the text is known beforehand."""
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
"""Formats of texts that hold; others are notes."""
_TOGETHER = frozenset(["allOf", "anyOf", "oneOf"])
"""Keywords whose parts hold for the same value."""
_OPEN = _TOGETHER | {"additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties", "$ref"}
"""Keywords beside which an object may have further keys."""
MOST_TRIED = 200
"""Parts of a schema that are compiled to find the one that is refused."""
KEPT = 64
"""Grammars that are kept compiled, of one model."""
NO_TOKEN = "no token of this model goes on with it."
NO_TEXT = "no text holds to it."
_STOPPED = "NoExtensionBias"
"""What llguidance says of a grammar that has no sentences, such as a schema that refers to nothing but itself."""
T = TypeVar("T")
_STACKS = threading.Lock()
_SPECIAL = b"\xff"
"""Begins the name of a token without text, as llguidance wants it."""
STACK = 512 << 20
"""Bytes of stack with which a grammar is compiled. llguidance descends through rules that name each other, and the
process ends where it has no room: in 8 MiB, after some 2,000 of them."""
_TITLES = {
    "json_object": "The JSON object",
    "json_schema": "The JSON schema",
    "regex": "The regular expression",
    "choice": "The list of choices",
    "grammar": "The grammar",
}


class GrammarError(ValueError):
    """A schema or grammar that cannot be served; the message is a sentence for a person, with the place."""


class AllowedTokens(NamedTuple):
    """Tokens that may come next."""

    words: np.ndarray
    """[ceil(V / 32)] uint32, a bit for each token, the lowest one first."""
    ends: bool
    """True if nothing but the end of the answer may."""


class GrammarTokens(NamedTuple):
    """What a grammar knows of a model; its scores have ``rows``, which may be more than the tokenizer has tokens."""

    tokenizer: Tokenizer
    end_ids: Sequence[int]
    rows: int


class Grammars:
    """Grammars for one tokenizer. Safe to use from several threads at once."""

    def __init__(self, tokenizer: Tokenizer, end_ids: Sequence[int], vocabulary: int) -> None:
        """``vocabulary``: rows of the model's scores."""
        self._table, self.end_ids = GrammarTokens(tokenizer, end_ids, vocabulary), list(end_ids)
        self._lock = threading.Lock()
        self._kept: OrderedDict[StructuredOutput, Future[LLMatcher]] = OrderedDict()

    def compile(self, asked: StructuredOutput, at_once: bool = False) -> Grammar:
        """Compile what an answer has to be. Raises :class:`GrammarError`."""
        if len(asked.source) > MAX_SOURCE:
            text = f"{_TITLES[asked.kind]} has {len(asked.source):,} characters, and at most {MAX_SOURCE:,} are read."
            raise GrammarError(text)
        if not self.end_ids:
            raise GrammarError("This model has no token that ends an answer, so that no grammar can be served.")
        with self._lock:
            made = self._kept.get(asked)
            mine = made is None
            if made is None:
                made = self._kept[asked] = Future()
            self._kept.move_to_end(asked)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        if mine:  # requests with the same grammar wait, others do not
            try:
                made.set_result(_with_stack(lambda: self._compiled(asked)))
            except BaseException as error:
                made.set_exception(error)
                with self._lock:
                    self._kept.pop(asked, None)
        return Grammar(made.result(), self._table, at_once)

    @cached_property
    def _inner(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(
            TokenizerWrapper(_GuidanceTokens(self._table)), n_vocab=self._table.rows, eos_token=self.end_ids[0]
        )

    def _compiled(self, asked: StructuredOutput) -> LLMatcher:
        matcher, problem = _tried(_source(asked), self._inner)
        if problem and asked.kind == "json_schema":
            problem = f"{_place(json.loads(asked.source), problem, self._inner)}: {problem}"
            raise GrammarError(f"{_TITLES[asked.kind]} cannot be served at {problem}")
        if problem:
            raise GrammarError(f"{_TITLES[asked.kind]} cannot be served: {problem}")
        return matcher


class Grammar:
    """A compiled grammar; each answer that it constrains has a :class:`GrammarConstraint` of its own. ``at_once``: it
    holds from an answer's first token on, so that nothing is thought before."""

    def __init__(self, matcher: LLMatcher, table: GrammarTokens, at_once: bool = False) -> None:
        self._matcher, self._table, self.at_once = matcher, table, at_once

    def constraint(
        self, prompt_length: int, channels: ChannelParser | None, opens: Sequence[int] = ()
    ) -> GrammarConstraint:
        """The constraint of one answer. ``channels`` sorts what it thinks first from its content; ``opens`` are tokens
        that begin its thinking, with which it may begin instead."""
        return GrammarConstraint(self._matcher.deep_copy(), self._table, prompt_length, channels, opens)


class GrammarConstraint:
    """What one answer may go on with, after each of its tokens; also after drafted ones, which may turn out otherwise.

    It follows the answer by itself. Used by the engine thread alone.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        table: GrammarTokens,
        prompt_length: int,
        channels: ChannelParser | None,
        opens: Sequence[int],
    ) -> None:
        self._matcher, self._tokenizer, self._channels, self._opens = matcher, table.tokenizer, channels, opens
        self._words = -(-table.rows // 32)
        self._end, *self._other_ends = table.end_ids  # the matcher knows one end
        self._start = self._known = prompt_length
        self._masks: dict[tuple[int, ...], AllowedTokens | None] = {}

    @property
    def failed(self) -> str:
        """Reason that nothing is known of the next token, "" as long as that is not so."""
        if self._matcher.is_error():
            return _one_line(self._matcher.get_error()).rstrip(".")  # the lines below say what the matcher went through
        last = self._masks.get(())  # a drafted path that goes nowhere is simply not taken
        return NO_TOKEN if last is not None and not last.words.any() else ""

    def allowed(self, tokens: Sequence[int], path: Sequence[int] = ()) -> AllowedTokens | None:
        """Tokens that may follow the sequence ``tokens`` (prompt and answer) and then a drafted ``path``.

        None: any, because the model still thinks, or because the path itself is not allowed, so that nothing comes of
        what follows it.
        """
        self._follow(tokens)
        key = tuple(path)
        if key not in self._masks:
            self._masks[key] = self._after(key)
        return self._masks[key]

    def forced(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that come next whatever the model says, because the grammar leaves no other text."""
        self._follow(tokens)
        if self._thinks(self._channels) or self._may_open or self._matcher.is_stopped():
            return []
        found: list[int] = self._matcher.compute_ff_tokens()
        return found

    @property
    def _may_open(self) -> bool:
        """True if the answer may begin with thinking now."""
        return bool(self._opens) and self._known == self._start

    def _follow(self, tokens: Sequence[int]) -> None:
        """Bring the state to the newest token."""
        if self._known == len(tokens):
            return
        self._masks.clear()
        for token in tokens[self._known :]:
            if self._thinks(self._channels) or self._begins_to_think(token, self._known == self._start):
                _push(self._channels, token, self._tokenizer)
            elif not self._matcher.is_stopped():
                self._matcher.consume_token(self._known_as(token))
            self._known += 1

    def _after(self, path: tuple[int, ...]) -> AllowedTokens | None:
        channels, first = copy.copy(self._channels), self._known == self._start
        taken = 0
        try:
            for token in path:
                if self._thinks(channels) or self._begins_to_think(token, first):
                    _push(channels, token, self._tokenizer)
                elif self._matcher.is_stopped() or not self._matcher.try_consume_tokens([self._known_as(token)]):
                    return None
                else:
                    taken += 1
                first = False
            return None if self._thinks(channels) else self._mask(self._opens if first else ())
        finally:
            if taken:
                self._matcher.rollback(taken)

    def _mask(self, more: Sequence[int]) -> AllowedTokens:
        words = np.zeros(self._words, dtype=np.uint32)
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if words[self._end >> 5] >> np.uint32(self._end & 31) & 1:
            more = (*more, *self._other_ends)
        for token in more:
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return AllowedTokens(words, self._matcher.is_stopped())

    def _known_as(self, token: int) -> int:
        """The token as the matcher knows it."""
        return self._end if token in self._other_ends else token

    def _begins_to_think(self, token: int, first: bool) -> bool:
        return first and token in self._opens

    @staticmethod
    def _thinks(channels: ChannelParser | None) -> bool:
        return channels is not None and channels.channel == "thinking"


def _push(channels: ChannelParser | None, token: int, tokenizer: Tokenizer) -> None:
    assert channels is not None
    channels.push(token, "" if token in tokenizer.special_ids else tokenizer.piece(token))


def _tried(source: str, vocabulary: LLTokenizer) -> tuple[LLMatcher, str]:
    """The matcher of a grammar, with the tables that all answers share, and a sentence if it cannot be one."""
    from llguidance import LLMatcher

    matcher = LLMatcher(vocabulary, source)
    if not matcher.is_error() and not any(matcher.compute_bitmask()) and not matcher.is_error():
        return matcher, NO_TOKEN
    problem = _one_line(matcher.get_error()) if matcher.is_error() else ""
    return matcher, NO_TEXT if problem.startswith(_STOPPED) else problem


class _GuidanceTokens:
    """The vocabulary as llguidance asks for it. A class made in a function would hold the tokenizer until collected."""

    bos_token_id = None

    def __init__(self, table: GrammarTokens) -> None:
        self._tokenizer = table.tokenizer
        self.eos_token_id = table.end_ids[0]
        self.special_token_ids = sorted(table.tokenizer.special_ids)
        self.tokens = list(_bytes_of(table.tokenizer, table.rows))

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False)


def _bytes_of(tokenizer: Tokenizer, vocabulary: int) -> Iterator[bytes]:
    for id in range(vocabulary):
        special = id in tokenizer.special_ids
        yield _SPECIAL + tokenizer.token(id).encode() if special else tokenizer.id_to_bytes(id)


def _source(asked: StructuredOutput) -> str:
    """The grammar in llguidance's own words. Raises GrammarError."""
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

    try:
        match asked.kind:
            case "json_object":
                return _json_grammar({"type": "object"})
            case "json_schema":
                return _json_grammar(json.loads(asked.source))
            case "regex":
                return LLMatcher.grammar_from_regex(asked.source)
            case "choice":
                choices = json.loads(asked.source)
                if not choices:
                    raise ValueError("it is empty")
                return LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(choice) for choice in choices))
            case "grammar":
                return LLMatcher.grammar_from_lark(any_to_lark(asked.source))
    except (ValueError, TypeError, RecursionError, GbnfToLarkError) as error:
        raise GrammarError(f"{_TITLES[asked.kind]} cannot be read: {_one_line(str(error))}") from error


def held_schema(schema: Any) -> dict[str, Any]:
    """The schema that an answer is held to. A schema is an object or one of the words true and false, of which
    llguidance takes objects alone."""
    if not isinstance(schema, dict):
        return {"allOf": [schema]}
    return _closed(schema, True, '"allOf"' not in json.dumps(schema))


def _json_grammar(schema: Any) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(json.dumps(held_schema(schema)), overrides=ON_ONE_LINE)


def _place(schema: Any, problem: str, vocabulary: LLTokenizer) -> str:
    """JSON pointer to the smallest part of a schema that has the same problem, as far as few trials tell."""
    shared = {name: schema[name] for name in ("$defs", "definitions") if isinstance(schema, dict) and name in schema}
    place, here, left = "#", schema, MOST_TRIED
    while left > 0:
        for name, part in _parts(here):
            left -= 1
            if left >= 0 and _tried(_json_grammar({**shared, **part}), vocabulary)[1] == problem:
                place, here, shared = f"{place}/{name}", part, {} if name.startswith("$defs") else shared
                break
        else:
            break
    return place


def _closed(schema: dict[str, Any], closes: bool, shared: bool) -> dict[str, Any]:
    """The schema as it is held to: without formats that are only notes (draft 2020-12, section 7.2.1), and where it
    ``closes``, objects have no other keys than it names, unless it speaks of them. Whatever holds to it holds to the
    schema. Parts of an ``allOf`` stay open, because each names some keys; so do ``shared`` ones if there may be some.
    """
    found = {name: value for name, value in schema.items() if name != "format" or value in FORMATS}
    keys = schema.get("properties")
    named = isinstance(keys, dict) and {*schema.get("required", ())} <= keys.keys()
    if closes and named and not _OPEN & schema.keys():
        found["additionalProperties"] = False
    for place, part in _parts(schema):
        name, _, key = place.partition("/")
        inner = name not in _TOGETHER or (closes and name in ("anyOf", "oneOf") and keys is None)
        held = _closed(part, shared if name in ("$defs", "definitions") else inner, shared)
        if not key:
            found[name] = held
        elif isinstance(found[name], list):
            found[name] = [held if each is part else each for each in found[name]]
        else:
            found[name] = {**found[name], key: held}
    return found


def _parts(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas right below one, with their places."""
    for name, value in schema.items() if isinstance(schema, dict) else ():
        if name in ("$defs", "definitions", "properties", "patternProperties") and isinstance(value, dict):
            yield from ((f"{name}/{key}", part) for key, part in value.items() if isinstance(part, dict))
        elif name in ("allOf", "anyOf", "oneOf", "prefixItems") and isinstance(value, list):
            yield from ((f"{name}/{place}", part) for place, part in enumerate(value) if isinstance(part, dict))
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            yield name, value


@lru_cache(KEPT)
def lark_problem(source: str) -> str:
    """What is wrong with a Lark grammar, as a sentence with the line and column; "" if it can be served."""
    from llguidance import LLMatcher

    if len(source) > MAX_TOOL:
        return f"it has {len(source):,} characters, and at most {MAX_TOOL:,} are read."
    said = _with_stack(lambda: LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(source))).splitlines()
    return said[0].rstrip(":.") + "." if said else ""


def lark_of(expression: str) -> str:
    """The Lark grammar of a text that a regular expression describes as a whole."""
    escaped = re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], expression, flags=re.DOTALL)
    return "start: /" + escaped.replace("\n", "\\n") + "/"


def _with_stack(work: Callable[[], T]) -> T:
    """The result of ``work`` in a thread with :data:`STACK`. Raises what it raises."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    with _STACKS:  # the size is that of all threads that are started
        before = threading.stack_size(STACK)
        try:
            threading.Thread(target=run, name="grammar", daemon=True).start()
        finally:
            threading.stack_size(before)
    return result.result()


def _one_line(message: str) -> str:
    """The first line that says something, with a full stop."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "it is not understood")
    return told.removeprefix("error:").strip().rstrip(".") + "."
