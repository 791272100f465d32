"""Tools of the user's MCP servers in `kvasir chat`: chosen, and their calls shown, asked for and run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from engine.base.errors import plain
from engine.doors.cli.errors import CommandFailed
from engine.protocol import MessagePart, ToolCall, ToolConfig, ToolResult
from engine.protocol.mcp import CallTool, ListServers, McpServer, ToolOutcome, ToolProgress
from engine.protocol.operations import ALLOW_TOOL, CALL_TOOL, LIST_SERVERS
from engine.protocol.rounds import (
    CHANGED,
    STOPPED,
    Decision,
    KnownTool,
    config_of,
    judged,
    known_tools,
    pretty,
    readable,
    result_of,
    title_of,
    told_progress,
)
from engine.services.failures import sentence_of
from engine.services.operations import perform

ALL = "all"
OFF = "off"
UNASKED = (
    "No rule allows this call, and nobody is here to be asked. “kvasir mcp allow {server} {tool} always” makes a rule."
)
_WORDS: dict[str, Decision] = {"y": "once", "yes": "once", "n": "deny", "no": "deny", "a": "always", "always": "always"}


class TerminalTools:
    """The tools of one conversation. All is said on ``console``, and calls are asked for where a person types."""

    def __init__(self, console: Console, wanted: Sequence[str] = ()) -> None:
        """``wanted``: names of servers, or :data:`ALL`."""
        self._console, self._wanted = console, list(wanted)
        self._known: dict[str, KnownTool] = {}
        self._said = ""

    def config(self, lacks: str) -> ToolConfig | None:
        """The tools that an answer may call, as their servers have them now. ``lacks``: what the model lacks for them.

        Raises :class:`CommandFailed`.
        """
        if not self._wanted:
            return None
        servers = self._list()
        names = [server.name for server in servers if server.state != "off"] if ALL in self._wanted else self._wanted
        config, notice = config_of(servers, names)
        notice = " ".join(filter(None, (notice, lacks if config is not None else "")))
        if notice and notice != self._said:
            self._console.print(notice, style="yellow")
        self._said = notice
        return config

    def choose(self, words: Sequence[str]) -> None:
        """Use the tools of these servers from now on, of none for "off", and show which there are."""
        if words:
            self._wanted = [] if words[0] == OFF else list(words)
        try:
            servers = self._list() if self._wanted else perform(LIST_SERVERS, ListServers())
        except Exception as error:
            self._console.print(sentence_of(error), style="red")
            return
        for server in servers:
            used = server.name in self._wanted or (ALL in self._wanted and server.state != "off")
            tools = ", ".join(tool.name + (" (always)" if tool.rule == "always" else "") for tool in server.tools)
            self._console.print(f"{'on ' if used else 'off'}  {server.name}  {server.detail or tools if used else ''}")
        if not servers:
            self._console.print("There are no MCP servers. `kvasir mcp add` adds one.")

    def results(self, calls: Sequence[ToolCall]) -> tuple[list[ToolResult], bool]:
        """A result for each call, and True where Ctrl-C stopped them, so that no answer is to follow."""
        results: list[ToolResult] = []
        try:
            for call in calls:
                results.append(self._result(call))
                self._line(f"  {title_of(results[-1])}")
        except KeyboardInterrupt:
            left = calls[len(results) :]
            return [*results, *(ToolResult(call.id, STOPPED, call.name, failed=True) for call in left)], True
        return results, False

    def show(self, parts: Sequence[MessagePart]) -> None:
        """Show calls and results as a whole."""
        for part in parts:
            if isinstance(part, ToolCall):
                self._console.print(f"{readable(part.name)}\n{pretty(part.arguments)}")
            elif isinstance(part, ToolResult):
                self._console.print(f"{title_of(part)}\n{part.content}", style="dim")

    # --- inside ----------------------------------------------------------------------------------------------------

    def _list(self) -> list[McpServer]:
        asked = ["*"] if ALL in self._wanted else self._wanted
        try:
            with self._console.status("asking the servers for their tools"):
                servers = perform(LIST_SERVERS, ListServers(servers=asked))
        except Exception as error:
            raise CommandFailed(sentence_of(error)) from error
        self._known = known_tools(servers)
        return servers

    def _result(self, call: ToolCall) -> ToolResult:
        known = self._known.get(call.name)
        found = judged(call, known, None)
        if found is None and known is not None and sys.stdin.isatty():
            decision = self._asked(call, known)
            if decision == "always":
                self._allow(known)
            found = judged(call, known, decision)
        else:
            self._line(f"▸ {readable(call.name)} {call.arguments}")
        if found is None:
            assert known is not None
            text = UNASKED.format(server=known.server, tool=known.tool.name)
            self._console.print(f"{CHANGED} {text}" if known.tool.changed else text, style="yellow")
            return ToolResult(call.id, text, call.name, failed=True)
        return self._run(call, found) if isinstance(found, CallTool) else found

    def _asked(self, call: ToolCall, known: KnownTool) -> Decision:
        """The person's word for a call, of which they see all."""
        self._console.print(f"▸ {readable(call.name)} · may it run?\n{pretty(call.arguments)}")
        if known.tool.changed:
            self._console.print(CHANGED, style="yellow")
        while True:
            try:
                said = self._console.input(Text("y, n or always (for this tool) > ", style="bold"))
            except EOFError:
                return "deny"
            if decision := _WORDS.get(said.strip().lower()):
                return decision

    def _allow(self, known: KnownTool) -> None:
        try:
            perform(ALLOW_TOOL, known.always)
            self._list()
        except Exception as error:
            self._console.print(sentence_of(error), style="red")

    def _run(self, call: ToolCall, asked: CallTool) -> ToolResult:
        name = readable(call.name)
        with self._console.status(Text(plain(f"{name} · running…"))) as status:

            def told(event: ToolProgress) -> None:
                status.update(Text(plain(f"{name} · running… {told_progress(event)}")))

            try:
                outcome = perform(CALL_TOOL, asked, told)
            except Exception as error:
                outcome = ToolOutcome(text=sentence_of(error), failed=True)
        return result_of(call, outcome)

    def _line(self, text: str) -> None:
        """One line, cut where the screen ends."""
        self._console.print(text.replace("\n", " "), style="dim", no_wrap=True, overflow="ellipsis")
