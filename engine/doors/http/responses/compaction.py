"""Compaction of a conversation: messages to the model stay, and the model writes a summary of the whole.

Source: https://developers.openai.com/api/docs/guides/compaction and the Open Responses specification of 2026-04-24.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType, structs

from engine.doors.http.fields import BadField
from engine.doors.http.responses.items import ItemIn, Placed, hidden, new_id
from engine.doors.http.responses.types import ResponseOut, ResponsesIn, ResponseUsage
from engine.protocol import StructuredOutput, ToolConfig
from engine.services.answers.refused import Refused

ASKS = (
    "Write a summary of this conversation that takes its place, so that it can go on from the summary alone: what is "
    "wanted, what was decided and done, the names, figures, files and results that still matter, and what is left to "
    "do. Write nothing besides the summary, and call no tool."
)
"""What the model is told to do, after the conversation."""
NOT_WHOLE = "The summary is not whole: max_output_tokens or the context ended it."


class CompactIn(ResponsesIn, kw_only=True):
    """A request as one for a response, whose answer is the summary. Tools and a form of the text are ignored, because
    clients send those of the conversation."""

    model: str

    def check(self, vocabulary: int) -> None:
        for name in ("stream", "background"):
            if getattr(self, name):
                raise BadField(name, f"A compaction has no {name}. Leave it out, and wait for the summary.")
        super().check(vocabulary)

    def placed(self, before: Sequence[ItemIn], given: Sequence[ItemIn]) -> list[Placed]:
        return [*super().placed(before, given), ("input", ItemIn(role="user", content=ASKS))]

    def structured(self) -> StructuredOutput | None:
        return None

    def tool_config(self) -> ToolConfig | None:
        return None


class CompactedResponse(msgspec.Struct, kw_only=True):
    """What takes the place of a conversation: ``output`` is sent as the input of the next request."""

    id: str
    object: str = "response.compaction"
    created_at: int
    output: list[ItemIn]
    usage: ResponseUsage | None
    notices: list[str] | UnsetType = UNSET


def compacted(conversation: Sequence[ItemIn], answer: ResponseOut) -> CompactedResponse:
    """The conversation, with the summary that was answered. Raises :class:`Refused` where there is none."""
    messages = [item for item in answer.output if item["type"] == "message"]
    summary = "".join(part["text"] for item in messages for part in item["content"])
    if not summary.strip():
        text = "The model wrote no summary. Ask again with more max_output_tokens, or with a reasoning.effort of none."
        raise Refused("no_summary", text)
    kept = [
        structs.replace(item.named, status="completed")
        for item in conversation
        if item.kind == "message" and item.role != "assistant"
    ]
    item = ItemIn(type="compaction", id=new_id("compaction"), encrypted_content=hidden(summary))
    notices = [*(answer.notices or ()), *([NOT_WHOLE] if answer.status == "incomplete" else [])]
    return CompactedResponse(
        id=answer.id,
        created_at=answer.created_at,
        output=[*kept, item],
        usage=answer.usage,
        notices=notices or UNSET,
    )
