"""Tools of MCP servers in a chat: asked for, allowed, denied, stopped, kept, exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app.chat.page import ChatPage
from app.chat.session.answers import TOOLS_OF_NOW
from app.chat.transcript.message import MessageView
from app.history.export import chat_to_markdown
from app.history.records import StoredMessage
from app.history.store import HistoryStore
from app.link.calls import Calls
from app.link.link import EngineLink
from engine.protocol import ChatMessage, CountTokens, Generate, ToolResult
from engine.protocol.rounds import CHANGED, DENIED, ENOUGH, NOT_RUN, STOPPED, seen_by
from tests.app.chatting import button, chat_page

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
QUESTION = 'use kit__echo {"text": "hi"}'


class Fake:
    """What the fake engine answers to operations, and what was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[tuple[str, Any]] = []
        self.prompts: list[Generate] = []
        self.counted: list[CountTokens] = []
        self.answers = {"mcp.list": {"answer": [self.server()]}, "mcp.call": {"answer": {"text": "the result"}}}
        self.put()

    @staticmethod
    def server(rule: str = "ask", **facts: object) -> dict[str, object]:
        tool = {"name": "echo", "called": "kit__echo", "description": "Say it again.", "rule": rule, **facts}
        return {"name": "kit", "command": ["npx", "kit"], "state": "ready", "tools": [tool]}

    def put(self, **answers: object) -> None:
        self.answers |= {name.replace("_", "."): answer for name, answer in answers.items()}
        self.path.write_text(json.dumps(self.answers))

    def calls(self, operation: str) -> list[Any]:
        return [request for name, request in self.asked if name == operation]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake(tmp_path / "answers.json")
    call, send = Calls.call, EngineLink.send

    def recording(self: Calls, operation: Any, request: Any, *rest: Any, **more: Any) -> Any:
        fake.asked.append((operation.name, request))
        return call(self, operation, request, *rest, **more)

    def sending(self: EngineLink, message: Any) -> Any:
        if isinstance(message, Generate):
            fake.prompts.append(message)
        if isinstance(message, CountTokens):
            fake.counted.append(message)
        return send(self, message)

    monkeypatch.setattr(Calls, "call", recording)
    monkeypatch.setattr(EngineLink, "send", sending)
    return fake


@pytest.fixture
def page(qtbot, make_link, history, theme, fake: Fake) -> ChatPage:
    page = chat_page(make_link("--answers", str(fake.path), "--rate", "5000"), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.resize(900, 900)
    page.show()
    qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
    page.session.set_servers(["kit"])
    return page


def send(qtbot, page: ChatPage, text: str, until: Callable[[], bool]) -> None:
    page.composer.edit.setPlainText(text)
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(until, timeout=20_000)


def roles(page: ChatPage) -> list[str]:
    return [message.role for message in page.session.talk.path]


def settled(page: ChatPage) -> bool:
    path = page.session.talk.path
    return bool(path) and not page.streaming and path[-1].role == "assistant" and not path[-1].calls


def asked(page: ChatPage) -> bool:
    return any(shown.state == "asked" for message in page.session.talk.path for shown in page.session.calls(message))


def call_view(page: ChatPage) -> MessageView:
    return next(view for view in page.transcript.views if view.message.calls)


def press(qtbot, page: ChatPage, name: str) -> None:
    found = [each for each in page.findChildren(QPushButton, f"call-{name}") if each.isVisible()]
    qtbot.mouseClick(found[0], Qt.MouseButton.LeftButton)


def last(page: ChatPage) -> StoredMessage:
    return page.session.talk.path[-1]


def results(page: ChatPage) -> list[ToolResult]:
    return [result for message in page.session.talk.path for result in message.results]


def test_the_tools_count_for_the_context(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, "hello", lambda: settled(page))
    config = page.session.next_tools
    assert config is not None
    with qtbot.waitSignal(page._link.counted):
        page.composer.edit.setPlainText("more")
    assert fake.counted[-1].tools == config


def test_a_call_is_shown_and_nothing_runs_before_it_is_allowed(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    (block,) = [fold for fold in call_view(page).folds if fold.objectName() == "call"]
    assert block.head.text() == "▸ kit: echo · may it run?"
    assert block.body.toPlainText() == '{\n  "text": "hi"\n}'
    assert not fake.calls("mcp.call")
    assert not page.streaming
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: settled(page))
    (request,) = fake.calls("mcp.call")
    assert (request.server, request.tool, request.allowed) == ("kit", "echo", True)
    assert bytes(request.arguments["text"]) == b'"hi"'
    assert not fake.calls("mcp.allow")
    assert roles(page) == ["user", "assistant", "tool", "assistant"]
    assert last(page).content == "The tools said: the result"
    assert fake.prompts[0].tools is not None
    assert [tool.name for tool in fake.prompts[0].tools.tools] == ["kit__echo"]
    (told,) = [part for message in fake.prompts[1].prompt for part in message.results]  # type: ignore[union-attr]
    assert (told.content, told.name, told.failed) == ("the result", "kit__echo", False)


def test_results_are_folded_and_can_be_seen(qtbot, page: ChatPage) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: settled(page))
    (view,) = [view for view in page.transcript.views if view.message.role == "tool"]
    (block,) = view.folds
    assert block.head.text() == "▸ Result: 10 characters"
    assert block.body.isHidden()
    low = view.height()
    qtbot.mouseClick(block.head, Qt.MouseButton.LeftButton)
    assert block.body.toPlainText() == "the result"
    assert view.height() > low
    (call,) = call_view(page).folds
    assert (call.head.text(), call.body.isHidden()) == ("▸ kit: echo", True)


def test_always_allow_makes_a_rule_and_a_rule_runs_at_once(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "always")
    qtbot.waitUntil(lambda: settled(page))
    (rule,) = fake.calls("mcp.allow")
    assert (rule.server, rule.tool, rule.rule) == ("kit", "echo", "always")
    fake.put(mcp_list={"answer": [fake.server("always")]})
    send(qtbot, page, QUESTION, lambda: settled(page) and len(roles(page)) == 8)
    assert [request.allowed for request in fake.calls("mcp.call")] == [True, False]


def test_a_tool_that_changed_is_asked_for_anew_with_the_reason(qtbot, page: ChatPage, fake: Fake) -> None:
    fake.put(mcp_list={"answer": [fake.server(changed=True, digest="ab")]})
    send(qtbot, page, QUESTION, lambda: asked(page))
    (block,) = call_view(page).folds
    assert block.body.toPlainText() == f'{CHANGED}\n\n{{\n  "text": "hi"\n}}'
    press(qtbot, page, "always")
    qtbot.waitUntil(lambda: settled(page))
    assert [rule.digest for rule in fake.calls("mcp.allow")] == ["ab"]


def test_a_denied_call_is_told_to_the_model(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, f"{QUESTION}\n{QUESTION}", lambda: asked(page))
    press(qtbot, page, "deny")
    assert asked(page), "the other one"
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: settled(page))
    assert [(result.content, result.failed) for result in results(page)] == [(DENIED, True), ("the result", False)]
    assert len(fake.calls("mcp.call")) == 1
    assert DENIED in last(page).content


def test_results_that_ask_for_tools_run_nothing(qtbot, page: ChatPage, fake: Fake) -> None:
    fake.put(mcp_call={"answer": {"text": QUESTION}})
    send(qtbot, page, f"forever\n{QUESTION}", lambda: asked(page))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: asked(page) and len(roles(page)) == 4)
    assert len(fake.calls("mcp.call")) == 1


def test_rounds_have_a_bound(qtbot, page: ChatPage, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chat.session.session.MOST_ROUNDS", 3)
    fake.put(mcp_list={"answer": [fake.server("always")]})
    send(qtbot, page, f"forever\n{QUESTION}", lambda: page.notice.isVisible())
    assert ENOUGH in page.notice.text
    assert roles(page) == ["user", *["assistant", "tool"] * 3]
    assert len(fake.calls("mcp.call")) == 3
    fake.put(mcp_list={"answer": [fake.server()]})
    send(qtbot, page, "thanks", lambda: settled(page))


def test_stop_stops_a_call(qtbot, page: ChatPage, fake: Fake) -> None:
    fake.put(mcp_call={"events": [{"done": 1, "total": 4, "message": "begun"}]})
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "once")
    (block,) = call_view(page).folds
    qtbot.waitUntil(lambda: block.head.text() == "▸ kit: echo · running… 1 of 4, begun")
    assert page.streaming
    page.stop()
    assert not page.streaming
    assert [result.content for result in results(page)] == [STOPPED]
    assert len(fake.prompts) == 1
    view = page.transcript.views[-1]
    qtbot.mouseClick(button(view, "retry"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: settled(page))


def test_saying_something_else_leaves_the_call_out(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    send(qtbot, page, "never mind", lambda: settled(page))
    assert roles(page) == ["user", "assistant", "tool", "user", "assistant"]
    assert [result.content for result in results(page)] == [NOT_RUN]
    assert not fake.calls("mcp.call")


def test_a_tool_that_is_not_there_and_arguments_that_make_no_sense_fail(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, "use kit__dance {}\nuse kit__echo [1", lambda: settled(page))
    said = [result.content for result in results(page)]
    assert said == [
        "There is no tool kit__dance, or its server cannot be reached.",
        "The arguments of this call are not a JSON object.",
    ]
    assert not fake.calls("mcp.call")


def test_a_server_that_cannot_be_used_is_said(qtbot, page: ChatPage, fake: Fake) -> None:
    page.session.set_servers(["kit", "web", "old"])
    web = {"name": "web", "url": "http://x", "state": "failed", "detail": "The MCP server web did not answer."}
    fake.put(mcp_list={"answer": [fake.server(), web]})
    send(qtbot, page, "hello", lambda: settled(page))
    said = "The MCP server web did not answer. There is no MCP server old any more."
    assert last(page).stats.detail == said
    assert said in page.notice.text


def test_no_servers_no_tools(qtbot, page: ChatPage, fake: Fake) -> None:
    page.session.set_servers([])
    send(qtbot, page, QUESTION, lambda: settled(page))
    assert not fake.calls("mcp.list")
    assert fake.prompts[0].tools is None


def test_stop_before_the_servers_have_answered(qtbot, page: ChatPage, fake: Fake) -> None:
    fake.put(mcp_list={})
    send(qtbot, page, QUESTION, lambda: page.streaming)
    page.stop()
    assert not page.streaming
    assert last(page).state == "interrupted"
    assert not fake.prompts


def test_a_chat_that_is_opened_again_asks_again(qtbot, page: ChatPage, fake: Fake, history: HistoryStore) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    chat = page.chat_id
    page.new_chat()
    page.session.tools.stop_chat(chat)  # as after a new start
    page.open_chat(chat)
    assert page.session.talk.chat.servers == ("kit",)
    assert asked(page)
    listed = len(fake.calls("mcp.list"))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: settled(page))
    assert len(fake.calls("mcp.list")) == listed + 2, "for the call, and for the answer after it"
    assert [message.role for message in history.messages(chat)] == ["user", "assistant", "tool", "assistant"]


def test_it_goes_on_in_the_background(qtbot, page: ChatPage, fake: Fake, history: HistoryStore) -> None:
    fake.put(mcp_list={"answer": [fake.server("always")]})
    send(qtbot, page, QUESTION, lambda: page.streaming)
    chat = page.chat_id
    page.new_chat()
    qtbot.waitUntil(lambda: len(history.messages(chat)) == 4 and not page.answers.busy)
    assert history.messages(chat)[-1].content == "The tools said: the result"
    assert not page.chat_id


def test_an_answer_with_calls_can_be_drawn_again(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "deny")
    qtbot.waitUntil(lambda: settled(page))
    first = page.session.talk.path[1]
    page.message_actions.act(first.id, "regenerate")
    qtbot.waitUntil(lambda: asked(page))
    assert page.session.talk.branch(page.session.talk.leaf) == (1, 2)
    page.message_actions.act(page.session.talk.leaf, "previous")
    assert len(roles(page)) == 4
    page.message_actions.act(last(page).id, "regenerate")
    qtbot.waitUntil(lambda: settled(page) and page.session.talk.branch(last(page).id) == (1, 2))


def test_a_branch_that_was_left_gets_its_results_and_does_not_go_on(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, "hello", lambda: settled(page))
    fake.put(mcp_call={})
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: bool(fake.calls("mcp.call")))
    answer = last(page)
    page.session.talk.go_to(page.session.talk.path[1].id)  # another branch
    shown, prompts = page.session.talk.leaf, len(fake.prompts)
    page.session.tools.ended.emit(answer, [ToolResult(answer.calls[0].id, "late")])
    assert page.session.talk.leaf == shown
    assert len(fake.prompts) == prompts
    (told,) = [message for message in page.session.talk.tree.all() if message.role == "tool"]
    assert (told.parent, told.results[0].content) == (answer.id, "late")


def test_run_again_exactly_runs_no_tool_by_itself(qtbot, page: ChatPage, fake: Fake) -> None:
    fake.put(mcp_list={"answer": [fake.server("always")]})
    send(qtbot, page, QUESTION, lambda: settled(page))
    page.message_actions.act(page.session.talk.path[1].id, "again")
    qtbot.waitUntil(lambda: asked(page))
    assert len(fake.calls("mcp.call")) == 1


def test_run_again_exactly_sends_the_tools_that_the_answer_had(qtbot, page: ChatPage, fake: Fake) -> None:
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: settled(page))
    fake.put(mcp_list={"answer": []})  # the server was removed meanwhile
    listed = len(fake.calls("mcp.list"))
    for place in (1, 3):
        first, was = page.session.talk.path[place], fake.prompts[place // 2]
        assert was.tools is not None
        page.session.again(first)
        qtbot.waitUntil(lambda: not page.streaming)
        now = fake.prompts[-1]
        assert (now.prompt, now.tools, now.sampling) == (was.prompt, was.tools, was.sampling)
        assert page.session.talk.last_tools() == was.tools, "for a repetition of the repetition"
        page.session.switch(page.session.talk.leaf, -1)
    assert len(fake.calls("mcp.list")) == listed, "nobody is asked"


def test_tools_of_an_answer_of_an_earlier_version_are_those_of_now(
    qtbot, page: ChatPage, fake: Fake, history: HistoryStore
) -> None:
    send(qtbot, page, "hello", lambda: settled(page))
    first = last(page)
    page.session.again(first._replace(stats=structs.replace(first.stats, tools="")))
    qtbot.waitUntil(lambda: settled(page))
    assert last(page).stats.detail == TOOLS_OF_NOW
    assert fake.prompts[-1].tools == fake.prompts[0].tools
    page.session.set_servers([])
    send(qtbot, page, "hello", lambda: settled(page))
    assert page.session.talk.last_tools() is None
    assert history.messages(page.chat_id)[1].stats.tools, "kept"
    with pytest.raises(LookupError):
        history.tools(page.chat_id, "")


def test_an_engine_that_dies_leaves_the_question_open(qtbot, page: ChatPage, fake: Fake) -> None:
    fake.put(mcp_call={})
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: page.streaming)
    page._link._calls.lost(False)
    assert asked(page)
    assert not page.streaming


def test_the_export_has_calls_and_results(qtbot, page: ChatPage, fake: Fake, history: HistoryStore) -> None:
    fake.put(mcp_call={"answer": {"text": "a ``` fence\n<b>"}})
    send(qtbot, page, QUESTION, lambda: asked(page))
    press(qtbot, page, "once")
    qtbot.waitUntil(lambda: settled(page))
    chat = history.chat(page.chat_id)
    assert chat is not None
    text = chat_to_markdown(history, chat)
    assert '<summary>Call of kit__echo</summary>\n\n> ```\n> {"text": "hi"}\n> ```\n' in text
    assert "<summary>Result of kit__echo</summary>\n\n> ````\n> a ``` fence\n> <b>\n> ````\n" in text


def test_pictures_of_results_are_named_for_a_model_that_sees_none(page: ChatPage) -> None:
    card = page._link.card
    told = ChatMessage(role="tool", parts=[ToolResult("c", "here", pictures=[b"x"])])
    (seen,) = seen_by(card, [told])
    assert seen.results == [ToolResult("c", "here\n[1 picture, which you cannot see]")]
    assert not seen.pictures
