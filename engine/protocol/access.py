"""Named keys: what opens the server's HTTP interface to other programs, besides the token of its session."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from engine.protocol.base import Part

ServiceName = Literal["", "interactive", "standard", "batch"]
"""A service class; "": none in particular."""


class NamedKey(Part, frozen=True):
    """A key without its secret. ``created`` and ``expires`` in seconds since 1970; ``expires`` 0: never.

    ``rate``: requests a minute, and ``concurrent``: requests in progress at once, that it may have; 0: any number.
    ``service`` is the class of its requests, which may ask for a less urgent one alone; "": they choose.
    """

    name: str
    created: int
    expires: int = 0
    rate: int = 0
    concurrent: int = 0
    service: ServiceName = ""


class AddKey(Part, frozen=True):
    """Make a key for a program that asks over HTTP. It is shown this once."""

    name: Annotated[str, Meta(description="A name for it, such as that of the program or machine that gets it.")]
    rate: Annotated[int, Meta(ge=0, description="Requests a minute that it may make; 0: any number.")] = 0
    concurrent: Annotated[int, Meta(ge=0, description="Requests that it may have at once; 0: any number.")] = 0
    service: Annotated[
        ServiceName, Meta(description="Class of its requests: interactive, standard or batch; they choose if left out.")
    ] = ""
    days: Annotated[int, Meta(ge=0, le=36500, description="Days until it expires; 0: never.")] = 0


class AddedKey(Part, frozen=True):
    """``key``: the secret, which is kept nowhere."""

    key: str
    record: NamedKey


class ListKeys(Part, frozen=True):
    """List the keys of the server, without their secrets."""


class RevokeKey(Part, frozen=True):
    """Take a key back: a running server accepts it no more."""

    name: Annotated[str, Meta(description="The key's name, as `kvasir keys list` shows it.")]
