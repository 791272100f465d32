"""Calls of tools behind an answer: asked for, allowed, run, until all of them have a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from PySide6.QtCore import QObject, Signal

from app.history.records import StoredMessage
from app.link.calls import NOT_CONNECTED, Caller, PendingCall
from engine.protocol import ChatMessage, Error, MessagePart, ModelCard, Tool, ToolCall, ToolConfig, ToolResult
from engine.protocol.mcp import AllowTool, CallTool, ListServers, McpServer, McpTool, ToolOutcome, ToolProgress
from engine.protocol.operations import ALLOW_TOOL, CALL_TOOL, LIST_SERVERS

MOST_ROUNDS = 25
"""Answers in a row that may call tools before the person says something again."""
ENOUGH = f"Tools were called {MOST_ROUNDS} times in a row. Send a message to go on."
DENIED = "The user denied this call."
STOPPED = "The user stopped this call."
Decision = Literal["once", "always", "deny"]
CallState = Literal["asked", "running", "done"]


class ShownCall(NamedTuple):
    """A call as the transcript shows it. ``progress``: what its tool last told of it."""

    call: ToolCall
    state: CallState
    progress: str = ""


class _Known(NamedTuple):
    server: str
    tool: McpTool


class _Round:
    """The calls of one answer."""

    def __init__(self, answer: StoredMessage) -> None:
        self.answer = answer
        self.tools: dict[str, _Known] | None = None
        """By the names that the model calls them; None until the servers have told them."""
        self.decisions: dict[str, Decision] = {}
        self.running: dict[str, PendingCall[Any, Any]] = {}
        self.progress: dict[str, str] = {}
        self.results: dict[str, ToolResult] = {}

    def state(self, call: ToolCall) -> CallState:
        if call.id in self.results:
            return "done"
        waits = self.tools is None and (call.id in self.decisions or not self.decisions)
        return "running" if waits or call.id in self.running else "asked"


def seen_by(card: ModelCard | None, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages as a model can read them: pictures of tools' results are named for one that sees none."""
    if card is None or card.pictures:
        return list(messages)
    return [msgspec.structs.replace(message, parts=list(map(_named, message.parts))) for message in messages]


def _named(part: MessagePart) -> MessagePart:
    if not isinstance(part, ToolResult) or not part.pictures:
        return part
    count = len(part.pictures)
    note = f"[{count} {'picture' if count == 1 else 'pictures'}, which you cannot see]"
    return msgspec.structs.replace(part, pictures=[], content=f"{part.content}\n{note}".lstrip())


def config_of(servers: Sequence[McpServer], wanted: Sequence[str]) -> tuple[ToolConfig | None, str]:
    """The tools of the servers that a chat has, and sentences on those that cannot be used."""
    chosen = [server for server in servers if server.name in wanted]
    tools = [
        Tool(name=tool.called, description=tool.description, parameters=tool.parameters)
        for server in chosen
        for tool in server.tools
    ]
    gone = [f"There is no MCP server {name} any more." for name in wanted if name not in {each.name for each in chosen}]
    notice = " ".join([*(server.detail for server in chosen if server.detail), *gone])
    return (ToolConfig(tools=tools) if tools else None), notice


class ToolRounds(QObject):
    """The rounds of all chats. No call is run that neither a rule nor the person allowed."""

    changed = Signal(str)
    """The id of an answer whose calls stand otherwise now."""
    ended = Signal(object, object)
    """(the answer, the results of its calls): all of them have one."""
    failed = Signal(str)
    """Something that the person asked for could not be done; a sentence."""

    def __init__(self, engine: Caller, parent: QObject) -> None:
        super().__init__(parent)
        self._engine = engine
        self._rounds: dict[str, _Round] = {}

    def begin(self, answer: StoredMessage) -> None:
        """Run what rules allow, and leave the rest to :meth:`decide`."""
        self._rounds[answer.id] = round_ = _Round(answer)
        self._list(round_)

    def decide(self, answer: StoredMessage, call_id: str, decision: Decision) -> None:
        """The person's word for one call, of an earlier run of the program, too."""
        round_ = self._rounds.get(answer.id)
        if round_ is None:
            round_ = self._rounds[answer.id] = _Round(answer)
            self._list(round_)
        round_.decisions[call_id] = decision
        self._go_on(round_)

    def shown(self, answer: StoredMessage) -> list[ShownCall]:
        """The calls of an answer that waits for their results."""
        round_ = self._rounds.get(answer.id)
        if round_ is None:
            return [ShownCall(call, "asked") for call in answer.calls]
        return [ShownCall(call, round_.state(call), round_.progress.get(call.id, "")) for call in answer.calls]

    def running(self, answer_id: str) -> bool:
        """True if something goes on that can be stopped, and not only a question to the person."""
        round_ = self._rounds.get(answer_id)
        return round_ is not None and any(round_.state(call) == "running" for call in round_.answer.calls)

    def stop(self, answer_id: str) -> list[ToolResult] | None:
        """Stop what runs; returns the results there are, None where nothing was begun."""
        round_ = self._rounds.pop(answer_id, None)
        if round_ is None:
            return None
        for pending in round_.running.values():
            pending.cancel()
        stopped = [ToolResult(id, STOPPED, failed=True) for id in round_.running]
        return [*round_.results.values(), *stopped]

    def stop_chat(self, chat_id: str) -> None:
        """Every round of a chat that is going away."""
        for answer_id in [id for id, round_ in self._rounds.items() if round_.answer.chat == chat_id]:
            self.stop(answer_id)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _list(self, round_: _Round) -> None:
        def known(servers: list[McpServer]) -> None:
            round_.tools = {tool.called: _Known(server.name, tool) for server in servers for tool in server.tools}
            self._go_on(round_)

        def failed(error: Error) -> None:
            if self._lost(round_, error):
                return
            round_.tools = {}
            self.failed.emit(error.message)
            self._go_on(round_)

        request = ListServers(servers=round_.answer.stats.servers)
        self._engine.call(LIST_SERVERS, request, known, failed)

    def _lost(self, round_: _Round, error: Error) -> bool:
        """There is no engine any more: the calls wait for the person's word again."""
        if error.code == NOT_CONNECTED and self._rounds.pop(round_.answer.id, None) is not None:
            self.changed.emit(round_.answer.id)
        return error.code == NOT_CONNECTED

    def _go_on(self, round_: _Round) -> None:
        """Run what is allowed, and end the round once each call has a result."""
        if self._rounds.get(round_.answer.id) is not round_:  # it was stopped meanwhile
            return
        for call in round_.answer.calls:
            if round_.tools is not None and call.id not in round_.results and call.id not in round_.running:
                self._look_at(round_, call, round_.tools.get(call.name))
        self.changed.emit(round_.answer.id)
        if len(round_.results) == len(round_.answer.calls):
            del self._rounds[round_.answer.id]
            self.ended.emit(round_.answer, list(round_.results.values()))

    def _look_at(self, round_: _Round, call: ToolCall, known: _Known | None) -> None:
        arguments = _arguments(call)
        decision = round_.decisions.get(call.id)
        if decision == "deny":
            round_.results[call.id] = ToolResult(call.id, DENIED, call.name, failed=True)
        elif known is None:
            text = f"There is no tool {call.name}, or its server cannot be reached."
            round_.results[call.id] = ToolResult(call.id, text, call.name, failed=True)
        elif arguments is None:
            text = "The arguments of this call are not a JSON object."
            round_.results[call.id] = ToolResult(call.id, text, call.name, failed=True)
        elif decision is not None or known.tool.rule == "always":
            self._run(round_, call, known, arguments, decision)

    def _run(
        self,
        round_: _Round,
        call: ToolCall,
        known: _Known,
        arguments: dict[str, msgspec.Raw],
        decision: Decision | None,
    ) -> None:
        if decision == "always":
            rule = AllowTool(server=known.server, tool=known.tool.name, rule="always")
            self._engine.call(ALLOW_TOOL, rule, on_error=lambda error: self.failed.emit(error.message))

        def end(text: str, pictures: list[bytes], failed: bool) -> None:
            round_.running.pop(call.id, None)
            round_.results[call.id] = ToolResult(call.id, text, call.name, pictures, failed)
            self._go_on(round_)

        def told(event: ToolProgress) -> None:
            round_.progress[call.id] = _progress(event)
            self.changed.emit(round_.answer.id)

        def done(outcome: ToolOutcome) -> None:
            end(outcome.text, outcome.pictures, outcome.failed)

        def failed(error: Error) -> None:
            if not self._lost(round_, error):
                end(error.message, [], True)

        asked = CallTool(server=known.server, tool=known.tool.name, arguments=arguments, allowed=decision is not None)
        round_.running[call.id] = self._engine.call(CALL_TOOL, asked, done, failed, told)


def _arguments(call: ToolCall) -> dict[str, msgspec.Raw] | None:
    """The arguments by name; None where the model wrote something else."""
    try:
        return msgspec.json.decode(call.arguments or "{}", type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _progress(event: ToolProgress) -> str:
    """Format the progress, such as "3 of 12, reading"."""
    of = f" of {event.total:g}" if event.total else ""
    return ", ".join(part for part in (f"{event.done:g}{of}", event.message) if part)
