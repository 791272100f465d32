"""Tools for models whose chat template shows none: told in the system prompt, in the format that most models know."""

from __future__ import annotations

import json
from collections.abc import Sequence

from engine.protocol import ChatMessage, Tool, ToolCall, ToolResult
from engine.text.template import as_schema

GENERIC = (
    "This model's chat template shows no tools, so they are described in the system prompt. A model that was not "
    "trained for tools calls them badly."
)
_TOLD = """You can call these functions, which are described by JSON schemas:
<tools>
{tools}
</tools>

To call one, write its name and arguments as a JSON object between tags:
<tool_call>
{{"name": "function name", "arguments": {{"argument": "value"}}}}
</tool_call>

What it returns comes between <tool_response> tags. Call a function only where it helps."""


def told(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[ChatMessage]:
    """The same conversation in text alone."""
    said = [_in_text(message) for message in messages]
    if not tools:
        return said
    text = _TOLD.format(tools="\n".join(json.dumps(as_schema(tool)) for tool in tools))
    if said and said[0].role == "system":
        return [ChatMessage.of("system", f"{said[0].content}\n\n{text}"), *said[1:]]
    return [ChatMessage.of("system", text), *said]


def _in_text(message: ChatMessage) -> ChatMessage:
    if not message.calls and not message.results:
        return message
    texts = [message.content, *map(_call, message.calls), *map(_result, message.results)]
    return ChatMessage.of(
        "user" if message.role == "tool" else message.role,
        "\n".join(filter(None, texts)),
        message.thinking,
        message.pictures,
    )


def _call(call: ToolCall) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'


def _result(result: ToolResult) -> str:
    return f"<tool_response>\n{result.content}\n</tool_response>"
