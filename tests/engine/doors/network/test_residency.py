"""Models that are loaded when a request needs them and unloaded when none comes, with a scripted engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import protocol as p
from engine.library import roots
from engine.loading.model import LoadModel
from engine.services.answers.refused import Refused
from engine.services.residency import NextStep, Policy, next_step
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import TOKEN, Client

MESSAGES: Any = [{"role": "user", "content": "abc"}]


class Clock:
    """Time that goes on when it is told to. Timers begin in the server's thread."""

    class Timer:
        def __init__(self, due: float, act: Callable[[], None]) -> None:
            self.due, self.act, self.cancelled = due, act, False

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Clock.Timer] = []

    def call_later(self, seconds: float, act: Callable[[], None]) -> Timer:
        self.timers.append(made := self.Timer(self.now + seconds, act))
        return made

    @property
    def running(self) -> bool:
        return any(not timer.cancelled for timer in self.timers)

    def advance(self, running: Running, seconds: float) -> None:
        """Returns when the server has done what was due."""
        done = threading.Event()

        def act() -> None:
            self.now += seconds
            due = [timer for timer in self.timers if not timer.cancelled and timer.due <= self.now]
            self.timers = [timer for timer in self.timers if timer not in due and not timer.cancelled]
            for timer in due:
                timer.act()
            done.set()

        running.server.hub._call_in_loop(act)
        assert done.wait(300)


class Demanding(Running):
    """With a policy, a clock of its own and OpenAI's client."""

    def __init__(self, policy: Policy, loaded: bool = True) -> None:
        self.clock = Clock()
        super().__init__(loaded, policy, self.clock.call_later)
        self.api = self.openai()
        self.pool = ThreadPoolExecutor(8)

    def ask(self, model: str = "", **fields: Any) -> str:
        return self.api.chat.completions.create(model=model, messages=MESSAGES, extra_body=fields).model

    def rest(self, model: str = "", **fields: Any) -> str:
        """Ask, and return when the idle time has begun."""
        answered = self.ask(model, **fields)
        until(lambda: self.clock.running)
        return answered

    def ask_later(self, model: str = "") -> Future[str]:
        return self.pool.submit(self.ask, model)

    def loads(self) -> list[str]:
        return [Path(command.path).name for command in self.engine.seen if isinstance(command, LoadModel)]

    def in_loop(self, scene: Coroutine[Any, Any, None]) -> None:
        """Play a scene in the server's event loop."""
        loop = self.server.hub._loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(scene, loop).result(60)

    def stop(self) -> None:
        super().stop()
        self.pool.shutdown()
        self.api.close()


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Demanding]]:
    made: list[Demanding] = []

    def run(policy: Policy, loaded: bool = True) -> Demanding:
        made.append(Demanding(policy, loaded))
        if loaded:  # as its own folder has it, so that its name and its path mean the same
            made[-1].engine.loaded = made[-1].engine._model(str(home / "models" / "tiny"), "a-draft")
        return made[-1]

    yield run
    for one in made:
        one.stop()


def until(true: Callable[[], object]) -> None:
    for _ in range(30_000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


# --- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loaded", "using", "waiting", "expected"),
    [
        ("a", 0, "", NextStep([])),
        ("a", 3, "aa", NextStep([0, 1])),
        ("", 0, "ab", NextStep([], "a")),
        ("a", 0, "b", NextStep([], "b")),
        ("a", 1, "b", NextStep([])),
        ("a", 1, "ba", NextStep([])),
        ("b", 0, "bab", NextStep([0, 2])),
    ],
)
def test_the_rule(loaded: str, using: int, waiting: str, expected: NextStep) -> None:
    assert next_step(loaded, using, waiting) == expected


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.booleans(), max_size=40))
def test_all_are_served_by_their_own_model_and_none_is_cut_off(wanted: list[str], ends: list[bool]) -> None:
    """Requests come and end in any order."""
    coming, waiting, running, loaded, served, loads = list(wanted), [], [], "", 0, 0
    moves = iter(ends)
    while coming or waiting or running:
        if running and (next(moves, True) or not coming):
            running.pop()
        elif coming:
            waiting.append(coming.pop(0))
        while (step := next_step(loaded, len(running), waiting)).admitted or step.load:
            if step.load:
                assert not running
                loaded, loads = step.load, loads + 1
            for place in reversed(step.admitted):
                assert waiting[place] == loaded
                running.append(waiting.pop(place))
                served += 1
        assert running or not waiting, "somebody waits for nothing"
    assert served == len(wanted)
    assert loads <= len(wanted)


# --- unloading --------------------------------------------------------------------------------------------------------


def test_an_idle_model_goes_and_comes_back_as_it_was(start: Callable[..., Demanding]) -> None:
    running = start(Policy(unload_after=600))
    before = running.engine.loaded
    assert running.rest("tiny") == "tiny"
    running.clock.advance(running, 599)
    assert running.engine.loaded is before
    running.rest()
    running.clock.advance(running, 599)
    assert running.engine.loaded is before, "a request begins the time anew"
    with running.connect() as socket:
        window = Client(socket)
        running.clock.advance(running, 1)
        told = window.until(p.Unloaded)
        assert told.idle
        assert told.reason == "tiny was unloaded after 10 minutes without a request. The next one loads it again."
        assert running.engine.loaded is None
        assert [(model.id, model.model_extra["state"]) for model in running.api.models.list() if model.model_extra] == [
            ("tiny", "not-loaded")
        ]
        assert not running.clock.running
        assert running.rest("tiny") == "tiny"
        assert window.until(p.Loaded).card.name == "tiny"
    (load,) = [command for command in running.engine.seen if isinstance(command, LoadModel)]
    assert load == before.command


def test_nothing_is_unloaded_while_something_goes_on(start: Callable[..., Demanding]) -> None:
    running = start(Policy(unload_after=60))
    running.engine.gate.clear()
    answer = running.ask_later()
    until(lambda: running.server.hub.answering)
    running.clock.advance(running, 1e6)
    assert running.engine.loaded is not None
    running.engine.gate.set()
    assert answer.result() == "tiny"
    until(lambda: running.clock.running)


def test_a_request_may_come_in_the_moment_of_unloading(start: Callable[..., Demanding]) -> None:
    """The engine has not obeyed yet when the request arrives: it is answered after the load that follows."""
    running = start(Policy(unload_after=60))
    running.rest()
    hold = threading.Event()
    original = running.engine._set
    running.engine._set = lambda key, value: (hold.wait(300), original(key, value))[1]  # type: ignore[method-assign]
    running.engine.submit(p.Set(key="kv_cache", value=True))
    running.clock.advance(running, 60)
    assert running.engine.loaded is not None
    answer = running.ask_later()
    hold.set()
    assert answer.result() == "tiny"
    assert running.loads() == ["tiny"]


@pytest.mark.parametrize("coming", ["huge", "tiny"])
def test_a_load_that_is_on_its_way_when_the_idle_time_is_over(
    start: Callable[..., Demanding], home: Path, coming: str
) -> None:
    """Another model than the one that was idle stays; the same one goes, and comes back when needed."""
    running = start(Policy(unload_after=60))
    running.rest()
    hold = threading.Event()
    running.engine._set = lambda key, value: hold.wait(300)  # type: ignore[method-assign, assignment, return-value]
    running.engine.submit(p.Set(key="kv_cache", value=True))
    running.engine.submit(LoadModel(str(home / "models" / coming)))
    running.clock.advance(running, 60)
    hold.set()
    running.in_loop(running.server.hub.caught_up())
    assert (running.engine.loaded is None) == (coming == "tiny")
    assert running.ask() == coming
    assert running.loads() == [coming] * (2 if coming == "tiny" else 1)


def test_what_was_moved_meanwhile_comes_back(
    start: Callable[..., Demanding], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(Policy(unload_after=60))
    running.rest()
    running.clock.advance(running, 60)
    moved = (home / "models").rename(home / "moved")
    monkeypatch.setenv("KVASIR_MODELS", str(moved))
    assert running.ask("tiny") == "tiny"
    (load,) = [command for command in running.engine.seen if isinstance(command, LoadModel)]
    assert load == LoadModel(str(moved / "tiny"), str(moved / "tiny-draft"))


@pytest.mark.parametrize("name", ["", "tiny"])
def test_a_request_waits_for_a_load_that_goes_on(start: Callable[..., Demanding], home: Path, name: str) -> None:
    running = start(Policy(), loaded=False)
    running.engine.load_gate.clear()
    running.engine.submit(LoadModel(str(home / "models" / "tiny")))
    answer, other = running.ask_later(name), running.ask_later("huge")
    with running.connect() as socket:
        window = Client(socket)
        window.send(p.Generate(id="a", prompt="abc"))
        assert not wait([answer, other], timeout=0.2).done
        running.engine.load_gate.set()
        assert answer.result() == "tiny"
        assert window.until(p.Finished).reason == "stop"
    with pytest.raises(openai.NotFoundError, match="'huge' is not loaded, but tiny is"):
        other.result()


def test_a_request_is_refused_once_the_load_that_it_waited_for_has_failed(start: Callable[..., Demanding]) -> None:
    running = start(Policy(), loaded=False)
    running.engine.load_gate.clear()
    running.engine.submit(LoadModel("/x/broken"))
    answer = running.ask_later()
    assert not wait([answer], timeout=0.2).done
    running.engine.load_gate.set()
    with pytest.raises(openai.InternalServerError, match="No model is loaded"):
        answer.result()


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_model_that_is_loaded_by_hand_meanwhile_will_do(
    start: Callable[..., Demanding], home: Path, moment: str
) -> None:
    """For a request that names none: in place of the model that was idle, or right after that."""
    running = start(Policy(unload_after=60))
    running.rest()
    running.clock.advance(running, 60)
    until(lambda: running.engine.loaded is None)
    by_hand, submit = LoadModel(str(home / "models" / "huge")), running.engine.submit

    def submit_both(command: Any) -> None:
        submit(command)
        if isinstance(command, LoadModel):
            submit(by_hand)

    running.engine.load_gate.clear()
    if moment == "before":
        submit(by_hand)
    else:
        running.engine.submit = submit_both  # type: ignore[method-assign]
    answer = running.ask_later()
    until(lambda: running.server.residency._loading is not None)
    running.engine.load_gate.set()
    assert answer.result() == "huge"
    assert running.loads() == (["huge"] if moment == "before" else ["tiny", "huge"])


def test_never_unless_it_is_wanted(start: Callable[..., Demanding]) -> None:
    running = start(Policy())
    running.ask()
    assert not running.clock.running
    with running.connect() as socket:
        window = Client(socket)
        window.send(p.UnloadAfter(minutes=2))
        until(lambda: running.clock.running)
        running.clock.advance(running, 119)
        assert running.engine.loaded is not None
        running.clock.advance(running, 1)
        assert "2 minutes" in window.until(p.Unloaded).reason
        window.send(p.Generate(id="g", prompt="abc"))
        window.until(p.Loaded)
        assert window.until(p.Finished).reason == "stop"
        window.send(p.UnloadAfter(minutes=0))
        until(lambda: not running.clock.running)


def test_a_waiting_request_of_a_window_is_cancelled(start: Callable[..., Demanding]) -> None:
    running = start(Policy(unload_after=60))
    running.rest()
    running.clock.advance(running, 60)
    running.engine.load_gate.clear()
    with running.connect() as socket:
        window = Client(socket)
        window.send(p.Generate(id="g", prompt="abc", n=2))
        window.send(p.Compare(id="c", key="kv_cache", prompt="abc"))
        window.until(p.Loading)
        window.send(p.Cancel(id="g"))
        assert [window.until(p.Finished).reason for _ in range(2)] == ["cancelled"] * 2
        window.send(p.Cancel(id="c"))
        assert window.until(p.Error).code == "cancelled"
        running.engine.load_gate.set()
        window.until(p.Loaded)
        until(lambda: running.server.residency._loading is None)  # which begins the idle time anew
        running.clock.advance(running, 60)
        assert window.until(p.Unloaded).idle


# --- loading ----------------------------------------------------------------------------------------------------------

DEMAND = Policy(on_demand=True)


def test_a_model_is_loaded_by_name_or_path(start: Callable[..., Demanding], home: Path) -> None:
    running = start(DEMAND._replace(options=p.LoadOptions(context=32), default="tiny"), loaded=False)
    listed = {model.id: model.model_extra for model in running.api.models.list()}
    assert {"tiny", "huge"} <= set(listed)
    assert listed["huge"] == {"state": "not-loaded"}
    assert running.api.models.retrieve("huge").id == "huge"
    assert running.ask() == "tiny"
    assert running.ask(str(home / "models" / "huge")) == "huge"
    assert running.ask(str(home / "models" / "huge")) == "huge"
    assert running.ask("tiny") == "tiny"
    loads = [command for command in running.engine.seen if isinstance(command, LoadModel)]
    assert running.loads() == ["tiny", "huge", "tiny"]
    assert loads[0] == LoadModel(
        str(home / "models" / "tiny"), str(home / "models" / "tiny-draft"), p.LoadOptions(context=32)
    )


def test_what_cannot_be_loaded_is_refused(start: Callable[..., Demanding], tmp_path: Path) -> None:
    running = start(DEMAND)
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "config.json").write_text("{}")
    for name in ("nothing", str(other), "../tiny"):  # a folder that is none of those listed, too
        with pytest.raises(openai.NotFoundError, match="No model of this machine is called") as refused:
            running.ask(name)
        assert refused.value.param == "model"
    waiting = [running.ask_later("broken") for _ in range(3)]
    for one in waiting:
        with pytest.raises(openai.InternalServerError, match=r"The file is damaged\. Download it again\.") as failed:
            one.result()
        assert (failed.value.status_code, failed.value.code) == (503, "load_failed")
    assert running.ask() == "tiny"


def test_other_models_are_refused_unless_they_are_wanted(start: Callable[..., Demanding]) -> None:
    running = start(Policy(unload_after=60))
    with pytest.raises(openai.NotFoundError, match="or start the server with --load-on-demand"):
        running.ask("huge")
    assert [model.id for model in running.api.models.list()] == ["tiny"]


def test_one_load_serves_all_who_wait_and_no_answer_is_cut_off(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND)
    running.engine.gate.clear()
    first = running.ask_later("tiny")
    until(lambda: running.server.hub.answering)
    others = [running.ask_later("huge") for _ in range(3)]
    residency = running.server.residency
    until(lambda: len(residency._waiting) == 3)
    late = running.ask_later("tiny")
    until(lambda: len(residency._waiting) == 4)
    assert running.loads() == []
    running.engine.gate.set()
    assert first.result() == "tiny"
    assert [other.result() for other in others] == ["huge"] * 3
    assert late.result() == "tiny"
    assert running.loads() == ["huge", "tiny"]


def test_whoever_goes_away_is_dropped(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND)
    running.engine.gate.clear()
    first = running.ask_later("tiny")
    until(lambda: running.server.hub.answering)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for stream in (False, True):
        body = {"messages": MESSAGES, "model": "huge", "stream": stream}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{running.url}/v1/chat/completions", json=body, headers=headers, timeout=0.5)
    until(lambda: not running.server.residency._waiting)
    running.engine.gate.set()
    assert first.result() == "tiny"
    assert running.loads() == []


def test_a_stream_holds_its_model_until_its_end(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND)
    running.engine.gate.clear()
    stream = running.api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    other = running.ask_later("huge")
    until(lambda: running.server.residency._waiting)
    assert running.loads() == []
    running.engine.gate.set()
    assert {chunk.model for chunk in stream} == {"tiny"}
    assert other.result() == "huge"


def test_a_request_says_how_long_its_model_stays(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND._replace(unload_after=600))
    running.rest("tiny", ttl=5)
    running.clock.advance(running, 599)
    assert running.engine.loaded.card.name == "tiny", "it was not loaded for that request"
    running.rest("huge", ttl=5)
    running.clock.advance(running, 5)
    until(lambda: running.engine.loaded is None)
    running.rest("tiny")
    running.clock.advance(running, 599)
    assert running.engine.loaded is not None, "the next load has the server's own time"
    for ttl in (0, 10**400):
        with pytest.raises(openai.BadRequestError, match="ttl"):
            running.ask("huge", ttl=ttl)


def test_a_request_whose_load_failed_changes_no_idle_time(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND)
    with pytest.raises(openai.InternalServerError, match="The file is damaged"):
        running.ask("broken", ttl=5)
    until(lambda: not running.server.residency._uses)
    assert running.engine.loaded is not None
    assert not running.clock.running


def test_models_that_are_gone_are_not_offered(start: Callable[..., Demanding], home: Path) -> None:
    gone = roots.Reference("imported/gone", str(home / "gone"))
    roots.change(lambda now: roots.ModelRoots(references=[gone]))
    running = start(DEMAND._replace(default="imported/gone"), loaded=False)
    assert not {gone.name, gone.path} & {model.id for model in running.api.models.list()}
    for name in (gone.name, gone.path, ""):
        with pytest.raises(openai.NotFoundError) as refused:
            running.ask(name)
        assert refused.value.code == "model_not_found"


def test_two_who_go_away_at_once_keep_nobody_from_going_on(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND)
    residency = running.server.residency

    async def scene() -> None:
        with residency.use() as first:
            await first.model("tiny")
            uses, tasks = [residency.use() for _ in range(3)], []
            for use, name in zip(uses, ("huge", "tiny", "tiny"), strict=True):
                tasks.append(asyncio.ensure_future(use.model(name)))
                while len(residency._waiting) < len(tasks):
                    await asyncio.sleep(0.01)
            tasks[0].cancel()
            tasks[1].cancel()
            await asyncio.wait_for(tasks[2], 30)
            for use in uses:
                use.leave()
        assert residency._users == 0

    running.in_loop(scene())
    assert running.ask("huge") == "huge"


def test_a_stopping_server_refuses_those_who_wait(start: Callable[..., Demanding]) -> None:
    running = start(DEMAND)
    running.engine.load_gate.clear()
    waiting = running.ask_later("huge")
    until(lambda: running.loads())
    running.server.stop()
    with pytest.raises(openai.InternalServerError, match="The engine was stopped"):
        waiting.result()


# --- one has the engine alone -----------------------------------------------------------------------------------------


def test_running_answers_end_before_one_has_the_engine_alone_and_later_ones_wait(
    start: Callable[..., Demanding],
) -> None:
    running = start(Policy())
    running.engine.gate.clear()
    first = running.ask_later()
    until(lambda: running.server.hub.answering)
    entered, over = threading.Event(), threading.Event()

    async def alone() -> None:
        async with running.server.residency.alone():
            entered.set()
            await asyncio.to_thread(over.wait)

    one, other = (running.pool.submit(running.in_loop, alone()) for _ in range(2))
    assert not entered.wait(0.05)
    running.engine.gate.set()
    assert first.result(60)
    assert entered.wait(60)
    later = running.ask_later()
    running.server.hub.loop.call_soon_threadsafe(running.server.residency.unload)
    assert not wait([one, other, later], 0.05).done
    over.set()
    assert later.result(60)
    one.result(60)
    other.result(60)
    assert running.server.residency._alone_over is None
    assert not [command for command in running.engine.seen if isinstance(command, p.Unload)]


def test_whoever_waits_for_the_engine_is_refused_when_the_server_stops(start: Callable[..., Demanding]) -> None:
    running = start(Policy())

    async def scene() -> None:
        async with running.server.residency.alone():
            with running.server.residency.use() as use:
                waiting = asyncio.ensure_future(use.model(""))
                await asyncio.sleep(0.01)
                assert not waiting.done()
                running.server.residency.stop(Refused("stopping", "The server stops."))
                with pytest.raises(Refused):
                    await waiting

    running.in_loop(scene())
