"""Every message on the wire between the window and the engine, version 1.

Text frames over a websocket; each frame is one JSON object with a ``type`` tag. Unknown fields are
ignored; an unknown type gets an :class:`Error` with code ``unknown_message`` and the connection stays.
This module imports nothing but msgspec and the standard library: it is all that the window knows of the engine.

Units: times are milliseconds unless a name says seconds, sizes are bytes, rates are per second.
"""

# Everybody takes the messages from here.
# ruff: noqa: F401
from __future__ import annotations

import msgspec

from engine.protocol.base import (
    FAILED,
    MAX_FRAME,
    PROTOCOL,
    WHOLE,
    Channel,
    Exactness,
    FinishReason,
    Message,
    Outcome,
    Overflow,
    Part,
    Quantise,
    Source,
    Value,
)
from engine.protocol.cache import (
    PAGE_STATES,
    CacheStats,
    ContextCut,
    Cost,
    DescribePage,
    ForgetChat,
    MeasureCost,
    PageDescribed,
    PageMap,
    PageOwner,
    PageState,
    RadixTree,
    TreeNode,
)
from engine.protocol.from_engine import (
    Acceptance,
    Compared,
    CompareProgress,
    Counted,
    Delta,
    Effect,
    Error,
    Estimated,
    Finished,
    FromEngine,
    KnownModel,
    Loaded,
    Loading,
    MemoryByOwner,
    Options,
    PageCounts,
    Prefill,
    QueueCounts,
    Ready,
    Run,
    Telemetry,
    Unloaded,
    Welcome,
)
from engine.protocol.gpu import (
    PackProgress,
    PackReport,
    PackResult,
    PackStage,
    PackState,
    PackStatus,
    decode_pack_report,
)
from engine.protocol.records import (
    CACHE_GROUP,
    SPECULATION_GROUP,
    ChatMessage,
    Device,
    Fit,
    LoadOptions,
    Metric,
    ModelCard,
    OptionSpec,
    Sampling,
    Thinking,
    ThinkingModes,
    Timings,
    TokenInfo,
    Usage,
)
from engine.protocol.to_engine import (
    Cancel,
    CancelLoad,
    Compare,
    CountTokens,
    Estimate,
    Generate,
    Hello,
    Load,
    Set,
    Subscribe,
    ToEngine,
    Unload,
)

_encoder = msgspec.json.Encoder()
decode_to_engine = msgspec.json.Decoder(ToEngine).decode
"""A :data:`ToEngine` message. Raises msgspec.ValidationError (or DecodeError) with a sentence on anything else."""
decode_from_engine = msgspec.json.Decoder(FromEngine).decode
"""A :data:`FromEngine` message. Raises msgspec.ValidationError (or DecodeError) on anything else."""
decode_ready = msgspec.json.Decoder(Ready).decode
"""The ready line. Raises msgspec.DecodeError when the line is something else."""


def encode(message: Message) -> str:
    """One frame's text."""
    return _encoder.encode(message).decode()
