"""An MCP server that asks to log in, with its authorization server, in a thread of this process."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl


class Gate(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Lets everybody in, and remembers whom."""

    def __init__(self) -> None:
        self.url = ""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: set[str] = set()
        self.refreshed = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=[],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._granted()

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return RefreshToken(token=refresh_token, client_id=client.client_id, scopes=[])

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        self.refreshed += 1
        return self._granted()

    async def load_access_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="any", scopes=[]) if token in self.tokens else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.discard(token.token)

    def _granted(self) -> OAuthToken:
        self.tokens.add(token := secrets.token_urlsafe(16))
        return OAuthToken(access_token=token, refresh_token="again", expires_in=3600)


@contextmanager
def locked_server() -> Iterator[Gate]:
    """Yield the gate of a server whose tool ``echo`` says a text again; its ``url`` is that of the server."""
    gate = Gate()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        gate.url = f"{base}/mcp"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(gate.url),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        )
        server = MCPServer("locked", auth_server_provider=gate, auth=settings)

        @server.tool()
        def echo(text: str) -> str:
            """Say the text again."""
            return text

        web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error"))
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield gate
        finally:
            web.should_exit = True
            thread.join(20)
