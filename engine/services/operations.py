"""The functions behind the table of operations (`engine/protocol/operations.py`), and how one is performed.

A function takes a context, the request and what to call with events, and returns the answer. It runs in a thread of its
own and raises its refusals; `engine.base.stopping` tells it to stop. Its module is imported when it is first performed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from engine.base import installation, stopping
from engine.base.errors import OperationFailed
from engine.base.fetching.errors import FetchFailed
from engine.base.stopping import Stop
from engine.protocol import CallAnswer, CallEvent, Error
from engine.protocol.base import Message, Part
from engine.protocol.calls import Operation

if TYPE_CHECKING:
    from engine.services.hub import EngineHub
    from engine.services.residency import Residency
    from engine.services.serving import Serving

RequestT = TypeVar("RequestT", bound=Part | Message)
EventT = TypeVar("EventT")
AnswerT = TypeVar("AnswerT")
T = TypeVar("T")
Emit = Callable[[Any], object]

FUNCTIONS = {
    "models.list": "engine.services.models.stored:list_models",
    "models.search": "engine.services.models.hub:search",
    "models.show": "engine.services.models.hub:show",
    "models.get": "engine.services.models.hub:add_download",
    "models.downloads": "engine.services.models.stored:downloads_of",
    "models.fit": "engine.services.models.fit:fit",
    "models.outline": "engine.services.models.hub:outline",
    "models.drafts": "engine.services.models.advice:drafts",
    "models.recommended": "engine.services.models.advice:recommended",
    "models.details": "engine.services.models.details:details",
    "models.tokens": "engine.services.models.details:tokens",
    "models.embed": "engine.services.models.embedding:embed",
    "models.disk": "engine.services.models.disk:look",
    "models.folders": "engine.services.models.stored:change_folders",
    "models.import": "engine.services.models.importing:bring",
    "models.unfinished": "engine.services.models.making:unfinished",
    "models.rm": "engine.services.models.stored:remove",
    "lab.list": "engine.services.experiments.operations:experiments",
    "lab.run": "engine.services.experiments.operations:run",
    "lab.compare": "engine.services.experiments.operations:compare_columns",
    "keys.add": "engine.services.keys:add",
    "keys.list": "engine.services.keys:listed",
    "keys.revoke": "engine.services.keys:revoke",
    "server.listen": "engine.services.listening:listen",
    "server.watch": "engine.services.listening:watch",
    "mcp.list": "engine.services.mcp.tools:listed",
    "mcp.add": "engine.services.mcp.servers:add",
    "mcp.remove": "engine.services.mcp.servers:remove",
    "mcp.login": "engine.services.mcp.tools:login",
    "mcp.allow": "engine.services.mcp.tools:allow",
    "mcp.call": "engine.services.mcp.tools:call",
    "remotes.list": "engine.services.remote.servers:listed",
    "remotes.add": "engine.services.remote.servers:add",
    "remotes.remove": "engine.services.remote.servers:remove",
    "remotes.models": "engine.services.remote.servers:models",
    "remotes.answer": "engine.services.remote.answers:answer",
}
"""Module and name of the function of each operation that runs in the engine, or by `kvasir operation`."""
FETCH_FAILED = "fetch_failed"
"""Code of the error of an operation for which a server could not be asked."""


class Context(NamedTuple):
    """``hub``: the engine of this process, ``residency`` its models, ``serving`` its HTTP; None in a terminal's, which
    has none."""

    hub: EngineHub | None = None
    residency: Residency | None = None
    serving: Serving | None = None


def perform(
    operation: Operation[RequestT, EventT, AnswerT],
    request: RequestT,
    emit: Callable[[EventT], object] = lambda event: None,
    context: Context = Context(),
) -> AnswerT:
    """The answer. Raises what the operation's function raises, and :class:`engine.base.stopping.Stopped`."""
    if operation.hub and installation.pack() is not None:  # which has no keyring, and no library for all proxies
        return _of_program(operation, request, emit)
    return cast("AnswerT", function_of(operation)(context, request, emit))


def function_of(operation: Operation[Any, Any, Any]) -> Callable[[Context, Any, Emit], Any]:
    """Import the function that performs it."""
    module, _, name = FUNCTIONS[operation.name].partition(":")
    function: Callable[[Context, Any, Emit], Any] = getattr(importlib.import_module(module), name)
    return function


def encoded(record: object) -> bytes:
    """A record in JSON. Raises :class:`OperationFailed`."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        raise OperationFailed(
            "A name that is not UTF-8 cannot be written as JSON. Rename the file or folder."
        ) from None


def code_of(error: Exception) -> str:
    """The code of the error message that ends an operation."""
    return FETCH_FAILED if isinstance(error, FetchFailed) else "failed"


async def in_thread(work: Callable[[], T], stop: Stop) -> T:
    """The result of ``work`` in a thread of its own, which holds no process that ends; ``stop`` ends the work."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("T", value))

    def run() -> None:
        value, failed = None, None
        try:
            with stopping.stoppable(stop):
                value = work()
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=run, name="operation", daemon=True).start()
    return await result


# --- a process of its own ------------------------------------------------------------------------------------------


def _of_program(
    operation: Operation[RequestT, EventT, AnswerT], request: RequestT, emit: Callable[[EventT], object]
) -> AnswerT:
    """The answer of the program's own process, which is asked from a GPU pack's."""
    stop = stopping.current()
    command = [*installation.program_command(), "operation", operation.name]
    window = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, creationflags=window) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with stop.waking(child.kill):
            with contextlib.suppress(OSError):  # it has ended, which its answer tells
                child.stdin.write(encoded(request))
                child.stdin.close()
            for line in child.stdout:
                told = msgspec.json.decode(line, type=CallEvent | CallAnswer | Error)
                if isinstance(told, Error):
                    raise (FetchFailed if told.code == FETCH_FAILED else OperationFailed)(told.message)
                if isinstance(told, CallAnswer):
                    return operation.read_answer(told.answer)
                emit(operation.read_event(told.event))
    stop.check()
    raise OperationFailed(f"Kvasir's own process ended without an answer (exit code {child.returncode}). Try again.")
