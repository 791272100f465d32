"""Loading, switching and unloading in the engine thread, with a loader that fails in every way a loader can."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.base.errors import LoadCancelled
from engine.decoding.options import EngineOptions
from engine.loading.model import Drafting, LoadedModel, LoadFailed, LoadModel, Progress
from engine.loop.commands import AddRequest, Shutdown
from engine.loop.engine import Engine
from engine.protocol import Fit, Loaded, Loading, Options, Sampling, Set, Unload, Unloaded
from tests.engine.loop.toy_engine import ToyModel, toy_model
from tests.kit.listener import Listener


class ToyOpened:
    def __init__(self, loader: ToyLoader, command: LoadModel) -> None:
        self.loader, self.command, self.was_read = loader, command, False
        self.fit = Fit(1, 0, 1, 1, 0, 1, 1)

    def fits_alongside(self) -> bool:
        return self.loader.roomy

    def read(self, progress: Progress, cancelled: Callable[[], bool]) -> None:
        self.loader.resident_while_reading = self.loader.engine.loaded is not None
        for tenth in range(10):
            progress("reading weights", tenth / 10)
            self.loader.while_reading()
            if cancelled():
                raise LoadCancelled("cancelled")
        if self.loader.failure is not None:
            raise self.loader.failure
        self.was_read = True

    def assemble(self, progress: Progress) -> ToyModel:
        assert self.was_read
        model = toy_model(name=self.command.path)
        proposers = model.drafting.proposers if self.command.draft else model.drafting.proposers[:1]
        return dataclasses.replace(
            model,
            command=self.command,
            drafting=Drafting(proposers),
            reads=model.reads._replace(packed=True),
        )


class ToyLoader:
    """``roomy``: there is room for two models. ``failure`` is raised while reading."""

    def __init__(self) -> None:
        self.roomy = True
        self.failure: Exception | None = None
        self.while_reading: Callable[[], None] = lambda: None
        self.resident_while_reading = False
        self.packings: list[str] = []
        self.engine: Engine

    def open(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> ToyOpened:
        if command.path == "missing":
            raise LoadFailed("bad_model", "There is no model at missing. Check the path.")
        self.packings.append(options.packing)
        return ToyOpened(self, command)


class Bench:
    def __init__(self) -> None:
        self.heard = Listener()
        self.loader = ToyLoader()
        self.engine = self.loader.engine = Engine(self.heard, loader=self.loader)

    def load(self, path: str, draft: str = "") -> None:
        self.engine.submit(LoadModel(path, draft))
        self.engine.step()

    @property
    def name(self) -> str | None:
        return self.engine.loaded.card.name if self.engine.loaded else None

    def heard_of(self, kind: type) -> list:  # type: ignore[type-arg]
        return [event for event in self.heard.others if isinstance(event, kind)]

    def value(self, key: str) -> object:
        return next(spec.value for spec in self.engine.catalogue_state() if spec.key == key)


@pytest.fixture
def bench() -> Bench:
    """With a model."""
    made = Bench()
    made.load("one")
    return made


@contextmanager
def while_it_reads(bench: Bench) -> Iterator[None]:
    """The engine runs in a thread of its own and reads another model, which goes on afterwards, and then ends."""
    reached, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        assert go_on.wait(300)

    bench.loader.while_reading = pause
    thread = threading.Thread(target=bench.engine.run)
    bench.engine.submit(LoadModel("two"))
    thread.start()
    assert reached.wait(300)
    yield
    go_on.set()
    bench.engine.submit(Shutdown())
    thread.join(300)
    assert not thread.is_alive()


def test_a_load_shows_its_progress_and_makes_switches_available(bench: Bench) -> None:
    fractions = [event.fraction for event in bench.heard_of(Loading)]
    assert len(fractions) >= 10
    assert fractions == sorted(fractions)
    assert bench.heard_of(Loaded)[0].card.name == "one"
    speculation = next(spec for spec in bench.heard_of(Options)[-1].catalogue if spec.key == "speculation")
    able = {"off", "auto", "ngram"}
    assert set(speculation.disabled_choices) == {*speculation.titles} - able
    bench.load("two", draft="small")
    speculation = next(spec for spec in bench.heard_of(Options)[-1].catalogue if spec.key == "speculation")
    assert set(speculation.disabled_choices) == {*speculation.titles} - able - {"draft"}


def test_the_gpu_of_the_model_that_stays_is_the_current_one_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.engine.loaded is not None
    current: list[object] = []
    monkeypatch.setattr("engine.loop.engine.make_current", current.append)
    bench.loader.failure = RuntimeError("on another GPU")
    bench.load("two")
    assert bench.name == "one"
    assert current == [bench.engine.loaded.device]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LoadFailed("bad_model", "The file is damaged. Download it again."), "bad_model"),
        (RuntimeError("CUDA out of memory"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (ValueError("surprise"), "load_failed"),
    ],
)
def test_a_failed_load_keeps_the_present_model_where_both_had_room(bench: Bench, failure: Exception, code: str) -> None:
    bench.loader.failure = failure
    bench.load("two")
    assert bench.name == "one"
    assert bench.loader.resident_while_reading
    assert [error.code for error in bench.heard.errors] == [code]
    assert bench.heard.errors[0].message.endswith("one is still loaded.")
    assert not bench.heard_of(Unloaded)


def test_without_room_for_both_the_present_model_goes_first_and_the_error_says_so(bench: Bench) -> None:
    bench.loader.roomy = False
    bench.loader.failure = LoadFailed("bad_model", "The file is damaged. Download it again.")
    bench.load("two")
    assert bench.name is None
    assert not bench.loader.resident_while_reading
    assert "one is no longer loaded" in bench.heard.errors[0].message
    assert [event.reason for event in bench.heard_of(Unloaded)] == ["Made room for two."]
    bench.loader.failure = None
    bench.load("two")
    assert bench.name == "two"


def test_a_missing_model_costs_nothing(bench: Bench) -> None:
    bench.loader.roomy = False
    bench.load("missing")
    assert bench.name == "one"
    assert bench.heard.errors[0].message == "There is no model at missing. Check the path. one is still loaded."


def test_a_load_can_be_cancelled_from_another_thread(bench: Bench) -> None:
    with while_it_reads(bench):
        bench.engine.cancel_load()
    assert bench.heard.errors[0].code == "load_cancelled"
    assert [event.card.name for event in bench.heard_of(Loaded)] == ["one"]


def test_cancelling_one_load_cancels_no_later_one(bench: Bench) -> None:
    """Cancelled, and another model asked for, before the first load notices; a cancel while idle means nothing."""
    bench.engine.cancel_load()
    with while_it_reads(bench):
        bench.engine.submit(LoadModel("three"))
        bench.engine.cancel_load()
        bench.engine.submit(LoadModel("four"))
    assert [error.code for error in bench.heard.errors] == ["load_cancelled", "load_cancelled"]
    assert [event.card.name for event in bench.heard_of(Loaded)] == ["one", "four"]


def test_running_answers_end_when_the_model_changes(bench: Bench) -> None:
    bench.engine.submit(AddRequest("a", [1, 2, 3], Sampling(seed=1, ignore_eos=True)))
    for _ in range(3):
        bench.engine.step()
    bench.load("two")
    finished = bench.heard.answers["a", 0].finished
    assert finished is not None
    assert (finished.reason, finished.detail) == ("cancelled", "Stopped, because two is being loaded.")
    assert bench.heard.answers["a", 0].tokens


def test_weights_reload_the_present_model_and_a_failure_takes_the_value_back() -> None:
    bench = Bench()
    bench.load("one", draft="small")
    bench.engine.submit(Set(key="weights", value="16bit"))
    bench.engine.step()
    assert bench.loader.packings == ["4bit", "16bit"]
    assert bench.engine.loaded is not None
    assert bench.engine.loaded.command.draft == "small"
    bench.loader.failure = LoadFailed("out_of_memory", "It does not fit. Close other programs.")
    bench.engine.submit(Set(key="weights", value="packed"))
    bench.engine.step()
    assert bench.value("weights") == "16bit"
    assert bench.heard.errors[-1].code == "out_of_memory"


def test_a_value_that_the_new_model_cannot_serve_falls_back() -> None:
    bench = Bench()
    bench.load("one", draft="small")
    bench.engine.submit(Set(key="speculation", value="draft"))
    bench.engine.step()
    assert bench.value("speculation") == "draft"
    bench.load("two")
    assert bench.value("speculation") == "auto"
    bench.engine.submit(Set(key="speculation", value="draft"))
    bench.engine.step()
    assert bench.heard.errors[-1].code == "bad_option"


def test_wishes_before_a_load_hold_for_it_and_survive_making_room() -> None:
    bench = Bench()
    bench.engine.submit(Set(key="weights", value="16bit"))
    bench.load("one")
    bench.loader.roomy = False
    bench.load("two")
    assert bench.loader.packings == ["16bit", "16bit"]
    assert bench.value("weights") == "16bit"
    assert not bench.heard.errors


def test_an_unload_that_names_a_model_leaves_another_one(bench: Bench) -> None:
    for path, left in (("two", "one"), ("one", None)):
        bench.engine.submit(Unload(path=path))
        bench.engine.step()
        assert bench.name == left


def test_unloading_leaves_an_engine_that_says_what_is_missing(bench: Bench) -> None:
    bench.engine.submit(Unload())
    bench.engine.submit(AddRequest("a", [1]))
    bench.engine.step()
    assert bench.heard_of(Unloaded) == [Unloaded(reason="")]
    assert (bench.heard.errors[0].code, bench.heard.errors[0].id) == ("no_model", "a")


def test_run_sleeps_serves_and_shuts_down() -> None:
    bench = Bench()
    done = threading.Event()
    hear = bench.heard.__call__

    def listen(event: object) -> None:
        hear(event)
        if bench.heard.answers and all(answer.finished for answer in bench.heard.answers.values()):
            done.set()

    bench.engine._emit = listen
    thread = threading.Thread(target=bench.engine.run)
    thread.start()
    bench.engine.submit(LoadModel("one"))
    bench.engine.submit(AddRequest("a", [1, 2, 3], Sampling(seed=1, max_tokens=5, ignore_eos=True)))
    assert done.wait(300)
    bench.engine.submit(Shutdown())
    thread.join(300)
    assert not thread.is_alive()
    assert not bench.heard.errors
    assert len(bench.heard.answers["a", 0].tokens) == 5
    assert bench.engine.loaded is None
