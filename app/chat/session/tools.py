"""Calls of tools behind an answer: asked for, allowed, run, until all of them have a result."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from PySide6.QtCore import QObject, Signal

from app.history.records import StoredMessage
from app.link.calls import NOT_CONNECTED, Caller, PendingCall
from engine.protocol import Error, ToolCall, ToolResult
from engine.protocol.mcp import CallTool, ListServers, McpServer, ToolOutcome, ToolProgress
from engine.protocol.operations import ALLOW_TOOL, CALL_TOOL, LIST_SERVERS
from engine.protocol.rounds import (
    CHANGED,
    STOPPED,
    Decision,
    KnownTool,
    judged,
    known_tools,
    result_of,
    told_progress,
)

CallState = Literal["asked", "running", "done"]


class ShownCall(NamedTuple):
    """A call as the transcript shows it. ``note``: what its tool last told of it, or the reason why it is asked for."""

    call: ToolCall
    state: CallState
    note: str = ""


class _Round:
    """The calls of one answer."""

    def __init__(self, answer: StoredMessage) -> None:
        self.answer = answer
        self.tools: dict[str, KnownTool] | None = None
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

    def shown(self, call: ToolCall) -> ShownCall:
        known = (self.tools or {}).get(call.name)
        changed = CHANGED if known is not None and known.tool.changed else ""
        state = self.state(call)
        return ShownCall(call, state, changed if state == "asked" else self.progress.get(call.id, ""))


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
        return list(map(round_.shown, answer.calls))

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
            round_.tools = known_tools(servers)
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

    def _look_at(self, round_: _Round, call: ToolCall, known: KnownTool | None) -> None:
        decision = round_.decisions.get(call.id)
        found = judged(call, known, decision)
        if isinstance(found, ToolResult):
            round_.results[call.id] = found
        elif found is not None and known is not None:
            if decision == "always":
                self._engine.call(ALLOW_TOOL, known.always, on_error=lambda error: self.failed.emit(error.message))
            self._run(round_, call, found)

    def _run(self, round_: _Round, call: ToolCall, asked: CallTool) -> None:
        def end(outcome: ToolOutcome) -> None:
            round_.running.pop(call.id, None)
            round_.results[call.id] = result_of(call, outcome)
            self._go_on(round_)

        def told(event: ToolProgress) -> None:
            round_.progress[call.id] = told_progress(event)
            self.changed.emit(round_.answer.id)

        def failed(error: Error) -> None:
            if not self._lost(round_, error):
                end(ToolOutcome(text=error.message, failed=True))

        round_.running[call.id] = self._engine.call(CALL_TOOL, asked, end, failed, told)
