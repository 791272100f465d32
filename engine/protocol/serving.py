"""The server that other programs of this machine use: where it listens, and who asks it what, without texts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from engine.protocol.base import Part

PORT = 8642
"""Where other programs look for the server, unless the user chooses another port."""


class ListenFor(Part, frozen=True):
    """Listen on a fixed port for programs of this machine, in the place of the one before; 0: on none."""

    port: Annotated[int, Meta(ge=0, le=65535)] = PORT


class Listening(Part, frozen=True):
    """``url``: base address of the server for other programs; "" where it does not listen for them."""

    url: str = ""


class WatchRequests(Part, frozen=True):
    """Tell what is asked over HTTP: at once, after each change, and until it is stopped."""


class HttpRequest(Part, frozen=True):
    """One request. ``began`` in seconds since 1970; ``status`` 0 while it is in progress, and where nothing was sent.

    ``key``: name of the key that it came with, "" where that was not accepted. ``model`` is "" and both numbers of
    tokens are 0 where no model was asked. ``service``: its service class, "" for none in particular.
    """

    began: float
    seconds: float
    path: str
    key: str = ""
    client: str = ""
    method: str = "GET"
    model: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    service: str = ""
    status: int = 0
    running: bool = False


class HttpRequests(Part, frozen=True):
    """Requests since the server's start: their number, the tokens of those that have ended, and the last ones, the
    newest first. ``running``: those in progress. ``connections``: those open now."""

    total: int = 0
    running: int = 0
    connections: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    last: list[HttpRequest] = []
