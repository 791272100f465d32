"""Tools of MCP servers in `kvasir chat`: nothing runs that neither a rule nor the person allowed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.base.terminal import console
from engine.doors.cli.chat import ChatArguments, TerminalChat
from engine.doors.cli.errors import CommandFailed
from engine.doors.cli.main import app
from engine.loop.commands import AddRequest
from engine.protocol import ChatMessage, ToolResult
from engine.protocol.mcp import AllowTool, CallTool, ListServers, McpServer, McpTool, ToolOutcome, ToolProgress
from engine.protocol.rounds import CHANGED, DENIED, ENOUGH, STOPPED
from engine.services.client import EngineClient
from engine.services.operations import OperationFailed
from tests.engine.doors.network.fake import FakeEngine
from tests.kit.tool_scripts import QWEN

CALL = '<tool_call>\n{"name": "kit__echo", "arguments": {"text": "hi"}}\n</tool_call>'
PARAMETERS = '{"type": "object", "properties": {"text": {"type": "string"}}}'
WEB = McpServer(name="web", url="http://x", state="failed", detail="The MCP server web did not answer.")


class Typed(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        return True


class Room:
    """A terminal, a model that calls a tool until one was run, and the servers."""

    def __init__(self, engine: EngineClient) -> None:
        self.engine: FakeEngine = engine.engine  # type: ignore[assignment]
        self.engine.speak(QWEN, CALL)
        self.client = engine
        self.asked: list[Any] = []
        self.tool = McpTool(name="echo", called="kit__echo", parameters=PARAMETERS, digest="ab")
        self.run: Callable[[], ToolOutcome] = self.answer
        self.screen = io.StringIO()

    def answer(self) -> ToolOutcome:
        self.engine.script = "All done."
        return ToolOutcome(text="the result\nof two lines")

    def perform(self, operation: object, request: Any, emit: Callable[[Any], object] = print) -> Any:
        self.asked.append(request)
        match request:
            case ListServers():
                return [McpServer(name="kit", state="ready", tools=[self.tool]), WEB]
            case AllowTool():
                self.tool = McpTool(name="echo", called="kit__echo", parameters=PARAMETERS, rule="always")
            case CallTool():
                if not request.allowed and self.tool.rule != "always":
                    raise OperationFailed("No rule allows it.")
                emit(ToolProgress(done=1, total=2, message="[red]"))
                return self.run()
        return None

    def chat(self, *tools: str) -> TerminalChat:
        return TerminalChat(self.client, ChatArguments(tools=tools), {}, console(file=self.screen, width=200))

    @property
    def calls(self) -> list[CallTool]:
        return [request for request in self.asked if isinstance(request, CallTool)]

    @property
    def requests(self) -> list[AddRequest]:
        return [command for command in self.engine.seen if isinstance(command, AddRequest)]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    with EngineClient(make_engine=lambda emit, device, saved: FakeEngine(emit)) as engine:  # type: ignore[arg-type,return-value]
        made = Room(engine)
        monkeypatch.setattr("engine.doors.cli.tools.perform", made.perform)
        yield made


def types(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", Typed("\n".join([*lines, ""])))


def results(chat: TerminalChat) -> list[ToolResult]:
    return [result for message in chat._messages for result in message.results]


def test_a_call_is_shown_and_asked_for(room: Room, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    types(monkeypatch, "go", "what?", "y")
    chat = room.chat("kit")
    assert chat.converse() == 0
    shown = room.screen.getvalue()
    assert '▸ kit: echo · may it run?\n{\n  "text": "hi"\n}' in shown
    assert shown.count("y, n or always") == 2, "what is no answer is asked for again"
    assert [(call.server, call.tool, call.allowed) for call in room.calls] == [("kit", "echo", True)]
    assert bytes(room.calls[0].arguments["text"]) == b'"hi"'
    assert [message.role for message in chat._messages] == ["user", "assistant", "tool", "assistant"]
    assert chat._messages[1].calls[0].name == "kit__echo"
    first, second = room.requests
    assert first.tools is not None
    assert [tool.name for tool in first.tools.tools] == ["kit__echo"]
    assert "the result\nof two lines" in room.engine.loaded.files.tokenizer.decode(list(second.prompt_ids))
    assert capsys.readouterr().out.strip() == "All done."
    assert "  Result: 23 characters" in shown
    assert "of two lines" not in shown


@pytest.mark.parametrize("word", ["n", ""])
def test_a_denied_call_is_told_to_the_model(room: Room, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    types(monkeypatch, "go", *([word] if word else []))  # the end of input says no as well
    monkeypatch.setattr("engine.doors.cli.chat.MOST_ROUNDS", 1)
    chat = room.chat("kit")
    chat.converse()
    assert not room.calls
    assert [(result.content, result.failed) for result in results(chat)] == [(DENIED, True)]


def test_always_makes_a_rule_for_this_tool(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.engine.speak(QWEN, f"{CALL}\n{CALL}")
    types(monkeypatch, "go", "always")
    chat = room.chat("kit")
    chat.converse()
    assert AllowTool(server="kit", tool="echo", rule="always", digest="ab") in room.asked
    assert [call.allowed for call in room.calls] == [True, False]
    assert '▸ kit: echo {"text": "hi"}' in room.screen.getvalue()
    assert "[red]" not in room.screen.getvalue(), "it is gone with the call"


def test_a_tool_that_changed_is_asked_for_with_the_reason(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.tool = McpTool(name="echo", called="kit__echo", parameters=PARAMETERS, changed=True)
    types(monkeypatch, "go", "y")
    room.chat("kit").converse()
    assert CHANGED in room.screen.getvalue()


def test_without_a_person_nothing_runs_that_no_rule_allows(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("go\ny\nalways\n"))
    monkeypatch.setattr("engine.doors.cli.chat.MOST_ROUNDS", 2)
    chat = room.chat("kit")
    with pytest.raises(CommandFailed, match="Tools were called"):
        chat.once("go")
    assert not room.calls
    assert not [request for request in room.asked if isinstance(request, AllowTool)]
    said = "nobody is here to be asked. “kvasir mcp allow kit echo always” makes a rule."
    assert all(said in result.content for result in results(chat))
    assert said in room.screen.getvalue()
    room.tool = McpTool(name="echo", called="kit__echo", parameters=PARAMETERS, rule="always")
    assert chat.once("go") == 0
    assert [call.allowed for call in room.calls] == [False]


def test_rounds_have_a_bound(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.doors.cli.chat.MOST_ROUNDS", 3)
    room.run = lambda: ToolOutcome(text=CALL)
    types(monkeypatch, "go", "y", "y", "y")
    room.chat("kit").converse()
    assert len(room.calls) == len(room.requests) == 3
    assert ENOUGH in room.screen.getvalue()


def test_ctrl_c_stops_a_call_and_the_conversation_goes_on(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def press() -> ToolOutcome:
        room.engine.script = "Hello."
        raise KeyboardInterrupt

    room.run = press
    types(monkeypatch, "go", "y", "hello")
    chat = room.chat("kit")
    chat.converse()
    assert [(result.content, result.failed) for result in results(chat)] == [(STOPPED, True)]
    assert [message.role for message in chat._messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert len(room.requests) == 2
    assert chat.once("again") == 0
    room.engine.script = CALL
    types(monkeypatch, "y")
    assert chat.once("go") == 130


def test_tools_are_off_until_they_are_asked_for(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    types(monkeypatch, "go", "/tools", "/tools all", "go", "y", "/calls", "/tools off", "bye")
    room.chat().converse()
    assert room.asked[0] == ListServers(), "none is connected to"
    assert [request.tools is not None for request in room.requests] == [False, True, True, False]
    shown = room.screen.getvalue()
    assert "off  kit" in shown
    assert "on   kit  echo\non   web  The MCP server web did not answer." in shown
    assert shown.count(WEB.detail) == 2, "once for /tools, and once before the first answer"
    assert 'kit: echo\n{\n  "text": "hi"\n}\nResult: 23 characters\nthe result\nof two lines' in shown


def test_a_server_that_is_not_there_is_said(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.engine.script = "Hello."
    assert room.chat("old").once("go") == 0
    assert "There is no MCP server old any more." in room.screen.getvalue()
    monkeypatch.setattr("engine.doors.cli.tools.perform", lambda *_: (_ for _ in ()).throw(OperationFailed("Broken.")))
    with pytest.raises(CommandFailed, match="Broken"):
        room.chat("kit").once("go")
    types(monkeypatch, "/tools")
    room.chat().converse()
    assert "Broken." in room.screen.getvalue()


def test_plain_continuation_calls_no_tools() -> None:
    said = CliRunner().invoke(app, ["chat", "--raw", "--prompt", "x", "--tools", "kit"])
    assert said.exit_code == 2
    assert "Plain continuation calls no tools" in said.stderr


def test_pictures_of_results_are_named_for_a_model_that_sees_none(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def show() -> ToolOutcome:
        room.engine.script = "Seen."
        return ToolOutcome(text="here", pictures=[b"PNG"])

    room.run = show
    types(monkeypatch, "go", "y")
    chat = room.chat("kit")
    chat.converse()
    assert chat._messages[-1] == ChatMessage.of("assistant", "Seen.")
    prompt = room.engine.loaded.files.tokenizer.decode(list(room.requests[1].prompt_ids))
    assert "[1 picture, which you cannot see]" in prompt
