"""Every message on the wire between the window and the engine, version 5.

Text frames over a websocket; each frame is one JSON object with a ``type`` tag. Unknown fields are
ignored; an unknown type gets an :class:`Error` with code ``unknown_message`` and the connection stays.
This module imports nothing but msgspec and the standard library: it is all that the window knows of the engine.

Units: times are milliseconds unless a name says seconds, sizes are bytes, rates are per second.
"""

from __future__ import annotations

import msgspec

# Everybody takes the messages from here: the use that PEP 8 has for wildcard imports.
from engine.protocol.adapters import *  # noqa: F403
from engine.protocol.base import *  # noqa: F403
from engine.protocol.base import Message
from engine.protocol.cache import *  # noqa: F403
from engine.protocol.calls import *  # noqa: F403
from engine.protocol.embedding import *  # noqa: F403
from engine.protocol.from_engine import *  # noqa: F403
from engine.protocol.from_engine import FromEngine, Ready
from engine.protocol.gpu import *  # noqa: F403
from engine.protocol.library import *  # noqa: F403
from engine.protocol.making import *  # noqa: F403
from engine.protocol.parts import *  # noqa: F403
from engine.protocol.recommended import *  # noqa: F403
from engine.protocol.records import *  # noqa: F403
from engine.protocol.remotes import *  # noqa: F403
from engine.protocol.to_engine import *  # noqa: F403
from engine.protocol.to_engine import ToEngine
from engine.protocol.why import *  # noqa: F403

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
