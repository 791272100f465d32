"""The parts of every message: the version, the words that may stand in a field, the two bases."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROTOCOL = 5
MAX_FRAME = 32 * 1024 * 1024
"""Largest frame either side accepts, bytes (a long chat with its system prompt is far below)."""

Value = bool | int | float | str
Source = str
"""Origin of a generated token: "target" (plain decoding), the name of the proposer whose draft token was accepted, or
the verifier's own token after a rejected one ("corrected") or after a fully accepted draft ("bonus")."""
FinishReason = Literal["stop", "length", "context", "cancelled", "memory", "error"]
WHOLE: frozenset[FinishReason] = frozenset({"stop", "length", "context"})
"""Reasons of a whole answer: the model, a stop string or a limit on its length ended it."""
FAILED: frozenset[FinishReason] = frozenset({"memory", "error"})
"""Reasons of an answer that could not be finished."""
Quantise = Literal["none", "nf4", "int4", "int8"]
DeviceName = Annotated[str, msgspec.Meta(pattern=r"^(auto|cpu|mps|cuda(:[0-9]{1,3})?)$")]
"""Device to compute on. "auto" and "cuda" take the GPU with the most free memory; "cuda:1" is PyTorch's second one."""
DeviceKind = Literal["cpu", "cuda", "mps"]
Channel = Literal["content", "thinking", "tool"]
Overflow = Literal["stop", "drop_middle", "window"]
"""Policy for a chat that outgrows the context: stop; leave out the middle (the first turn and the last ones stay); or
let the model see the first tokens and a sliding window of the last ones."""
Outcome = Literal["better", "worse", "none", "few"]
"""The outcome of a comparison. ``none``: no clear difference. ``few``: too few pairs to tell."""
Exactness = Literal["lossless", "same distribution", "approximate", "model property"]


class Message(msgspec.Struct, tag_field="type", kw_only=True, omit_defaults=True, frozen=True):
    """Base of all messages."""


class Part(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Base of the records inside messages."""
