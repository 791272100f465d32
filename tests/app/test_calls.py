"""Operations called over the link: events, an answer or an error, cancelled, and without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.link import calls
from app.link.calls import GONE, NOT_RUNNING, Calls
from app.link.link import EngineLink, LinkState
from engine import protocol as p
from engine.protocol import operations
from engine.protocol.operations import ChangeFolders, Folders, ListModels
from tests.kit.engine_thread import kill

MOVE = {"type": "StoreMove", "path": "/new", "done": 1, "total": 2}
MOVED = {"folders": [], "store": "/new"}


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    file = tmp_path / "answers.json"
    said = {
        "models.folders": {"events": [MOVE, MOVE], "answer": MOVED},
        "models.rm": {"error": "It is not Kvasir's to delete."},
        "models.drafts": {"answer": "no list"},
    }
    file.write_text(json.dumps(said))
    return file


class Heard:
    """What a call says, in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def call(self, link: EngineLink | Calls, operation: Any, request: Any) -> Any:
        take = self.all.append
        return link.call(operation, request, on_answer=take, on_error=lambda error: take(error.message), on_event=take)


def test_events_come_before_the_answer(qtbot, make_link, answers: Path) -> None:
    link, heard = make_link("--answers", str(answers), load=False), Heard()
    heard.call(link, operations.CHANGE_FOLDERS, ChangeFolders(move_to="/new"))
    assert heard.all == []
    qtbot.waitUntil(lambda: len(heard.all) == 3)
    move = p.StoreMove(path="/new", done=1, total=2)
    assert heard.all == [move, move, Folders(folders=[], store="/new")]


@pytest.mark.parametrize(
    ("operation", "request_", "says"),
    [
        (operations.REMOVE_MODEL, operations.RemoveModel(model="x"), "It is not Kvasir's to delete."),
        (operations.OFFER_DRAFTS, operations.OfferDrafts(model="x"), "The engine's answer to models.drafts was not"),
    ],
)
def test_an_error_is_told_to_whoever_called(qtbot, make_link, answers, operation, request_, says) -> None:
    link, heard, failed = make_link("--answers", str(answers), load=False), Heard(), []
    link.failed.connect(failed.append)
    heard.call(link, operation, request_)
    qtbot.waitUntil(lambda: bool(heard.all))
    assert heard.all[0].startswith(says)
    assert not failed


def test_a_call_waits_for_the_engine_and_ends_with_it(qtbot, fake_command, answers: Path) -> None:
    link, heard = EngineLink(fake_command("--answers", str(answers))), Heard()
    heard.call(link, operations.CHANGE_FOLDERS, ChangeFolders())
    link.start()
    qtbot.waitUntil(lambda: len(heard.all) == 3)
    unanswered = Heard()
    unanswered.call(link, operations.LIST_MODELS, ListModels())
    link.send(p.CountTokens(id="c", prompt="x"))
    with qtbot.waitSignal(link.counted):
        pass
    kill(link.engine_pid)
    qtbot.waitUntil(lambda: unanswered.all == [GONE])
    qtbot.waitUntil(lambda: link.state is LinkState.CONNECTED)
    heard.call(link, operations.CHANGE_FOLDERS, ChangeFolders())
    qtbot.waitUntil(lambda: len(heard.all) == 6)
    link.shutdown()


def test_without_an_engine_it_is_told_in_time(qtbot, monkeypatch) -> None:
    monkeypatch.setattr(calls, "WAIT_MS", 20)
    nobody, heard = Calls(lambda message: False), Heard()
    heard.call(nobody, operations.LIST_MODELS, ListModels())
    qtbot.waitUntil(lambda: heard.all == [NOT_RUNNING])
    heard.call(nobody, operations.LIST_MODELS, ListModels())
    nobody.lost(dead=True)
    heard.call(nobody, operations.LIST_MODELS, ListModels())
    qtbot.waitUntil(lambda: heard.all == [NOT_RUNNING] * 3)


def test_nothing_is_heard_of_a_cancelled_call(qapp) -> None:
    sent: list[p.Message] = []
    engine, heard = Calls(lambda message: not sent.append(message)), Heard()
    call = heard.call(engine, operations.LIST_MODELS, ListModels())
    call.cancel()
    call.cancel()
    assert [type(message) for message in sent] == [p.Call, p.Cancel]
    assert sent[1].id == sent[0].id
    assert engine.take(p.CallAnswer(id=sent[0].id, answer=b"{}"))
    assert engine.take(p.Error(code="cancelled", message="It was stopped.", id=sent[0].id)), (
        "and no other part hears it"
    )
    assert heard.all == []


def test_the_end_of_a_stopped_call_is_heard(qtbot) -> None:
    sent: list[p.Message] = []
    there = [True]
    engine, heard = Calls(lambda message: there[0] and not sent.append(message)), Heard()
    call = heard.call(engine, operations.LIST_MODELS, ListModels())
    call.stop()
    assert [type(message) for message in sent] == [p.Call, p.Cancel]
    assert engine.take(p.Error(code="cancelled", message="It was stopped.", id=sent[0].id))
    call.stop()
    assert (len(sent), heard.all) == (2, ["It was stopped."])
    there[0] = False
    heard.call(engine, operations.LIST_MODELS, ListModels()).stop()
    qtbot.waitUntil(lambda: heard.all[1:] == [calls.STOPPED])
    engine.close()
