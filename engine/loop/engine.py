"""The engine: one thread that owns the model, obeys commands and steps.

Other threads call :meth:`Engine.submit` and receive events through ``emit``, which the engine thread calls.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import engine.loading.techniques  # noqa: F401 - fills the catalogue
from engine.base.devices import make_current
from engine.base.errors import LoadCancelled, is_out_of_memory, lost_device
from engine.cache.offload.saved import SavedChats
from engine.cache.stores.kinds import KVKind
from engine.catalogue import BY_KEY, OptionError
from engine.compute.models.adapters import Adapter
from engine.compute.runner.perplexity import Readers
from engine.compute.sampling.params import SamplingError
from engine.decoding.hand_over import HandOverRefused
from engine.decoding.options import EngineOptions
from engine.loading.capabilities import capabilities
from engine.loading.loader import CheckpointLoader
from engine.loading.memory.environment import bound_kernels
from engine.loading.model import (
    LoadedModel,
    Loader,
    LoadFailed,
    LoadModel,
    OpenedModel,
    load_name,
    release_memory,
    spare_the_collector,
    without_arenas,
)
from engine.loading.parts.adapter import adapters_of, cards, find_adapter, load_adapter, unload_adapter
from engine.loop import admission
from engine.loop.commands import AddRequest, Command, FindKept, Inspect, MeasureText, Shutdown
from engine.loop.events import Event
from engine.loop.inspecting import Measuring, found_kept, inspected
from engine.loop.stepper import Stepper
from engine.protocol import (
    Adapters,
    CacheStats,
    Cancel,
    Error,
    ForgetChat,
    LoadAdapter,
    Loaded,
    Loading,
    Options,
    OptionSpec,
    PageCounts,
    ServiceFigures,
    Set,
    Unload,
    UnloadAdapter,
    Unloaded,
    Value,
)

_log = logging.getLogger(__name__)

GPU_LOST = (
    "The GPU failed ({reason}). The engine has to start again, which the window sees to by itself: send the message "
    "again when the model is loaded."
)


class Engine:
    """Commands in, events out; ``submit``, ``cancel_load``, ``loaded`` and ``catalogue_state`` are for any thread."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        device: str = "auto",
        clock: Callable[[], float] = time.monotonic,
        loader: Loader | None = None,
        saved: SavedChats | None = None,
    ) -> None:
        """``device`` is what "auto" in a load means: "auto", "cpu" or "cuda". ``loader`` brings models into memory.

        ``saved`` keeps chats in files while the quota (``disk_cache``) is above 0; None: never.
        """
        bound_kernels()
        self._emit, self._clock, self._saved = emit, clock, saved
        self._loader: Loader = loader or CheckpointLoader(device)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._options = EngineOptions()
        self._stepper: Stepper | None = None
        self._between: LoadedModel | None = None  # the model without arenas, while its cache is rebuilt
        self._load_cancelled = threading.Event()
        self._waiting_loads: deque[threading.Event] = deque()
        self._submitting = threading.Lock()
        self._stopping = False
        self._arrivals = 0
        self._version = 0
        self._measuring = Measuring()

    # --- from any thread -----------------------------------------------------------------------------------------

    def submit(self, command: Command) -> None:
        """Queue a command; it takes effect between two steps."""
        with self._submitting:
            if isinstance(command, LoadModel):
                self._waiting_loads.append(threading.Event())
            self._commands.put(command)

    def cancel_load(self) -> None:
        """Stop the load in progress at its next tensor, and the loads that wait; later loads are not affected."""
        with self._submitting:
            for cancelled in (self._load_cancelled, *self._waiting_loads):
                cancelled.set()

    @property
    def loaded(self) -> LoadedModel | None:
        """The model that is served now; its text parts may be used from any thread."""
        stepper = self._stepper
        return stepper.model if stepper is not None else self._between

    def catalogue_state(self) -> list[OptionSpec]:
        return self._options.state()

    def cache_version(self) -> int:
        """A number that changes whenever pages may have changed owners; for any thread."""
        return self._version

    def cache_stats(self) -> CacheStats:
        """Statistics of the cache since the model was loaded; for any thread."""
        stepper = self._stepper
        return stepper.cache.stats if stepper is not None else CacheStats()

    def cache_pages(self) -> PageCounts:
        """The present counts of pages and of the tokens they hold; for any thread."""
        stepper = self._stepper
        return stepper.page_counts if stepper is not None else PageCounts(total=0, used=0, live_tokens=0)

    def service_targets(self) -> list[ServiceFigures]:
        """Service classes with their targets, empty without a model; for any thread."""
        stepper = self._stepper
        return stepper.service_targets if stepper is not None else []

    # --- the engine thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Obey and step until :class:`Shutdown`; sleeps while there is nothing to do."""
        while not self._stopping:
            if self.step() or self._stopping or self._prepare():
                continue
            self._check()
            self._obey(self._commands.get())
        self._unload("")
        if self._saved is not None:
            self._saved.close()

    def step(self) -> bool:
        """Obey all commands that wait, then do one step; whether anything was done."""
        worked = False
        while not self._stopping:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                break
            self._obey(command)
            worked = True
        if self._stepper is not None and not self._stopping:
            worked = self._step(self._stepper) or worked
            worked = self._measuring.step() or worked
        return worked

    def _step(self, stepper: Stepper) -> bool:
        """Run one step; an error in the loop itself ends all answers, and a new stepper serves the model."""
        self._version += bool(stepper.requests)
        try:
            return stepper.step()
        except Exception as error:
            lost = lost_device(error)
            if lost is not None:
                stepper.abandon(GPU_LOST.format(reason=lost))
                raise lost from error  # ends the thread, and with it the process: a new one may have its GPU back
            _log.exception("the step loop failed")
            stepper.abandon(f"The engine failed ({error}). Try again; the log has the details.")
            self._stepper = self._new_stepper(stepper.model)
            return True

    def _prepare(self) -> bool:
        """Use an idle moment: capture a graph that steps asked for; whether there was one."""
        stepper = self._stepper
        try:
            return stepper is not None and any(graphs.capture_one() for graphs in stepper.model.graphs)
        except Exception as error:
            lost = lost_device(error)
            if lost is not None and stepper is not None:
                stepper.abandon(GPU_LOST.format(reason=lost))
                raise lost from error
            _log.exception("nothing could be captured in an idle moment")
            return False

    def _new_stepper(self, model: LoadedModel) -> Stepper:
        return Stepper(model, self._options, self._emit, self._clock, self._saved)

    def install(self, model: LoadedModel, rebuilt: bool = False) -> None:
        """Serve this model from now on: the end of a load, or of a change of the cache alone (``rebuilt``)."""
        stepper = self._new_stepper(model)
        self._version += 1
        self._options.adopt(capabilities(model), model.found)
        if model.model is not None:
            self._options.apply_to(model.model.numerics)
        self._stepper = stepper  # last: other threads that see the model see the options for it
        self._emit(Loaded(card=model.card, fit=model.fit, rebuilt=rebuilt))
        if adapters_of(model):
            self._emit(Adapters(adapters=cards(model)))
        self._emit(Options(catalogue=self._options.state()))

    def _check(self) -> None:
        """Check, when idle, that the page ledger is consistent and that no request owns a page."""
        if self._stepper is None:
            return
        try:
            self._stepper.cache.check(idle=True)
        except AssertionError as error:
            _log.exception("the page pool does not add up")
            text = f"The page ledger does not add up ({error}). Load the model again."
            self._emit(Error(code="internal", message=text))

    def _obey(self, command: Command) -> None:
        id = command.id if isinstance(command, AddRequest) else ""
        try:
            match command:
                case AddRequest():
                    self._add(command)
                case Cancel():
                    if self._stepper is not None:
                        self._stepper.cancel(command.id)
                        self._version += 1
                case Set(key=key, value=value):
                    self._set(key, value)
                case LoadModel():
                    with self._submitting:
                        self._load_cancelled = self._waiting_loads.popleft()
                    self._load(command)
                case Unload(reason=reason, idle=idle, path=path):
                    if self._stepper is not None and path in ("", self._stepper.model.command.path):
                        self._unload(reason, idle)
                case LoadAdapter(name=name, path=path):
                    load_adapter(self._serving().model, name, path)
                    self._emit(Adapters(adapters=cards(self.loaded)))
                case UnloadAdapter(name=name):
                    self._unload_adapter(self._serving(), name)
                case FindKept():
                    command.reply(found_kept(self._stepper, command))
                case Inspect():
                    command.reply(inspected(self._stepper, command))
                case MeasureText():
                    model = self.loaded
                    self._measuring.add(model, self._readers(model), command)
                case ForgetChat(chat=chat):
                    if self._stepper is not None:
                        self._stepper.forget(chat)
                        self._version += 1
                    elif self._saved is not None:
                        self._saved.forget(chat)
                case Shutdown():
                    self._stopping = True
        except (OptionError, SamplingError, LoadFailed, HandOverRefused) as refused:
            self._emit(Error(code=_code(refused), message=str(refused), id=id))
        except Exception as error:
            _log.exception("a command failed: %s", type(command).__name__)
            text = f"That failed inside the engine ({error}). The log has the details."
            self._emit(Error(code="internal", message=text, id=id))

    # --- adapters ------------------------------------------------------------------------------------------------

    def _serving(self) -> Stepper:
        """Raises :class:`LoadFailed` without a model."""
        if self._stepper is None:
            raise LoadFailed("no_model", admission.NO_MODEL)
        return self._stepper

    def _unload_adapter(self, stepper: Stepper, name: str) -> None:
        """Its answers end first; what they left in the prefix tree is found again if it comes back."""
        adapter = find_adapter(stepper.model, name)
        if adapter is not None:
            stepper.finish_all("cancelled", f"Stopped, because the adapter {name} was unloaded.", adapter.number)
        unload_adapter(stepper.model, name)
        self._version += 1
        self._emit(Adapters(adapters=cards(stepper.model)))

    def _bring_back(self, adapters: Sequence[Adapter]) -> None:
        """Load the adapters again that the same model had before it was loaded anew."""
        for adapter in adapters:
            self._obey(LoadAdapter(name=adapter.name, path=adapter.path))

    # --- requests ------------------------------------------------------------------------------------------------

    def _add(self, command: AddRequest) -> None:
        if (refusal := admission.refusal(command, self._stepper)) is not None:
            self._emit(refusal)
            return
        assert self._stepper is not None
        for request in admission.requests(command, self._stepper, self._options, self._arrivals):
            self._stepper.add(request, command.hand_over.begun)
        self._arrivals += command.n

    def _readers(self, model: LoadedModel | None) -> Readers | None:
        """The readers that score a text exactly and with the present options. Pages are chosen from row 1 on."""
        if model is None or model.readers is None:
            return None
        return model.readers(self._options.for_request({}, prompt_length=1).policy)

    # --- switches ------------------------------------------------------------------------------------------------

    def _set(self, key: str, value: bool | float | str) -> None:
        before = dict(self._options.values)
        self._options.set(key, value)
        if self._options.values == before:
            return
        model = self.loaded
        if model is not None and model.model is not None:
            self._options.apply_to(model.model.numerics)
        entry = BY_KEY[key]
        if entry.on_change == "stop sharing" and self._stepper is not None:
            self._stepper.stop_sharing()
        if entry.on_change == "resize saved chats" and self._saved is not None:
            self._saved.resize(self._options.disk_cache_bytes)
        if entry.applies == "cache" and model is not None and model.opened is not None:
            if model.kind != self._options.kv_kind:
                kind, opened, name = model.kind, model.opened, model.card.name
                del model  # its arenas make room for the new ones
                self._rebuild_cache(kind, opened, name, before)
                return
        elif entry.applies == "reload" and model is not None:
            command = model.command
            del model  # so that a load which has no room for both has its memory
            try:
                self._load_cancelled = threading.Event()
                self._load(command)
            except LoadFailed:
                self._options.values = {**self._options.values, key: before[key]}
                self._emit(Options(catalogue=self._options.state()))
                raise
            return
        self._emit(Options(catalogue=self._options.state()))

    def _rebuild_cache(self, kind: KVKind, opened: OpenedModel, name: str, before: dict[str, Value]) -> None:
        """Replace the arenas by those of another kind; if they do not fit, allocate the old kind again.

        Raises :class:`LoadFailed` with a sentence if the kind could not be changed.
        """
        assert self._stepper is not None
        wanted = self._options.kv_kind
        self._between = without_arenas(self._stepper.model)
        change = f"changed to {wanted.title}" if wanted.title != kind.title else "set up again"
        self._stepper.finish_all("cancelled", f"The KV cache was {change}, so this answer was stopped.")
        self._drop()
        try:
            self.install(opened.rebuilt(wanted), rebuilt=True)
        except Exception as error:
            _log.exception("a cache of another kind could not be made")
            self._options.values = before
            error.__traceback__ = None  # its frames keep parts of the new arenas alive
            release_memory()
            try:
                self.install(opened.rebuilt(kind), rebuilt=True)
            except Exception:
                self._announce_unloaded(f"{name} had no room left for its keys and values.")
                text = f"The KV cache could not be changed ({error}). {name} is no longer loaded: load it again."
                raise LoadFailed("out_of_memory", text) from error
            text = f"The KV cache stays {kind.title}, because {wanted.title} could not be set up ({error})."
            raise LoadFailed("cache_failed", text) from error
        finally:
            self._between = None
            spare_the_collector()

    # --- loading -------------------------------------------------------------------------------------------------

    def _load(self, command: LoadModel) -> None:
        """Load while the present model stays in memory if both fit, so that it survives a failure; else after it.

        Raises :class:`LoadFailed` with a sentence that says what is loaded now.
        """
        name = load_name(command.path)
        previous = self.loaded.card.name if self.loaded is not None else ""
        same = self.loaded is not None and self.loaded.command.path == command.path
        adapters = adapters_of(self.loaded) if same else ()
        if self._stepper is not None:
            self._stepper.finish_all("cancelled", f"Stopped, because {name} is being loaded.")

        def progress(stage: str, fraction: float) -> None:
            self._emit(Loading(model=name, stage=stage, fraction=fraction))

        try:
            opened = self._loader.open(command, self._options, self.loaded)
            if self._stepper is not None and not opened.fits_alongside():
                self._unload(f"Made room for {name}.")
            opened.read(progress, self._load_cancelled.is_set)
            self._drop()
            self.install(opened.assemble(progress))
            self._bring_back(adapters)
            spare_the_collector()
        except LoadCancelled:
            raise LoadFailed("load_cancelled", f"Loading {name} was cancelled.{self._present(previous)}") from None
        except LoadFailed as error:
            raise LoadFailed(error.code, f"{error}{self._present(previous)}") from error
        except Exception as error:
            _log.exception("loading %s failed", command.path)
            if is_out_of_memory(error):
                text = f"Memory ran out while {name} was being loaded. Close other programs or lower the memory budget."
                raise LoadFailed("out_of_memory", f"{text}{self._present(previous)}") from error
            text = f"{name} could not be loaded ({error}). The log has the details.{self._present(previous)}"
            raise LoadFailed("load_failed", text) from error
        finally:
            if self.loaded is not None:
                make_current(self.loaded.device)  # what could not be loaded may have been for another

    def _present(self, previous: str) -> str:
        """Sentence that says what is loaded after a failed load; "" where nothing was loaded before it."""
        if not previous:
            return ""
        if self._stepper is not None:
            return f" {previous} is still loaded."
        if self._options.capabilities:
            # It was dropped without an event, because its successor was about to take its place.
            self._announce_unloaded(f"{previous} had to make room.")
        return f" {previous} is no longer loaded: load it again to go on."

    def _drop(self) -> None:
        """Drop the model, if there is one, without an event: its successor is about to take its place."""
        dropped, self._stepper = self._stepper is not None, None
        self._version += 1
        self._measuring.drop()
        if dropped:
            release_memory()

    def _unload(self, reason: str, idle: bool = False) -> None:
        if self._stepper is None:
            return
        self._stepper.finish_all("cancelled", "Stopped, because the model was unloaded.")
        self._drop()
        self._announce_unloaded(reason, idle)

    def _announce_unloaded(self, reason: str, idle: bool = False) -> None:
        self._options.adopt(frozenset())
        self._emit(Unloaded(reason=reason, idle=idle))
        self._emit(Options(catalogue=self._options.state()))


def _code(error: Exception) -> str:
    if isinstance(error, LoadFailed):
        return error.code
    if isinstance(error, HandOverRefused):
        return "bad_request"
    return "bad_option" if isinstance(error, OptionError) else "bad_sampling"
