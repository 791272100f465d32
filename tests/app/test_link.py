"""The link to the engine: start, frames, death, restart, shutdown."""

from __future__ import annotations

import sys
import threading

import pytest

from app.link.child import EngineDiedError, EngineProcess
from app.link.link import EngineLink, LinkState
from app.link.worker import MAX_QUICK_DEATHS, StateChange
from engine import protocol as p
from tests.kit.engine_thread import kill
from tests.kit.fake_engine import FIT


def test_welcome_then_load(qtbot, make_link) -> None:
    link = make_link(process=True)
    assert link.welcome is not None
    assert [model.name for model in link.welcome.models] == ["tiny", "odd"]
    assert {spec.key for spec in link.catalogue} >= {"kv_cache", "speculation"}
    assert link.card is not None
    assert link.card.context == 2048


def test_stream_arrives_in_order_and_in_this_thread(qtbot, make_link) -> None:
    link = make_link("--rate", "5000")
    texts: list[str] = []
    threads: set[int] = set()

    def take(delta: p.Delta) -> None:
        texts.append(delta.text)
        threads.add(threading.get_ident())

    link.delta.connect(take)
    with qtbot.waitSignal(link.finished, timeout=10_000) as finished:
        link.send(p.Generate(id="a", prompt=[p.ChatMessage.of("user", "hello")], sampling=p.Sampling(seed=7)))
    assert finished.args[0].usage.seed == 7
    assert "".join(texts).endswith("drawn with seed 7.")
    assert len(texts) == finished.args[0].usage.generated_tokens
    assert threads == {threading.get_ident()}


def test_what_comes_faster_than_the_window_paints_arrives_whole(qapp, make_link, monkeypatch) -> None:
    link, texts = make_link(), list[str]()
    link.delta.connect(lambda delta: texts.append(delta.text))
    monkeypatch.setattr("app.link.link.DRAIN_S", -1.0)  # each drain comes to its end after one of them
    for text in "abc":
        link._post(p.Delta(id="a", text=text))
    for _ in "abc":
        qapp.processEvents()
    assert texts == ["a", "b", "c"]


def test_cancel_stops_the_answer(qtbot, make_link) -> None:
    link = make_link("--rate", "50")
    with qtbot.waitSignal(link.delta, timeout=10_000):
        link.send(p.Generate(id="a", prompt="a long one"))
    with qtbot.waitSignal(link.finished, timeout=5_000) as finished:
        link.send(p.Cancel(id="a"))
    assert finished.args[0].reason == "cancelled"


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_a_killed_engine_comes_back_with_its_model_and_values(qtbot, make_link, process: bool) -> None:
    link = make_link(process=process)
    with qtbot.waitSignal(link.options, timeout=5_000):
        link.send(p.Set(key="speculation", value="draft"))
    states: list[tuple[LinkState, str]] = []
    link.state_changed.connect(lambda state, sentence: states.append((state, sentence)))
    with qtbot.waitSignal(link.state_changed, timeout=1_000):
        pid = link.engine_pid
        kill(pid)
    assert link.card is None
    with qtbot.waitSignal(link.loaded, timeout=20_000):
        pass
    qtbot.waitUntil(lambda: next(s for s in link.catalogue if s.key == "speculation").value == "draft", timeout=5_000)
    assert [state for state, _ in states] == [LinkState.RESTARTING, LinkState.CONNECTED]
    assert "SIGKILL" in states[0][1]
    assert link.engine_pid != pid


def test_values_come_back_after_an_engine_that_died_while_it_compared(qtbot, make_link) -> None:
    link = make_link()
    with qtbot.waitSignal(link.options, timeout=5_000):
        link.send(p.Set(key="speculation", value="draft"))
    link.send(p.Compare(id="a", key="kv_kind", prompt="slow", values=["16-bit", "int4"]))
    with qtbot.waitSignal(link.state_changed):  # the comparison itself loads the model again before that
        kill(link.engine_pid)
    with qtbot.waitSignal(link.loaded, timeout=20_000):
        pass
    qtbot.waitUntil(lambda: next(s for s in link.catalogue if s.key == "speculation").value == "draft", timeout=5_000)


def test_what_a_load_makes_is_set_before_it(qtbot, make_link, monkeypatch) -> None:
    """Else the cache is made twice, or thrice."""
    link = make_link()
    cache = next(spec for spec in link.catalogue if spec.key == "kv_kind")
    with qtbot.waitSignal(link.options, timeout=5_000):
        link.send(p.Set(key="kv_kind", value=cache.choices[1].key))
    sent: list[p.Message] = []
    send = link._transmit
    monkeypatch.setattr(link, "_transmit", lambda message: (sent.append(message), send(message)))
    with qtbot.waitSignal(link.loaded, timeout=20_000):
        kill(link.engine_pid)
    kinds = [type(message).__name__ for message in sent if isinstance(message, p.Set | p.Load)]
    assert kinds == ["Set", "Load"]


def test_nothing_is_set_while_a_comparison_sets_its_switch_both_ways(qtbot, make_link, monkeypatch) -> None:
    """Its own changes of the cache and of the weights load the model again, which is when wishes are sent otherwise."""
    link = make_link()
    link.send(p.Set(key="kv_kind", value="int4"))
    qtbot.waitUntil(lambda: link.wanted == {"kv_kind": "int4"} and link.held_back == [])
    link.want({**link.wanted, "chunked_prefill": False})  # what the model could not have, and was not tried since
    sent: list[p.Message] = []
    send = link._transmit
    monkeypatch.setattr(link, "_transmit", lambda message: (sent.append(message), send(message)))
    for key, values in (("kv_kind", ["16-bit", "int4"]), ("weights", ["packed", "16-bit"])):
        sent.clear()
        with qtbot.waitSignals([link.compared, link.loaded]):
            link.send(p.Compare(id=key, key=key, prompt="hello", values=values))
        assert [type(message) for message in sent if isinstance(message, p.Set)] == [p.Set] * (key == "kv_kind")
    qtbot.waitUntil(lambda: {s.key: s.value for s in link.catalogue}["chunked_prefill"] is False)
    assert {s.key: s.value for s in link.catalogue}["kv_kind"] == "int4"


def test_a_choice_during_a_comparison_of_it_is_in_force_after_it(qtbot, make_link) -> None:
    link = make_link()
    with qtbot.waitSignal(link.failed):
        link.send(p.Compare(id="a", key="kv_kind", prompt="slow", values=["16-bit", "int4"]))
        link.send(p.Set(key="kv_kind", value="int8"))
    qtbot.waitUntil(lambda: {s.key: s.value for s in link.catalogue}["kv_kind"] == "int8")


def test_a_cache_made_again_is_no_load(qtbot, make_link) -> None:
    link = make_link(load=False)
    link.send(p.Load(model="tiny", draft="/models/other"))
    qtbot.waitUntil(lambda: link.card is not None)
    link.send(p.LoadAdapter(name="poet", path="/adapters/poet"))
    qtbot.waitUntil(lambda: bool(link.adapters))
    with qtbot.waitSignal(link.loaded) as loaded:
        link.send(p.Set(key="kv_kind", value="int4"))
    assert loaded.args[0].rebuilt
    assert link.last_load == p.Load(model="tiny", draft="/models/other")
    assert [card.name for card in link.adapters] == ["poet"]


def test_a_refused_value_is_not_set_again(qtbot, make_link) -> None:
    link = make_link()
    with qtbot.waitSignal(link.failed, timeout=5_000):
        link.send(p.Set(key="quest", value=True))
    with qtbot.waitSignal(link.loaded, timeout=20_000):
        kill(link.engine_pid)
    refused: list[p.Error] = []
    link.failed.connect(refused.append)
    with qtbot.waitSignal(link.options, timeout=5_000):
        link.send(p.Set(key="speculation", value="draft"))
    assert refused == []


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_the_last_words_explain_a_crash(qtbot, make_link, process: bool) -> None:
    link = make_link("--rate", "4000", process=process)
    with qtbot.waitSignal(link.state_changed, timeout=10_000) as changed:
        link.send(p.Generate(id="a", prompt="crash please"))
    state, sentence = changed.args
    assert state is LinkState.RESTARTING
    assert "exit code 3" in sentence
    assert "was told to crash" in sentence


def test_it_gives_up_after_quick_deaths_and_can_be_revived(qtbot, fake_command, monkeypatch) -> None:
    monkeypatch.setattr("app.link.worker.BACK_OFF_S", (0.0,))
    link = EngineLink(fake_command("--die-at-start"))
    states: list[LinkState] = []
    link.state_changed.connect(lambda state, _: states.append(state))
    try:
        link.start()
        qtbot.waitUntil(lambda: link.state is LinkState.DEAD, timeout=30_000)
        assert states.count(LinkState.RESTARTING) == MAX_QUICK_DEATHS - 1
        with qtbot.waitSignal(link.state_changed, timeout=5_000) as changed:
            link.revive()
        assert changed.args[0] is LinkState.STARTING
    finally:
        link.shutdown()


def test_a_wanted_restart_keeps_model_and_values_and_is_no_death(qtbot, make_link) -> None:
    link = make_link(process=True)
    with qtbot.waitSignal(link.options):
        link.send(p.Set(key="speculation", value="ngram"))
    states, pid = [], link.engine_pid
    link.state_changed.connect(lambda state, _: states.append(state))
    link.restart()
    qtbot.waitUntil(lambda: link.engine_pid not in (None, pid) and link.card is not None, timeout=20_000)
    assert states == [LinkState.STARTING, LinkState.CONNECTED]
    assert link.card.name == "tiny"
    qtbot.waitUntil(lambda: next(s for s in link.catalogue if s.key == "speculation").value == "ngram")


def test_a_restart_adds_to_the_environment_and_the_next_one_takes_it_away(qtbot, tmp_path, make_link) -> None:
    pack = tmp_path / "pack.json"
    pack.write_text('{"active": true}')
    link = make_link("--gpu-pack", str(pack), process=True)
    kinds = [link.welcome.device.kind]
    link.welcomed.connect(lambda welcome: kinds.append(welcome.device.kind))
    link.restart({"KVASIR_GPU_PACK": "off"})
    qtbot.waitUntil(lambda: len(kinds) == 2 and link.card is not None, timeout=20_000)
    link.restart()
    qtbot.waitUntil(lambda: len(kinds) == 3 and link.card is not None, timeout=20_000)
    assert kinds == ["cuda", "cpu", "cuda"]


def test_a_restart_while_it_starts_and_after_it_gave_up(qtbot, fake_command, monkeypatch) -> None:
    monkeypatch.setattr("app.link.worker.BACK_OFF_S", (0.01,))
    link = EngineLink(fake_command("--die-at-start"))
    try:
        link.start()
        link.restart()
        qtbot.waitUntil(lambda: link.state is LinkState.DEAD, timeout=60_000)
        link._worker._command = fake_command()
        link.restart()
        qtbot.waitUntil(lambda: link.state is LinkState.CONNECTED, timeout=20_000)
    finally:
        link.shutdown()


def test_shutdown_does_not_wait_for_an_engine_that_still_starts(qtbot) -> None:
    link = EngineLink([sys.executable, "-c", "import time; time.sleep(60)"])
    link.start()
    qtbot.waitUntil(lambda: link.engine_pid is not None, timeout=5_000)
    worker = link._worker
    link.shutdown()
    assert worker is not None
    assert not worker.is_alive()


def test_a_command_that_does_not_exist_is_a_sentence(qtbot, monkeypatch) -> None:
    monkeypatch.setattr("app.link.worker.BACK_OFF_S", (0.0,))
    link = EngineLink(["/nonexistent/kvasir-engine"])
    try:
        with qtbot.waitSignal(
            link.state_changed, timeout=5_000, check_params_cb=lambda s, _: s is LinkState.DEAD
        ) as changed:
            link.start()
        assert "could not be started" in changed.args[1]
    finally:
        link.shutdown()


def test_asking_without_a_connection_fails_with_a_sentence(qtbot, fake_command) -> None:
    link = EngineLink(fake_command())
    with qtbot.waitSignal(link.failed, timeout=100) as failed:
        link.send(p.Generate(id="x", prompt="hello"))
    assert failed.args[0].id == "x"


def test_a_model_that_is_asked_for_while_no_engine_runs_is_loaded_by_the_next_one(
    qapp, fake_command, monkeypatch
) -> None:
    link, sent = EngineLink(fake_command()), list[object]()
    monkeypatch.setattr(link, "_transmit", sent.append)
    link.send(p.Load(model="tiny"))
    link._dispatch(p.Loaded(card=p.ModelCard("tiny", "/tiny", "L", 1, "bf16", 1, 1, [], True, p.Sampling()), fit=FIT))
    link._dispatch(StateChange(LinkState.RESTARTING, ""))
    link.send(p.Load(model="odd"))
    sent.clear()
    link._dispatch(StateChange(LinkState.CONNECTED, ""))
    assert [message.model for message in sent if isinstance(message, p.Load)] == ["odd"]


def test_the_engine_exits_with_the_pipe() -> None:
    process = EngineProcess([sys.executable, "-c", "import sys; sys.stdin.read()"], "token")
    assert process.alive
    process.stop()
    assert not process.alive


def test_another_protocol_is_refused() -> None:
    line = p.encode(p.Ready(port=1, protocol=p.PROTOCOL + 1, version="9", pid=1))
    process = EngineProcess([sys.executable, "-c", f"print({line!r}, flush=True); input(); input()"], "token")
    with pytest.raises(EngineDiedError, match="same version"):
        process.wait_ready(10)
    process.stop()


def test_a_message_of_the_engine_may_be_as_large_as_one_of_the_window(qtbot, make_link) -> None:
    link, path = make_link(), "/models/" + "x" * (2 << 20)
    with qtbot.waitSignal(link.loaded, timeout=20_000):
        link.send(p.Load(model=path))
    assert link.card.path == path
    assert link.state is LinkState.CONNECTED
