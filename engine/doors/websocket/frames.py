"""Errors of a frame: one sentence for its sender, whose connection stays (but for a bad greeting)."""

from __future__ import annotations

import msgspec

from engine.doors.security import token_matches
from engine.protocol import MAX_FRAME, PROTOCOL, Error, Hello, Message, decode_to_engine

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""How decoding fails: no JSON, not of this shape, no UTF-8, or nested without an end."""
MAX_HELLO = 64 * 1024
"""Bytes of a greeting; nobody is known yet."""


class _Kind(msgspec.Struct):
    """Enough of a frame to say what is wrong with it."""

    type: str = ""
    id: str = ""


_NOTHING = _Kind()


def _kind(frame: str | bytes) -> _Kind:
    try:
        return msgspec.json.decode(frame, type=_Kind)
    except UNREADABLE:
        return _NOTHING


def refused_greeting(frame: str | bytes, token: str) -> Error | None:
    """Return the error for which the sender of this first frame is refused; None lets it in."""
    try:
        hello = decode_to_engine(frame) if len(frame) <= MAX_HELLO else None
    except UNREADABLE:
        hello = None
    if not isinstance(hello, Hello):
        return Error(code="no_hello", message="The first message was no greeting. Send hello with the token first.")
    if not token_matches(hello.token, token):
        text = "The token is wrong. Use the one in the token file of this server, which changes at every start."
        return Error(code="wrong_token", message=text)
    if hello.protocol != PROTOCOL:
        older = "the window" if hello.protocol < PROTOCOL else "the engine"
        text = f"The window speaks protocol {hello.protocol} and the engine {PROTOCOL}. Update {older}."
        return Error(code="protocol_mismatch", message=text)
    return None


def decoded(frame: str | bytes) -> Message:
    """The message of a frame, or an error that says what is wrong with it."""
    if isinstance(frame, bytes):
        return Error(code="malformed", message="A binary frame came. Send JSON in text frames.")
    size = len(frame) if len(frame) * 4 <= MAX_FRAME else len(frame.encode(errors="surrogatepass"))
    if size > MAX_FRAME:
        text = f"The message has {size:,} bytes and at most {MAX_FRAME:,} are taken. Send a shorter conversation."
        return Error(code="too_large", message=text, id=_kind(frame).id)  # or who waits for an answer waits for ever
    try:
        message: Message = decode_to_engine(frame)
        return message
    except UNREADABLE as error:
        problem = str(error)
    kind = _kind(frame)
    if kind is _NOTHING:
        return Error(
            code="malformed", message="A message was not understood: it is not a JSON object. Send one per frame."
        )
    if "`$.type`" in problem or not kind.type:
        text = f"A message of type {kind.type!r} is unknown here. Update the older of the window and the engine."
        return Error(code="unknown_message", message=text, id=kind.id)
    text = f"A message of type {kind.type!r} was not understood ({problem}). Correct that field."
    return Error(code="malformed", message=text, id=kind.id)
