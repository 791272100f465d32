"""Chat Completions as a client sends and reads them.

https://platform.openai.com/docs/api-reference/chat, with the fields that vLLM, SGLang and llama.cpp add.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from engine.protocol import ChatMessage, Generate, ToolConfig
from engine.services.operations import OperationFailed

_MAGIC = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"BM", "bmp"))
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class FunctionPart(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class CallPart(msgspec.Struct):
    index: Annotated[int, Meta(ge=0, le=10_000)] = 0
    id: str | None = None
    function: FunctionPart | None = None


class DeltaPart(msgspec.Struct):
    """vLLM and llama.cpp call thinking ``reasoning_content``, newer vLLM and OpenRouter ``reasoning``."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPart] | None = None


class ChoicePart(msgspec.Struct):
    delta: DeltaPart | None = None
    index: int = 0
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class UsagePart(msgspec.Struct):
    prompt_tokens: _Count = 0
    completion_tokens: _Count | None = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Chunk(msgspec.Struct):
    choices: list[ChoicePart] = []
    usage: UsagePart | None = None
    error: Any = None
    message: str = ""
    """Of an error as vLLM once sent it, beside ``object``."""
    object: str = ""


def body(asked: Generate, model: str) -> bytes:
    """The request. What was not set is not sent, so that the server's own defaults hold.

    Raises :class:`OperationFailed` for what this API has no words for.
    """
    if isinstance(asked.prompt, str):
        raise OperationFailed("Another server is asked for chats alone. Send the text as a message.")
    if asked.n > 1 or asked.adapter or asked.sampling.logprobs is not None:
        text = "Another server gives one answer, without adapters and log-probabilities. Leave these out."
        raise OperationFailed(text)
    sent: dict[str, Any] = msgspec.to_builtins(asked.sampling)
    sent |= {
        "model": model,
        "messages": [each for message in asked.prompt for each in _messages(message)],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if asked.thinking.on is not None:
        sent["chat_template_kwargs"] = {"enable_thinking": asked.thinking.on}
    if asked.thinking.effort:
        sent["reasoning_effort"] = asked.thinking.effort
    if asked.tools is not None and asked.tools.allowed:
        sent |= _tools(asked.tools)
    if asked.structured is not None:
        sent["response_format"] = _format(asked.structured.kind, asked.structured.source)
    return msgspec.json.encode(sent)


def _messages(message: ChatMessage) -> Iterable[dict[str, Any]]:
    """A message in OpenAI's shape; one for each result of a tool. Earlier thinking stays here: servers refuse it, or
    leave it out themselves."""
    if message.role == "tool":
        for result in message.results:
            content = _content(result.content, result.pictures)
            yield {"role": "tool", "tool_call_id": result.id, "content": content}
        return
    made: dict[str, Any] = {"role": message.role, "content": _content(message.content, message.pictures)}
    if message.calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    yield made


def _content(text: str, pictures: list[bytes]) -> str | list[dict[str, Any]]:
    if not pictures:
        return text
    shown: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": _data_url(file)}} for file in pictures]
    return [*shown, {"type": "text", "text": text}] if text else shown


def _data_url(file: bytes) -> str:
    kind = next((kind for magic, kind in _MAGIC if file.startswith(magic)), "webp")
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"


def _tools(asked: ToolConfig) -> dict[str, Any]:
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": Raw(tool.parameters.encode())}
        for tool in asked.allowed
    ]
    sent: dict[str, Any] = {
        "tools": [{"type": "function", "function": each} for each in tools],
        "tool_choice": asked.choice,
    }
    return sent if asked.parallel else sent | {"parallel_tool_calls": False}


def _format(kind: str, source: str) -> dict[str, Any]:
    if kind == "json_object":
        return {"type": kind}
    if kind != "json_schema":
        raise OperationFailed("Another server can be held to JSON alone. Leave the grammar out.")
    return {"type": kind, "json_schema": {"name": "answer", "strict": True, "schema": Raw(source.encode())}}
