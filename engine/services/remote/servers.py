"""The servers elsewhere that were added: their addresses in a file, their keys where tokens of hubs are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from engine.base import folders
from engine.base.errors import plain
from engine.base.fetching.client import is_here
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.library import keys
from engine.protocol import (
    AddedRemote,
    AddRemote,
    ListRemoteModels,
    ListRemotes,
    OfferedModel,
    RemoteServer,
    RemoveRemote,
)
from engine.services.keys import write_private
from engine.services.operations import Context, Emit, OperationFailed
from engine.services.remote.asking import RemotePlace, asked, finished, start

LIST_S = 30.0
"""Seconds in which a server tells its models."""
MOST_LIST_BYTES, MOST_MODELS = 1 << 22, 1000
MOST_NAME, MOST_URL = 60, 2000
_KEY = re.compile(r"[\x21-\x7e]{0,4096}")


def file() -> Path:
    """Path of ``remote-servers.json``, which holds no key."""
    return folders.place("config", folders.SYSTEM.user_config_path) / "remote-servers.json"


def listed(context: Context, request: ListRemotes, emit: Emit) -> list[RemoteServer]:
    """Raises :class:`OperationFailed`."""
    return _read()


def add(context: Context, request: AddRemote, emit: Emit) -> AddedRemote:
    """Raises :class:`OperationFailed`, FetchFailed and OSError; then nothing is kept."""
    url, key = _address(request.url), request.key.strip()
    name = request.name.strip() or urlsplit(url).netloc
    if len(name) > MOST_NAME or plain(name) != name:
        raise OperationFailed(f"A name is one line of {MOST_NAME} characters at most. Choose another one.")
    if not _KEY.fullmatch(key):
        raise OperationFailed("That is no key: it has characters that none has. Copy the key once more.")
    server = RemoteServer(name=name, url=url, warning=_warning(url))
    _with(server)(_read())
    found = finished(_models(RemotePlace(name, url, key)))
    place = keys.write(_secret(server), key) if key else ""
    _change(_with(server))
    return AddedRemote(server=server, models=found, place=place)


def remove(context: Context, request: RemoveRemote, emit: Emit) -> list[RemoteServer]:
    """The servers that are left. Raises :class:`OperationFailed` and OSError."""
    server = _server(request.name)
    left = _change(lambda servers: [each for each in servers if each.name != server.name])
    if not keys.forget(_secret(server)):
        raise OperationFailed(f"{server.name} is forgotten, but the system's keyring keeps its key. Delete it there.")
    return left


def models(context: Context, request: ListRemoteModels, emit: Emit) -> list[OfferedModel]:
    """Raises :class:`OperationFailed` and FetchFailed."""
    return finished(_models(place_of(request.name)))


def place_of(name: str) -> RemotePlace:
    """Raises :class:`OperationFailed`."""
    server = _server(name)
    return RemotePlace(server.name, server.url, keys.read(_secret(server)))


class _Listed(msgspec.Struct):
    """A model in /models: vLLM and SGLang tell ``max_model_len``, Kvasir and OpenRouter ``context_length``."""

    id: str
    max_model_len: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    context_length: Annotated[int, Meta(ge=0, le=2**40)] | None = None


class _List(msgspec.Struct):
    data: list[_Listed]


async def _models(place: RemotePlace) -> list[OfferedModel]:
    try:
        async with asyncio.timeout(LIST_S), asked(place, "/models") as response:
            content = await start(response, MOST_LIST_BYTES)
    except TimeoutError:
        raise OperationFailed(f"{place.name} did not tell its models in {LIST_S:.0f} seconds. Try again.") from None
    try:
        found = msgspec.json.decode(content, type=_List).data[:MOST_MODELS]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        text = (
            f"{place.url}/models gives no list of models, but: {place.words(content.decode(errors='replace'))} "
            "Add the address of its OpenAI-compatible API, which most often ends with /v1."
        )
        raise OperationFailed(text) from None
    return [
        OfferedModel(name=each.id, context=each.max_model_len or each.context_length or 0)
        for each in found
        if plain(each.id) == each.id
    ]


def _address(text: str) -> str:
    """The address to which paths are added. Raises :class:`OperationFailed`."""
    url = text.strip().rstrip("/").removesuffix("/chat/completions").removesuffix("/models")
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or len(url) > MOST_URL or plain(url) != url or " " in url:
        raise OperationFailed("That is not the address of a server. Write it like https://example.org/v1.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise OperationFailed(
            "The address holds more than a place. Leave out names, passwords and what follows ? or #."
        )
    return url if parts.path else f"{url}/v1"


def _warning(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" or is_here(url):
        return ""
    return f"Chats and the key go to {parts.hostname} unencrypted: whoever is in between can read them. Use https."


def _secret(server: RemoteServer) -> str:
    """Name that its key is kept under; with the address, so that no other one is ever told it."""
    return f"remote server {server.name} {server.url}"


def _server(name: str) -> RemoteServer:
    found = next((each for each in _read() if each.name == name), None)
    if found is None:
        raise OperationFailed(
            f"There is no server {plain(name, most=MOST_NAME)!r} any more. Add it under Models again."
        )
    return found


def _with(server: RemoteServer) -> Callable[[list[RemoteServer]], list[RemoteServer]]:
    def edit(servers: list[RemoteServer]) -> list[RemoteServer]:
        if any(each.name == server.name for each in servers):
            raise OperationFailed(f"There is a server {server.name} already. Choose another name, or remove that one.")
        return [*servers, server]

    return edit


def _read() -> list[RemoteServer]:
    try:
        return decode_file(file(), list[RemoteServer]) or []
    except UnreadableFileError as error:
        raise OperationFailed(f"{error.reason} Delete it, and add the servers again.") from error


def _change(edit: Callable[[list[RemoteServer]], list[RemoteServer]]) -> list[RemoteServer]:
    """Replace what is kept, in one step. ``edit`` may raise. Raises :class:`OperationFailed` and OSError."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = OperationFailed("Another Kvasir is changing the servers. Wait a moment and try again.")
    with lock(path.with_name(path.name + ".lock"), busy, 10.0):
        changed = edit(_read())
        write_private(path, msgspec.json.format(msgspec.json.encode(changed), indent=1))
    return changed
