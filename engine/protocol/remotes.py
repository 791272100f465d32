"""Servers elsewhere that speak OpenAI's API, whose models answer like those of this machine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from engine.protocol.base import Part


class RemoteModel(Part, frozen=True):
    """A model of another server, by the server's name here and the model's name there."""

    server: str
    model: str


class RemoteServer(Part, frozen=True):
    """``url``: to which `/chat/completions` is added. ``warning``: a sentence about a connection that all can read."""

    name: str
    url: str
    warning: str = ""


class OfferedModel(Part, frozen=True):
    """``context``: tokens that it takes, 0 where the server does not say."""

    name: str
    context: int = 0


class ListRemotes(Part, frozen=True):
    """List the other servers that were added."""


class AddRemote(Part, frozen=True):
    """Add a server that speaks OpenAI's API, once it has told its models."""

    url: Annotated[str, Meta(description="Its address, such as https://example.org/v1; /v1 is added to a bare one.")]
    name: Annotated[str, Meta(description="A name for it; its host if left out.")] = ""
    key: Annotated[str, Meta(description="The key that it asks for; none if left out.")] = ""


class AddedRemote(Part, frozen=True):
    """``place``: where its key is kept, for people; "" without one."""

    server: RemoteServer
    models: list[OfferedModel]
    place: str = ""


class RemoveRemote(Part, frozen=True):
    """Forget a server and its key."""

    name: str


class ListRemoteModels(Part, frozen=True):
    """Ask a server for its models."""

    name: str
