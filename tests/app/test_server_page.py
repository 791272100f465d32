"""The page Server: the port that is opened, keys, configurations to copy, and who asks."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMessageBox, QPushButton

from app.program import WindowProgram
from app.server import words
from app.server.configurations import CLIENTS, Values, texts
from app.server.page import ServerPage
from app.server.state import ServerState
from app.settings.store import SettingsStore
from app.theme.theme import Theme
from app.window.window import MainWindow
from engine import protocol as p
from engine.protocol.access import AddedKey, AddKey, NamedKey, RevokeKey
from engine.protocol.operations import ADD_KEY, LIST_KEYS, LISTEN_FOR, REVOKE_KEY, WATCH_REQUESTS
from engine.protocol.serving import PORT, HttpRequest, HttpRequests, ListenFor, Listening
from engine.services.operations import OperationFailed
from tests.app.conftest import unfold
from tests.app.tabbing import tab_reaches_all
from tests.kit.fake_engine import card
from tests.kit.operations import ScriptedOperations, raw

URL = "http://127.0.0.1:8642"
ODD = """a "quoted" it's $HOME `x`"""
KEY = NamedKey(name="zed", created=1_790_000_000, rate=60)
ASKED = [
    HttpRequest(began=1_790_000_100, seconds=1.0, path="/v1/messages", key="zed", client="127.0.0.1", method="POST",
                model="tiny", prompt_tokens=1200, generated_tokens=34, status=200, running=True),
    HttpRequest(began=1_790_000_090, seconds=2.345, path="/v1/chat/completions", key="zed", client="127.0.0.1",
                method="POST", model="tiny", prompt_tokens=20, generated_tokens=9, status=200),
    HttpRequest(began=1_790_000_080, seconds=0.001, path="/v1/models", client="127.0.0.1", status=401),
    HttpRequest(began=1_790_000_070, seconds=0.5, path="/v1/completions", key="zed", client="127.0.0.1"),
]  # fmt: skip


@pytest.fixture
def engine() -> ScriptedOperations:
    return ScriptedOperations()


@pytest.fixture
def store(tmp_path: Path) -> SettingsStore:
    return SettingsStore(tmp_path / "settings.json")


@pytest.fixture
def state(engine: ScriptedOperations, store: SettingsStore) -> ServerState:
    return ServerState(engine, store)


@pytest.fixture
def page(qtbot, state: ServerState, theme: Theme) -> ServerPage:
    made = ServerPage(state, theme)
    qtbot.addWidget(made)
    made.resize(800, 700)
    made.show()
    return made


def told(engine: ScriptedOperations, requests: HttpRequests) -> None:
    """The engine tells of requests."""
    call = engine.of(WATCH_REQUESTS)[-1]
    engine._calls.take(p.CallEvent(id=call.id, event=raw(requests)))


def made_key(engine: ScriptedOperations) -> None:
    engine.answer(ADD_KEY, AddedKey(key="kv-secret", record=KEY))
    engine.answer(LIST_KEYS, [KEY])


def test_nothing_is_asked_of_the_engine_while_it_is_off_and_nobody_looks(engine, state, store) -> None:
    state.set_running(True)
    store.update(serve_port=9000)
    assert (engine.asked, state.status) == ([], words.OFF)


def test_the_port_is_opened_moved_and_closed_as_the_settings_say(engine, state, store) -> None:
    store.update(serve=True)
    assert (engine.asked, state.status) == ([], words.NO_ENGINE)
    state.set_running(True)
    assert state.status == f"Opening port {PORT}…"
    store.update(serve_port=9000)
    store.update(serve_port=9001)
    assert engine.requests(LISTEN_FOR) == [ListenFor(port=PORT)], "one call after the other"
    engine.answer(LISTEN_FOR, Listening(url=URL))
    assert engine.requests(LISTEN_FOR)[1:] == [ListenFor(port=9001)]
    engine.answer(LISTEN_FOR, Listening(url="http://127.0.0.1:9001"))
    assert state.status == "http://127.0.0.1:9001"
    store.update(serve=False)
    engine.answer(LISTEN_FOR, Listening())
    assert (engine.requests(LISTEN_FOR)[-1], state.status, len(engine.asked)) == (ListenFor(port=0), words.OFF, 3)


def test_another_engine_opens_it_again(engine, state, store) -> None:
    store.update(serve=True)
    state.set_running(True)
    engine.answer(LISTEN_FOR, Listening(url=URL))
    state.set_running(False)
    assert (state.url, state.status) == ("", words.NO_ENGINE)
    state.set_running(True)
    engine.answer(LISTEN_FOR, Listening(url=URL))
    assert (len(engine.of(LISTEN_FOR)), state.url) == (2, URL)


def test_a_port_that_is_taken_is_said_and_tried_again_when_it_is_switched_on_again(
    qtbot, engine, state, store, page
) -> None:
    state.set_running(True)
    qtbot.mouseClick(page.toggle, Qt.MouseButton.LeftButton)
    engine.answer(LISTEN_FOR, OperationFailed("Port 8642 is in use by another program (nc, process 7). End it."))
    assert "nc, process 7" in page.status.text()
    assert (page.status.property("role"), page.copy.isVisible()) == ("bad", False)
    for _ in range(2):
        qtbot.mouseClick(page.toggle, Qt.MouseButton.LeftButton)
        engine.answer(LISTEN_FOR, Listening(url=URL if page.toggle.isChecked() else ""))
    assert (page.status.text(), page.status.property("role")) == (URL, "good")
    page.copy.click()
    assert QGuiApplication.clipboard().text() == URL
    assert store.settings.serve


def test_a_typed_port_counts_when_it_is_whole(qtbot, store, page) -> None:
    page.port.selectAll()
    qtbot.keyClicks(page.port, "9100")
    assert store.settings.serve_port == PORT
    qtbot.keyClick(page.port, Qt.Key.Key_Return)
    assert store.settings.serve_port == 9100


def test_a_key_is_shown_once_and_put_into_configurations_until_then(qtbot, engine, state, page) -> None:
    state.set_running(True)
    state.set_card(card("tiny", None))
    engine.answer(LIST_KEYS, [])
    assert page.keys.none.isVisible()
    qtbot.keyClicks(page.keys.name, "zed")
    qtbot.keyClick(page.keys.name, Qt.Key.Key_Return)
    assert engine.requests(ADD_KEY) == [AddKey(name="zed")]
    made_key(engine)
    assert (page.keys.made.isVisible(), page.keys.secret.text(), page.keys.name.text()) == (True, "kv-secret", "")
    page.keys.copy.click()
    assert QGuiApplication.clipboard().text() == "kv-secret"
    shown = page.connect_view.cards[0].view.toPlainText()
    assert "export ANTHROPIC_AUTH_TOKEN=kv-secret\n" in shown
    assert "export ANTHROPIC_MODEL=tiny\n" in shown
    page.keys.done.click()
    assert (page.keys.made.isVisible(), page.keys.secret.text()) == (False, "")
    assert "kv-secret" not in page.connect_view.cards[0].view.toPlainText()


def test_a_key_that_cannot_be_made_says_why(engine, state, page) -> None:
    state.set_running(True)
    state.add_key("a b")
    engine.answer(ADD_KEY, OperationFailed("'a b' cannot be a key's name. Use letters."))
    assert page.keys.problem.text() == "'a b' cannot be a key's name. Use letters."
    assert not page.keys.made.isVisible()


def test_a_key_is_revoked_after_a_question(qtbot, engine, state, page) -> None:
    state.set_running(True)
    state.add_key("zed")
    made_key(engine)
    revoke = page.findChild(QPushButton, "server.key.revoke.zed")
    revoke.click()
    box = page.findChild(QMessageBox, "server.revoke")
    assert "refused" in box.text()
    next(button for button in box.buttons() if button.text() == "Revoke").click()
    assert engine.requests(REVOKE_KEY) == [RevokeKey(name="zed")]
    assert not page.keys.made.isVisible(), "its secret opens nothing any more"
    engine.answer(REVOKE_KEY, KEY)
    engine.answer(LIST_KEYS, [])
    assert not revoke.isVisible()
    assert page.keys.none.isVisible()


def test_requests_are_watched_while_the_page_is_shown(engine, state, page) -> None:
    state.set_running(True)
    assert page.requests.summary.text() == words.NO_REQUESTS
    told(engine, HttpRequests(total=4, running=1, connections=2, prompt_tokens=20, generated_tokens=9, last=ASKED))
    assert "2 connections, 1 request in progress" in page.requests.summary.text()
    table = page.requests.table
    rows = [[table.item(row, column).text() for column in range(1, 8)] for row in range(table.rowCount())]
    assert rows == [
        ["zed", "127.0.0.1", "POST /v1/messages", "tiny", "1,200 + 34", "", "running"],
        ["zed", "127.0.0.1", "POST /v1/chat/completions", "tiny", "20 + 9", "2.35", "200"],
        ["none", "127.0.0.1", "GET /v1/models", "", "", "0.00", "401"],
        ["zed", "127.0.0.1", "GET /v1/completions", "", "", "0.50", "broken off"],
    ]
    page.hide()
    assert len(engine.cancelled) == 1
    page.show()
    assert len(engine.of(WATCH_REQUESTS)) == 2


def test_requests_of_another_engine_are_watched_again(engine, state, page) -> None:
    state.set_running(True)
    told(engine, HttpRequests(total=4, last=ASKED))
    state.set_running(False)
    state.set_running(True)
    assert (page.requests.summary.text(), page.requests.table.rowCount()) == (words.NO_REQUESTS, 0)
    assert len(engine.of(WATCH_REQUESTS)) == 2


# --- configurations ------------------------------------------------------------------------------------------------


def text_of(key: str, values: Values, step: int = 0, windows: bool = False) -> str:
    client = next(client for client in CLIENTS if client.key == key)
    return texts(client, values, windows)[step][1]


@pytest.mark.parametrize("key", [client.key for client in CLIENTS])
@pytest.mark.parametrize("windows", [False, True])
def test_every_configuration_has_the_values_of_this_server(key: str, windows: bool) -> None:
    client = next(client for client in CLIENTS if client.key == key)
    whole = "\n".join(text for _, text in texts(client, Values(URL, "kv-1", "tiny", 4096), windows))
    assert URL in whole
    assert "kv-1" in whole
    assert ("tiny" in whole) is (key != "open-webui"), "it lists the models by itself"
    assert "$" not in whole.replace("$schema", "").replace("$env:", "")


def test_files_are_what_their_programs_read_whatever_the_model_is_called() -> None:
    values = Values(URL, "kv-1", ODD, 4096, True)
    codex = tomllib.loads(text_of("codex", values))
    assert (codex["model"], codex["model_context_window"]) == (ODD, 4096)
    provider = codex["model_providers"]["kvasir"]
    assert (provider["base_url"], provider["model_catalog_url"]) == (f"{URL}/v1", f"{URL}/v1/models")
    opencode = json.loads(text_of("opencode", values))
    assert (opencode["model"], list(opencode["provider"]["kvasir"]["models"])) == (f"kvasir/{ODD}", [ODD])
    zed = json.loads(text_of("zed", values))["language_models"]["openai_compatible"]["Kvasir"]["available_models"][0]
    assert (zed["name"], zed["max_tokens"], zed["capabilities"]["images"]) == (ODD, 4096, True)


@pytest.mark.parametrize("key", ["python-openai", "python-anthropic"])
def test_python_is_python(key: str) -> None:
    compile(text_of(key, Values(URL, "kv-1", ODD)), key, "exec")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_a_shell_hands_on_the_values_whatever_the_model_is_called() -> None:
    values = Values(URL, "kv-1", ODD)
    names = "\n".join(text_of("claude-code", values).split("\n")[:-1])
    said = subprocess.run(["sh", "-c", f'{names}\nprintf %s "$ANTHROPIC_MODEL"'], capture_output=True, check=True)
    assert said.stdout.decode() == ODD
    sent = shlex.split(text_of("curl", values).replace("\\\n", " "))
    assert json.loads(sent[-1])["model"] == ODD
    assert sent[1] == f"{URL}/v1/chat/completions"


def test_powershell_sets_variables_in_its_own_way() -> None:
    first, second, third, *_ = text_of("claude-code", Values(URL, "it's"), windows=True).split("\n")
    assert first == f"$env:ANTHROPIC_BASE_URL = '{URL}'"
    assert second == "$env:ANTHROPIC_AUTH_TOKEN = 'it''s'"
    assert third == "$env:ANTHROPIC_API_KEY = ''"


# --- in the window -------------------------------------------------------------------------------------------------


def test_tab_reaches_all_of_the_page(qtbot, start: Callable[..., WindowProgram], tmp_path: Path) -> None:
    program = start("--answers", answers(tmp_path))
    unfold(program)
    program.server.store.update(serve=True)
    qtbot.waitUntil(lambda: program.server.url == URL)
    program.window.show_page(MainWindow.SERVER)
    page = program.window.findChild(ServerPage)
    qtbot.waitUntil(lambda: bool(program.server.keys) and page.requests.table.rowCount() == 4)
    program.server.add_key("zed")
    qtbot.waitUntil(page.keys.made.isVisible)
    tab_reaches_all(qtbot, program.window)


def answers(folder: Path) -> str:
    """A file with what the fake engine says of its server."""
    requests: Any = msgspec.to_builtins(HttpRequests(total=4, running=1, connections=2, last=ASKED))
    key: Any = msgspec.to_builtins(KEY)
    path = folder / "answers.json"
    path.write_text(json.dumps({
        LISTEN_FOR.name: {"answer": {"url": URL}},
        LIST_KEYS.name: {"answer": [key]},
        ADD_KEY.name: {"answer": {"key": "kv-secret", "record": key}},
        WATCH_REQUESTS.name: {"events": [requests]},
    }))  # fmt: skip
    return str(path)


@pytest.mark.slow
def test_a_real_engine_serves_other_programs(qtbot, start: Callable[..., WindowProgram]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = start(engine=None, model=False)
    program.server.store.update(serve=True, serve_port=port)
    program.window.show_page(MainWindow.SERVER)
    program.server.add_key("laptop")
    qtbot.waitUntil(lambda: program.server.made is not None and program.server.url != "")
    url, key = program.server.url, program.server.made.key
    assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    page = program.window.findChild(ServerPage)
    qtbot.waitUntil(lambda: "1 request, " in page.requests.summary.text())
    row = lambda: [page.requests.table.item(0, column).text() for column in (1, 3, 7)]  # noqa: E731
    qtbot.waitUntil(lambda: row() == ["laptop", "GET /v1/models", "200"])  # it was running when it was first told
