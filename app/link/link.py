"""The window's only door to the engine: messages out, Qt signals in, and the engine brought back when it dies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec
from PySide6.QtCore import QObject, Qt, Signal

from app import proposers
from app.language import known, tr
from app.link.calls import Calls
from app.link.child import default_command
from app.link.switches import Switches, Withheld
from app.link.worker import RESTARTS, STARTS, Event, LinkState, StateChange, Worker
from engine import protocol

__all__ = ["RESTARTS", "EngineLink", "LinkState"]

TOO_LARGE = tr(
    "The conversation is larger than the {limit} MiB that the engine takes. Shorten the message, or begin a new chat.",
    limit=protocol.MAX_FRAME >> 20,
)
RETRIES = 1
"""Number of times a model is loaded once more when the engine stopped while it was being loaded again."""
DRAIN_S = 0.006
"""Seconds that one drain of the inbox may hold the event loop before it lets the window paint."""

_SIGNALS: dict[type, str] = {
    protocol.Welcome: "welcomed",
    protocol.Options: "options",
    protocol.Loading: "loading",
    protocol.Loaded: "loaded",
    protocol.Unloaded: "unloaded",
    protocol.Prefill: "prefill",
    protocol.Delta: "delta",
    protocol.Finished: "finished",
    protocol.Telemetry: "telemetry",
    protocol.CompareProgress: "compare_progress",
    protocol.Compared: "compared",
    protocol.Estimated: "estimated",
    protocol.Counted: "counted",
    protocol.PageMap: "page_map",
    protocol.PageDescribed: "page_described",
    protocol.RadixTree: "radix_tree",
    protocol.ContextCut: "context_cut",
    protocol.Cost: "cost",
    protocol.Adapters: "adapters_changed",
    protocol.Reasons: "reasons",
    protocol.Error: "failed",
}
"""The signal that carries each message."""


class EngineLink(QObject):
    """Every signal carries one message of engine/protocol and is emitted in the thread of this object.

    ``state_changed`` carries a :class:`LinkState` and a sentence for people. After a restart the model that was
    loaded last is loaded again, and the values given to Set that differ from the defaults are set again.
    """

    welcomed = Signal(object)
    options = Signal(object)
    loading = Signal(object)
    loaded = Signal(object)
    unloaded = Signal(object)
    prefill = Signal(object)
    delta = Signal(object)
    finished = Signal(object)
    telemetry = Signal(object)
    compare_progress = Signal(object)
    compared = Signal(object)
    estimated = Signal(object)
    counted = Signal(object)
    page_map = Signal(object)
    page_described = Signal(object)
    radix_tree = Signal(object)
    context_cut = Signal(object)
    cost = Signal(object)
    adapters_changed = Signal(object)
    reasons = Signal(object)
    failed = Signal(object)
    load_asked = Signal(object)
    """A Load that is on its way, or waits for the engine."""
    withheld = Signal(object)
    """The Withheld wishes, once there is a model and the engine was told what can be set; an empty list for none.

    What is asked from now on is answered with the values that the person chose.
    """
    state_changed = Signal(object, str)
    _wake = Signal()

    def __init__(self, command: Sequence[str] | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command) if command is not None else default_command()
        self._worker: Worker | None = None
        self._inbox: deque[Event] = deque()
        self._wake_pending = False
        self._wake.connect(self._drain, Qt.ConnectionType.QueuedConnection)
        self._state = LinkState.STARTING
        self._calls = Calls(lambda message: self._put(protocol.encode(message)), self)
        self.call = self._calls.call
        self._welcome: protocol.Welcome | None = None
        self._catalogue: list[protocol.OptionSpec] = []
        self._card: protocol.ModelCard | None = None
        self._adapters: list[protocol.AdapterCard] = []
        self._last_adapters: list[protocol.AdapterCard] = []
        """Adapters of the model that was loaded last, which come back with it after a restart."""
        self._idle = False
        self._asked: protocol.Load | None = None
        self._last_load: protocol.Load | None = None
        self._switches = Switches()
        self._restoring = False
        self._failures = 0
        """Deaths in a row while a model was loaded again."""
        self._reapply = False
        """True if the next catalogue is that of a model that was just loaded."""
        self._comparing: set[str] = set()
        """The ids of comparisons that run: they set switches, and a value set in between would end them."""

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def card(self) -> protocol.ModelCard | None:
        """The loaded model, None while there is none; one that is :attr:`idle`, too."""
        return self._card

    @property
    def idle(self) -> bool:
        """True if the engine unloaded the model because nothing was asked of it: the next request loads it again."""
        return self._idle

    @property
    def adapters(self) -> list[protocol.AdapterCard]:
        """The LoRA adapters in memory."""
        return list(self._adapters)

    @property
    def catalogue(self) -> list[protocol.OptionSpec]:
        return self._catalogue

    @property
    def welcome(self) -> protocol.Welcome | None:
        return self._welcome

    @property
    def wanted(self) -> dict[str, protocol.Value]:
        """The values that the person chose, whether they can be in force now or not, without defaults."""
        return dict(self._switches.wanted)

    @property
    def held_back(self) -> list[Withheld]:
        """The values that the person chose and that cannot be in force now."""
        return self._switches.withheld(self._catalogue)

    def want(self, values: Mapping[str, object]) -> None:
        """Before the start: values chosen in an earlier run, to be set as soon as they can be."""
        self._switches.want(values)

    @property
    def knows_model(self) -> bool:
        """True if there is a model to load again after a restart; not after the engine went down while doing that."""
        return (self._asked or self._last_load) is not None

    @property
    def last_load(self) -> protocol.Load | None:
        """The order that loaded the model that is loaded, or was last; None where that was no order of this link."""
        return self._last_load

    @property
    def engine_pid(self) -> int | None:
        return self._worker.pid if self._worker is not None else None

    def start(self) -> None:
        """Start the engine; returns at once, the signals tell the rest."""
        if self._worker is None:
            self._worker = Worker(self._command, self._post)
            self._worker.start()
            self.state_changed.emit(self._state, STARTS)

    def revive(self) -> None:
        """Start the engine again after DEAD."""
        if self._worker is not None:
            self._worker.revive()

    def restart(self, environment: Mapping[str, str] | None = None) -> None:
        """End the engine, whatever it does, and start another with ``environment`` added to the window's.

        The state goes to STARTING; model and values come back as after a death. After DEAD it only starts.
        """
        if self._worker is not None:
            self._worker.restart(environment or {})

    def shutdown(self) -> None:
        """Stop the engine and the thread; no signal is emitted afterwards."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
            worker.join(timeout=10.0)
        self._inbox.clear()
        self._calls.close()

    def send(self, message: protocol.Message) -> None:
        """Without a connection a Load or Set is kept for the next one; anything else comes back through ``failed``."""
        if isinstance(message, protocol.Load):
            self._asked = message
            self._switches.try_again()
            self.load_asked.emit(message)
        elif isinstance(message, protocol.Unload):
            self._asked = self._last_load = None
        elif isinstance(message, protocol.Set):
            self._switches.choose(message.key, message.value, self._catalogue)
        elif isinstance(message, protocol.Compare):
            self._comparing.add(message.id)
        self._transmit(message)

    def _put(self, frame: str) -> bool:
        """False where there is no connection."""
        return self._worker is not None and self._state is LinkState.CONNECTED and self._worker.send(frame)

    def _transmit(self, message: protocol.Message) -> None:
        if self._state is LinkState.CONNECTED:
            frame = protocol.encode(message)
            if len(frame) > protocol.MAX_FRAME // 4 and len(frame.encode()) > protocol.MAX_FRAME:
                self._refuse("too_large", TOO_LARGE, message)
                return
            if self._put(frame):
                return
        if not isinstance(message, protocol.Load | protocol.Set | protocol.Unload):
            text = tr("The engine is not running yet. Wait until it has started, then try again.")
            self._refuse("not_connected", text, message)

    def _refuse(self, code: str, sentence: str, message: protocol.Message) -> None:
        """The answer to a message that is not sent."""
        id = getattr(message, "id", "")
        self._comparing.discard(id)
        self.failed.emit(protocol.Error(code=code, message=sentence, id=id))

    def _post(self, event: Event) -> None:
        """From the worker's thread. One queued wake-up serves all events that wait."""
        self._inbox.append(event)
        if not self._wake_pending:
            self._wake_pending = True
            self._wake.emit()

    def _drain(self) -> None:
        self._wake_pending = False
        until = time.monotonic() + DRAIN_S
        while self._inbox and self._worker is not None:
            self._dispatch(self._inbox.popleft())
            if self._inbox and time.monotonic() > until:
                self._wake_pending = True
                self._wake.emit()
                return

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, StateChange):
            self._change_state(event)
            return
        if self._calls.take(event):
            return
        if isinstance(event, protocol.Loading):
            event = msgspec.structs.replace(event, stage=known(event.stage))
        self._note(event)
        if (name := _SIGNALS.get(type(event))) is not None:
            getattr(self, name).emit(event)
        if isinstance(event, protocol.Loaded):
            for card in self._last_adapters if self._restoring else ():
                self._transmit(protocol.LoadAdapter(name=card.name, path=card.path))
            self._restoring, self._reapply, self._failures = False, True, 0
        elif isinstance(event, protocol.Options):
            self._settle_later()
        elif isinstance(event, protocol.Compared | protocol.Error) and event.id in self._comparing:
            self._comparing.discard(event.id)
            self._settle_later()

    def _settle_later(self) -> None:
        """Set the switches once the loaded model's limits are known and no comparison runs."""
        if self._reapply and not self._comparing:
            self._reapply = False
            self._settle_values()

    def _change_state(self, change: StateChange) -> None:
        self._state = change.state
        if change.state is not LinkState.CONNECTED:
            self._card, self._adapters, self._idle = None, [], False
            self._comparing.clear()
            died = change.state is not LinkState.STARTING
            restoring, self._restoring = self._restoring, False
            self._failures += restoring and died
            if self._failures > RETRIES:  # while loading the same model again: do not try that for ever
                self._failures = 0
                self._asked = self._last_load = None
                self._switches.hold_back(tr("the engine stopped while it was being set up with this"))
            self._calls.lost(change.state is LinkState.DEAD)
        self.state_changed.emit(change.state, change.sentence)
        if change.state is LinkState.CONNECTED:
            self._calls.connected()
            self._switches.try_again()
            self._restore()

    def _note(self, message: protocol.Message) -> None:
        """Keep what the properties report."""
        if isinstance(message, protocol.Welcome):
            self._welcome, self._card, self._catalogue = message, message.loaded, message.catalogue
            proposers.learn(message.drafters)
            self._adapters, self._idle = message.adapters, False
        elif isinstance(message, protocol.Adapters):
            self._adapters = self._last_adapters = message.adapters
        elif isinstance(message, protocol.Options):
            self._catalogue = message.catalogue
            self._switches.confirm(message.catalogue)
        elif isinstance(message, protocol.Loaded):
            self._card, self._idle = message.card, False
            if message.rebuilt:
                return
            self._adapters = []
            if not self._restoring:
                self._last_adapters = []
            self._last_load = self._asked or protocol.Load(model=message.card.path)
        elif isinstance(message, protocol.Unloaded):
            self._idle = message.idle
            if not message.idle:
                self._card, self._adapters = None, []
        elif isinstance(message, protocol.Error) and not message.id:
            self._switches.refuse()  # a value that was refused is not set again
            if self._card is None and message.code != "bad_option":
                self._asked = self._last_load  # nor is a load tried again after a restart

    def _restore(self) -> None:
        """Give a fresh engine the model and the values that the last one had, or that were asked for meanwhile."""
        load = self._asked or self._last_load
        if self._card is not None:
            self._settle_values()
            return
        if load is None:
            self._resend_values()
            return
        self._restoring = True
        self._resend_values(before_load=True)  # so that weights are read once, and one cache is made
        self.send(load)

    def _settle_values(self) -> None:
        """There is a model: what it allows is set."""
        self._resend_values()
        self.withheld.emit(self.held_back)

    def _resend_values(self, before_load: bool = False) -> None:
        """``before_load``: those only that decide what a load makes."""
        for change in self._switches.missing(self._catalogue, before_load):
            self._transmit(change)
