"""Bodies of all dialects, changed at random: each is read, or refused with a sentence, and nothing else happens."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
import tokenizers

from engine.doors.http.anthropic.types import MessagesIn
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.llamacpp.types import InfillIn, LlamaCompletionIn, LlamaIn
from engine.doors.http.ollama.types import EmbedIn, GenerateIn, OllamaChat
from engine.doors.http.openai.embeddings import EmbeddingIn
from engine.doors.http.openai.tokens import TextIn, TokensIn
from engine.doors.http.openai.types import CompletionIn, OpenAIChat, conversations
from engine.doors.http.prompts import MARK, PromptsIn, pictured, prompts_of, words_of
from engine.doors.http.rerank.routes import RerankIn, ScoreIn
from engine.doors.http.responses.compaction import CompactIn
from engine.doors.http.responses.items import check_outputs, conversation
from engine.doors.http.responses.types import ResponseCreate, ResponseOut, ResponsesIn
from engine.protocol import ChatMessage, Sampling
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import trained

SCHEMA: Any = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CALL: Any = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
TOOL: Any = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
CHAT: Any = {
    "model": "m",
    "stream": True,
    "n": 2,
    "stream_options": {"include_usage": True},
    "stop": ["x"],
    "seed": 7,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"5": -1},
    "temperature": 0.5,
    "tools": [TOOL],
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "reasoning_effort": "low",
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": PICTURE}}],
        },
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "result"},
    ],
}
COMPLETION: Any = {
    "model": "m",
    "prompt": ["a", "b"],
    "max_tokens": 5,
    "echo": True,
    "logprobs": 1,
    "best_of": 1,
    "guided_json": SCHEMA,
}
MESSAGES: Any = {
    "model": "m",
    "max_tokens": 9,
    "stream": True,
    "system": [{"type": "text", "text": "s"}],
    "stop_sequences": ["x"],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "w"}],
    "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
    "messages": [
        {
            "role": "user",
            "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": ""},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}]}],
        },
    ],
}
OLLAMA: Any = {
    "model": "m",
    "stream": False,
    "think": "low",
    "keep_alive": "5m",
    "format": SCHEMA,
    "options": {"num_predict": 5, "stop": ["x"]},
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "q", "images": ["aGk="]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "b"}}}]},
        {"role": "tool", "tool_name": "f", "content": "r"},
    ],
}
GENERATE: Any = {
    "model": "m",
    "prompt": "p",
    "system": "s",
    "images": ["aGk="],
    "raw": False,
    "format": "json",
    "keep_alive": -1,
}
RESPONSES: Any = {
    "model": "m",
    "stream": True,
    "instructions": "i",
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 9,
    "metadata": {"a": "b"},
    "tools": [
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
        {"type": "web_search"},
        {
            "type": "namespace",
            "name": "h",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}],
        },
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
    "input": [
        {"role": "developer", "content": "s"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": PICTURE}],
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "kvasir-aGk="},
        {"type": "compaction", "encrypted_content": "kvasir-aGk="},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "b"}'},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "aa"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "r"}]},
    ],
}
PROMPT: Any = {"prompt_string": "a <__media__>", "multimodal_data": ["aGk="]}
PARTS: Any = {"content": [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": PICTURE}}]}
LLAMA: Any = {
    "prompt": ["a", [1, "b", 2], PROMPT, PARTS],
    "n_predict": 5,
    "logit_bias": [[5, -1], ["a", False]],
    "ignore_eos": True,
    "n_probs": 2,
    "samplers": [],
    "response_fields": ["timings/prompt_n"],
    "json_schema": SCHEMA,
}
INFILL: Any = {
    "input_prefix": "a",
    "input_suffix": "b",
    "prompt": "c",
    "input_extra": [{"text": "d", "filename": "e"}],
    "samplers": ["top_k"],
    "n_indent": 0,
    "logit_bias": {"5": -1, "a": False},
}
EMBEDDING: Any = {
    "input": ["a", [1, 2], PROMPT, PARTS],
    "model": "m",
    "encoding_format": "base64",
    "dimensions": 4,
    "pooling": "mean",
    "truncate_prompt_tokens": -1,
    "ttl": 9,
}
EMBED: Any = {"model": "m", "input": ["a", "b"], "truncate": True, "dimensions": 4, "keep_alive": "5m", "options": {}}
RERANK: Any = {
    "model": "m",
    "query": "q",
    "documents": ["a", {"text": "b"}],
    "texts": ["c"],
    "top_n": 1,
    "return_documents": True,
    "raw_scores": False,
    "truncate": True,
    "max_tokens_per_doc": 5,
    "truncate_prompt_tokens": -1,
}
SCORE: Any = {"model": "m", "queries": ["q"], "documents": ["a", {"text": "b"}], "use_activation": True, "ttl": 9}
TEXT: Any = {"model": "m", "prompt": "p", "content": "c", "add_special_tokens": True, "with_pieces": True}
TOKENS: Any = {"model": "m", "tokens": [1, 2, 3]}
CONVERSATIONS: Any = {
    "model": "m",
    "max_tokens": 5,
    "messages": [[{"role": "user", "content": "a"}], [{"role": "user", "content": [{"type": "text", "text": "b"}]}]],
}
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**64,
    -(2**63),
    1e400,
    0.5,
    float("nan"),
    "",
    "a",
    "\ud800",
    "\0",
    "x" * 300,
    "é🎉",
    "auto",
    "required",
    "none",
    "null",
    "{",
    "1",
    [],
    [[]],
    [None],
    ["a"],
    [1, 2],
    {},
    {"": ""},
    {"type": "function"},
    {"type": "x"},
    {"a": [{}]},
    {"type": "object"},
    {"$ref": "#"},
    {"type": ["string", "null"]},
    [{}, 1, "a"],
    {"name": "f"},
    {"role": "user"},
    "data:,",
    PICTURE,
]


def read_chat(body: bytes) -> None:
    wanted = decoded(body, OpenAIChat)
    wanted.check(400)
    wanted.prompt()
    wanted.sampling()
    wanted.wanted_thinking()
    assert wanted.form.opens is not (wanted.add_generation_prompt is False)


def read_completion(body: bytes) -> None:
    wanted = decoded(body, CompletionIn)
    wanted.check(400)
    wanted.prompts()
    wanted.sampling()


def read_messages(body: bytes) -> None:
    wanted = decoded(body, MessagesIn)
    wanted.check(400)
    wanted.conversation()
    for name in ("form", "wanted_thinking", "structured"):
        getattr(wanted, name)


def read_ollama(kind: type[OllamaChat] | type[GenerateIn]) -> Callable[[bytes], None]:
    def read(body: bytes) -> None:
        wanted = decoded(body, kind)
        wanted.check(400)
        wanted.conversation()
        wanted.tool_config()
        wanted.sampling()
        for name in ("structured", "ttl", "thinking", "overflow"):
            getattr(wanted, name)

    return read


def read_responses(kind: type[ResponsesIn]) -> Callable[[bytes], None]:
    def read(body: bytes) -> None:
        wanted = decoded(body, kind)
        wanted.check(400)
        check_outputs((), wanted.items)
        conversation(wanted.placed((), wanted.items))
        wanted.structured()
        begun = wanted.begun("m", Sampling(), wanted.notices(wanted.tool_config(), lambda tool: True))
        told = msgspec.json.decode(msgspec.json.encode(begun), type=ResponseOut)
        assert (told.id, told.notices) == (begun.id, begun.notices)
        msgspec.json.encode(wanted.items)

    return read


def read_llama(kind: type[LlamaIn]) -> Callable[[bytes], None]:
    def read(body: bytes) -> None:
        wanted = decoded(body, kind)
        wanted.sampling(tokenizer(), [2])
        wanted.structured()
        if isinstance(wanted, LlamaCompletionIn):
            read_prompts(wanted.prompt)

    return read


def read_prompts(given: PromptsIn) -> None:
    assert all(part.url for _, part in pictured(given, "prompt"))
    for each in prompts_of(given, "prompt"):
        assert isinstance(words_of(each), str)
        if isinstance(each, ChatMessage):
            assert each.content.count(MARK) == len(each.pictures)


def read_embedding(body: bytes) -> None:
    wanted = decoded(body, EmbeddingIn)
    wanted.inputs()
    read_prompts(wanted.input)


def read_rerank(body: bytes) -> None:
    wanted = decoded(body, RerankIn)
    wanted.asked([(wanted.query, "d")], "documents", "")


def read_batch(body: bytes) -> None:
    for each in conversations(body):
        each.check(400)
        each.prompt()


def only(kind: type[msgspec.Struct]) -> Callable[[bytes], None]:
    """Reads a body that has nothing more to look at than its fields."""
    return lambda body: msgspec.json.encode(decoded(body, kind)) and None


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(trained("chatml")))


DIALECTS: dict[str, tuple[Any, Callable[[bytes], None]]] = {
    "chat": (CHAT, read_chat),
    "completion": (COMPLETION, read_completion),
    "messages": (MESSAGES, read_messages),
    "responses": (RESPONSES, read_responses(ResponsesIn)),
    "responses by websocket": (
        {**RESPONSES, "type": "response.create", "generate": False},
        read_responses(ResponseCreate),
    ),
    "compaction": ({**RESPONSES, "stream": False}, read_responses(CompactIn)),
    "ollama chat": (OLLAMA, read_ollama(OllamaChat)),
    "ollama generate": (GENERATE, read_ollama(GenerateIn)),
    "ollama embed": (EMBED, lambda body: decoded(body, EmbedIn).inputs and None),
    "responses in the background": (
        RESPONSES | {"stream": False, "store": True, "background": True},
        read_responses(ResponsesIn),
    ),
    "llama.cpp completion": (LLAMA, read_llama(LlamaCompletionIn)),
    "llama.cpp infill": (INFILL, read_llama(InfillIn)),
    "embedding": (EMBEDDING, read_embedding),
    "rerank": (RERANK, read_rerank),
    "score": (SCORE, lambda body: decoded(body, ScoreIn).pairs() and None),
    "tokenize": (TEXT, only(TextIn)),
    "detokenize": (TOKENS, only(TokensIn)),
    "batch": (CONVERSATIONS, read_batch),
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place of a JSON value, as its container and the key in it."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def fuzzed(choose: random.Random, whole: Any) -> bytes:
    """The body with parts replaced, removed, doubled or renamed; sometimes its bytes are changed besides."""
    body = copy.deepcopy(whole)
    for _ in range(choose.randint(1, 3)):
        container, key = choose.choice(list(places(body)))
        match choose.randrange(4):
            case 0 | 1:
                container[key] = copy.deepcopy(choose.choice(ODD))
            case 2:
                del container[key]
            case 3 if isinstance(container, dict):
                container[choose.choice(["", "type", "x", "content", "name"])] = container.pop(key)
            case _:
                container[key] = [container[key], copy.deepcopy(container[key])]
        if not body:
            break
    data = bytearray(json.dumps(body).encode())
    if choose.random() < 0.1:
        data[choose.randrange(len(data))] = choose.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("count", [350, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_is_read_or_refused(dialect: str, count: int) -> None:
    whole, read = DIALECTS[dialect]
    read(json.dumps(whole).encode())
    choose, refused = random.Random(dialect), 0
    for _ in range(count):
        body = fuzzed(choose, whole)
        try:
            read(body)
        except BadField as error:
            refused += bool(str(error))
        except Exception as error:
            raise AssertionError(body) from error
    assert 0.3 * count < refused < count
