"""Logins at MCP servers that ask for one, by the `mcp` package: OAuth 2.1 with PKCE and dynamic registration.

``mcp-logins.json``, next to the settings, holds what servers granted; only the user can read it, as ``mcp.json``. A
system's keyring does not do: a GPU pack has none, and Windows's takes 2,560 bytes, which many tokens exceed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlsplit

import msgspec

from engine.base import folders
from engine.base.errors import plain
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.services.keys import write_private
from engine.services.operations import OperationFailed

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

EARLY_SECONDS = 30.0
"""How long before its end a token is taken as ended."""
READ_SECONDS = 10.0
CALLBACK = "/callback"
_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\r\n"
    "<!doctype html><title>Kvasir</title><p>{words}</p>"
)


class KeptLogin(msgspec.Struct, frozen=True):
    """``tokens`` and ``client`` (the program as the server registered it) as JSON, ``until`` in seconds since 1970.

    They count for this ``url`` alone, so that no other server is ever told them.
    """

    url: str
    client: str = ""
    tokens: str = ""
    until: float = 0.0


def file() -> Path:
    """Path of ``mcp-logins.json``."""
    return folders.place("config", folders.SYSTEM.user_config_path) / "mcp-logins.json"


class Logins:
    """The login at one server, as :class:`mcp.client.auth.TokenStorage` wants it."""

    def __init__(self, name: str, url: str) -> None:
        self._name, self._url = name, url

    @property
    def kept(self) -> KeptLogin:
        """Raises :class:`OperationFailed`."""
        found = _read().get(self._name)
        return found if found is not None and found.url == self._url else KeptLogin(self._url)

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        kept = self.kept
        if not kept.tokens:
            return None
        tokens = OAuthToken.model_validate_json(kept.tokens)
        late = 0 < kept.until < time.time() + EARLY_SECONDS
        return tokens.model_copy(update={"access_token": ""}) if late else tokens  # the package then asks for another

    async def set_tokens(self, tokens: OAuthToken) -> None:
        until = time.time() + tokens.expires_in if tokens.expires_in else 0.0
        self._keep(msgspec.structs.replace(self.kept, tokens=tokens.model_dump_json(), until=until))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        kept = self.kept.client
        return OAuthClientInformationFull.model_validate_json(kept) if kept else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._keep(msgspec.structs.replace(self.kept, client=client_info.model_dump_json()))

    def forget(self) -> None:
        self._keep(None)

    def _keep(self, login: KeptLogin | None) -> None:
        path = file()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        busy = OperationFailed("Another Kvasir is changing the logins at MCP servers. Wait a moment and try again.")
        with lock(path.with_name(path.name + ".lock"), busy, 10.0):
            logins = {name: each for name, each in _read().items() if name != self._name}
            kept = logins if login is None else {**logins, self._name: login}
            write_private(path, msgspec.json.format(msgspec.json.encode(kept), indent=1))


class Redirect:
    """The place on this computer to which a login sends the browser back (RFC 8252, section 7.3), as long as it is
    entered. ``show``: what shows the person the page of the login."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show, self._state = show, ""
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self.url = ""
        self.refused = ""
        """Sentence on a login that the server refused."""

    async def __aenter__(self) -> Redirect:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=1 << 14)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{CALLBACK}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        self._result.cancel()

    async def open(self, url: str) -> None:
        """Show the page on which the person logs in. Raises :class:`OperationFailed` for what is no page."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise OperationFailed("The server's login is no page that a browser may open.")
        self._state = parse_qs(urlsplit(url).query)["state"][0]
        await asyncio.to_thread(self._show, url)

    async def wait(self) -> AuthorizationCodeResult:
        """What the page said at its end. Raises :class:`OperationFailed`."""
        return await self._result

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(READ_SECONDS):
                _, target, *_ = (await reader.readline()).decode("ascii", "replace").split()
            said = dict(parse_qsl(urlsplit(target).query))
            ours = urlsplit(target).path == CALLBACK and bool(self._state)
            if ours and secrets.compare_digest(said.get("state", "").encode(), self._state.encode()):
                words = self._take(said)
                writer.write(_PAGE.format(status="200 OK", words=words).encode())
            else:  # of another page than the one that was opened
                writer.write(_PAGE.format(status="404 Not Found", words="There is nothing here.").encode())
            await writer.drain()
        writer.close()

    def _take(self, said: dict[str, str]) -> str:
        from mcp.shared.auth import AuthorizationCodeResult

        if code := said.get("code"):
            if not self._result.done():
                self._result.set_result(AuthorizationCodeResult(code=code, state=said["state"], iss=said.get("iss")))
            return "You are logged in. Close this page and go back to Kvasir."
        reason = plain(said.get("error_description") or said.get("error") or "no reason given", most=200)
        self.refused = f"The server did not let you in ({reason}). Try again, or ask whoever runs it."
        if not self._result.done():
            self._result.set_exception(OperationFailed(self.refused))
        return "You are not logged in. Close this page and go back to Kvasir."


def provider(name: str, url: str, redirect: Redirect | None) -> OAuthClientProvider | None:
    """What logs requests in; None where the person has not logged in, and does not do so now (``redirect``)."""
    logins = Logins(name, url)
    if redirect is None and not logins.kept.tokens:
        return None
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    metadata = OAuthClientMetadata(
        client_name="Kvasir",
        redirect_uris=[AnyUrl(redirect.url if redirect is not None else f"http://127.0.0.1{CALLBACK}")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    if redirect is None:
        return OAuthClientProvider(url, metadata, logins)
    return OAuthClientProvider(url, metadata, logins, redirect.open, redirect.wait)


def _read() -> dict[str, KeptLogin]:
    try:
        return decode_file(file(), dict[str, KeptLogin]) or {}
    except UnreadableFileError as error:
        raise OperationFailed(f"{error.reason} Delete it, and log in again.") from error
