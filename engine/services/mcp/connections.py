"""Connections to the user's MCP servers: opened when first needed, in a thread of their own, closed with the process.

The `mcp` package takes a second to import, so it is imported with the first connection.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from engine.base import stopping
from engine.base.errors import plain
from engine.base.fetching.client import certificates
from engine.base.fetching.errors import cause, causes
from engine.base.installation import version
from engine.services.mcp.logins import Logins, Redirect, provider
from engine.services.mcp.servers import KeptServer
from engine.services.operations import OperationFailed

if TYPE_CHECKING:
    import httpx2
    import mcp_types
    from mcp.client import Client

log = logging.getLogger(__name__)

T = TypeVar("T")
OPEN_SECONDS = 60.0
"""How long a server may take to start, which may download it first (npx, uvx)."""
LOGIN_SECONDS = 300.0
"""How long a person may take to log in."""
CLOSE_SECONDS = 5.0
RETRY_SECONDS = 60.0
"""How long a server that failed is not tried again."""
MOST_TOOLS = 256
_LAST_LINES = 5
_MOST_LINE = 300


class LoginNeeded(OperationFailed):
    """A server asks the person to log in."""


class Connection:
    """One server. Lives in the loop of :class:`Connections`."""

    def __init__(self, name: str, entry: KeptServer, redirect: Redirect | None = None) -> None:
        """``redirect``: the person logs in meanwhile."""
        self.name, self.entry, self._redirect = name, entry, redirect
        self._asks_for_login = False
        self.failed = ""
        """The reason why it cannot be used, as a sentence."""
        self.since = time.monotonic()
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._hold())

    @property
    def failure(self) -> OperationFailed:
        """The error that says why it cannot be used."""
        return (LoginNeeded if self._asks_for_login else OperationFailed)(self.failed)

    async def tools(self, seconds: float = OPEN_SECONDS) -> list[mcp_types.Tool]:
        """The tools that it has now. Raises what the connection raises, and TimeoutError."""
        async with asyncio.timeout(seconds):
            client = await asyncio.shield(self._client)
            page = await client.list_tools()
            found = list(page.tools)
            while page.next_cursor and len(found) <= MOST_TOOLS:
                page = await client.list_tools(cursor=page.next_cursor)
                found += page.tools
        return found

    async def tools_or_none(self) -> list[mcp_types.Tool] | None:
        """The tools that it has now; None where it has ended. Raises :class:`OperationFailed` for one that is busy."""
        try:
            return await self.tools()
        except TimeoutError as error:
            raise OperationFailed(self.sentence(error)) from error
        except Exception:
            log.info("MCP server %s has ended and is started again", self.name, exc_info=True)
            return None

    async def call(
        self, tool: str, arguments: dict[str, Any], progress: Any, seconds: float
    ) -> mcp_types.CallToolResult:
        """Raises what the connection raises, and TimeoutError after ``seconds``."""
        client = await asyncio.shield(self._client)
        async with asyncio.timeout(seconds):
            return await client.call_tool(tool, arguments, progress_callback=progress)

    async def close(self) -> None:
        """End it, and its process."""
        self._closing.set()
        _, late = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        if late:
            self._task.cancel()

    def sentence(self, error: BaseException) -> str:
        """What an error of this server means to a person, with what the server said last."""
        said = " ".join(self._said)
        if self._redirect is not None and self._redirect.refused:
            return self._redirect.refused
        if self._asks_for_login and self._redirect is None:
            return (
                f"The MCP server {self.name} asks you to log in. Press Connect in the list of MCP servers, or run "
                f"`kvasir mcp login {self.name}`."
            )
        return plain(_reason(self.name, self.entry, error) + (f" It said: {said}" if said else ""), most=1000)

    async def _hold(self) -> None:
        """Keep it open, in one task from its beginning to its end, as the package needs it."""
        from mcp.client import Client
        from mcp_types import Implementation

        program = Implementation(name="kvasir", version=version())
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each address, which may hold a key
        try:
            with self._errors() as errors:
                async with (
                    self._transport(errors) as transport,
                    Client(transport, cache=None, client_info=program) as client,
                ):
                    self._client.set_result(client)
                    await self._closing.wait()
        except Exception as error:
            log.info("MCP server %s: %s", self.name, error)
            if not self._client.done():
                self._client.set_exception(error)
        finally:
            self._client.cancel()

    @contextlib.asynccontextmanager
    async def _transport(self, errors: TextIO) -> AsyncIterator[Any]:
        """Yield what carries the messages: a process's input and output, or HTTP."""
        entry = self.entry
        if entry.command:
            from mcp.client.stdio import StdioServerParameters, stdio_client

            folder = os.path.expanduser(entry.cwd) if entry.cwd else Path.home()
            started = StdioServerParameters(command=entry.command, args=entry.args, env=entry.env, cwd=folder)
            yield stdio_client(started, errors)
            return
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        waits = httpx2.Timeout(OPEN_SECONDS, read=None)  # calls have a time limit of their own
        hooks = {"response": [self._note]}
        login = provider(self.name, entry.url, self._redirect)
        async with httpx2.AsyncClient(
            headers=entry.headers, timeout=waits, event_hooks=hooks, verify=certificates(), auth=login
        ) as client:
            yield streamable_http_client(entry.url, http_client=client)

    async def _note(self, response: httpx2.Response) -> None:
        if response.status_code == 401 and "www-authenticate" in response.headers:
            self._asks_for_login = True
        if response.is_error:
            self._said.append(f"{response.status_code} {response.reason_phrase}.")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[TextIO]:
        """Yield a file whose lines go to the log: the standard error of its process."""
        read, write = os.pipe()
        threading.Thread(target=self._copy, args=(read,), name=f"mcp-{self.name}", daemon=True).start()
        with os.fdopen(write, "w", encoding="utf-8", errors="replace") as errors:
            yield errors

    def _copy(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(_MOST_LINE):
                if said := plain(line.strip()):
                    self._said.append(said)
                    log.info("MCP server %s: %s", self.name, said)


class Connections:
    """The connections of this process. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[str, Connection] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        """Held while a server is asked for its tools, so that nobody starts it twice."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work`` in the thread of the connections. Raises what it raises, and Stopped."""
        stop = stopping.current()
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        with stop.waking(future.cancel):
            try:
                return future.result()
            except CancelledError:
                stop.check()
                raise OperationFailed("Kvasir is closing its connections. Try again.") from None
            finally:
                future.cancel()  # Ctrl-C ends the wait alone

    async def tools(self, name: str, entry: KeptServer, again: bool = False) -> tuple[Connection, list[mcp_types.Tool]]:
        """The connection to a server and the tools that it has now. A server that has ended is started again, once.

        Raises :class:`OperationFailed`.
        """
        async with self._turns.setdefault(name, asyncio.Lock()):
            old = self._open.get(name)
            if old is not None and old.entry == entry.reached_by:
                if old.failed and not again and time.monotonic() - old.since < RETRY_SECONDS:
                    raise old.failure
                if not old.failed and (found := await old.tools_or_none()) is not None:
                    return old, found
            await self.drop(name)
            new = self._open[name] = Connection(name, entry.reached_by)
            try:
                return new, await new.tools()
            except Exception as error:
                await new.close()
                new.failed = new.sentence(error)
                raise new.failure from error

    async def login(self, name: str, entry: KeptServer, show: Callable[[str], object]) -> None:
        """Have the person log in on a page, which ``show`` shows. Raises :class:`OperationFailed`."""
        await self.drop(name)
        Logins(name, entry.url).forget()
        async with Redirect(show) as redirect:
            new = Connection(name, entry.reached_by, redirect)
            try:
                await new.tools(LOGIN_SECONDS)
            except Exception as error:
                raise OperationFailed(new.sentence(error)) from error
            finally:
                await new.close()

    async def drop(self, name: str) -> None:
        """Close the connection to a server, if there is one."""
        if (old := self._open.pop(name, None)) is not None:
            await old.close()

    def any(self) -> bool:
        return bool(self._open)

    async def keep(self, names: set[str]) -> None:
        """Close those to servers that are not among these."""
        await asyncio.gather(*(self.drop(name) for name in set(self._open) - names))

    def close(self) -> None:
        """Close all of them, and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self.keep(set()), loop).result(2 * CLOSE_SECONDS)
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_forever, args=(self._loop,), name="mcp", daemon=True).start()
                atexit.register(self.close)
            return self._loop


connections = Connections()


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _reason(name: str, entry: KeptServer, error: BaseException) -> str:
    """The first error that says why."""
    from mcp import MCPError

    leaves = list(_leaves(error))
    what = next((each for each in leaves if isinstance(each, OSError | TimeoutError)), leaves[0])
    if isinstance(what, FileNotFoundError) and entry.command:
        return f"The program {entry.command} of the MCP server {name} is not there. Install it, or give its whole path."
    if isinstance(what, TimeoutError):
        return f"The MCP server {name} did not answer in time. Check that it works, or try again."
    if isinstance(what, MCPError) and "closed" in what.message.lower():
        return f"The MCP server {name} ended before it answered. It is started again when it is next needed."
    where = f" at {entry.url}" if entry.url else ""
    return f"The MCP server {name}{where} cannot be used ({cause(what)}). Check it, then try again."


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, and what they came of."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield from causes(error)
