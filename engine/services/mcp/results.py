"""Results of tools, as a model and the transcript take them: text and pictures of bounded size."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from engine.base.errors import plain
from engine.protocol.mcp import ToolOutcome

if TYPE_CHECKING:
    import mcp_types

MOST_CHARS = 100_000
"""Characters of a result. A megabyte of text is more than most models can read."""
MOST_PICTURES = 8
MOST_BYTES = 8 << 20
"""Bytes of a result's pictures."""
PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp"})


def outcome(result: mcp_types.CallToolResult) -> ToolOutcome:
    """The result as one text, in which what cannot be given to a model is named, and its pictures."""
    lines: list[str] = []
    pictures: list[bytes] = []
    room = MOST_BYTES
    for block in result.content:
        if block.type == "image" and (file := _picture(block, room)) and len(pictures) < MOST_PICTURES:
            pictures.append(file)
            room -= len(file)
        else:
            lines.append(_line(block))
    if not result.content and result.structured_content is not None:
        lines.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolOutcome(text=cut("\n".join(lines)), pictures=pictures, failed=bool(result.is_error))


def cut(text: str) -> str:
    """The text, fit to be sent, with a notice where it was too long."""
    shown = plain(text[:MOST_CHARS], keep="\n\t\r")
    left = len(text) - MOST_CHARS
    return shown if left <= 0 else f"{shown}\n[{left:,} more characters were left out: the result was too long.]"


def _picture(block: mcp_types.ImageContent, room: int) -> bytes:
    """The file; b"" for one of an unknown kind, that is too large or is damaged."""
    if block.mime_type not in PICTURES or len(block.data) * 3 // 4 > room:
        return b""
    try:
        return base64.b64decode(block.data, validate=True)
    except ValueError:
        return b""


def _line(block: mcp_types.ContentBlock) -> str:
    """A block as text."""
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"[{block.name}: {block.uri}]"
    if block.type == "resource":
        text = getattr(block.resource, "text", None)
        return text if isinstance(text, str) else f"[{block.resource.uri}: a file that cannot be shown]"
    return f"[{block.mime_type}, which cannot be shown]"
