"""Measurements that the panel offers: what a switch buys, and what an approximation costs. No widget is made here."""

from __future__ import annotations

import uuid

from PySide6.QtCore import QObject, Signal

from app.chat.elsewhere import reason as reason_elsewhere
from app.chat.page import ChatPage
from app.chat.session.conversation import title_of
from app.language import tr
from app.link.link import EngineLink, LinkState
from app.notice import NoticeBar
from app.panel.panel import BUSY, NO_PROMPT, OptimisationPanel
from engine import protocol
from engine.protocol.rounds import seen_by

NO_TOOLS = tr("The tools that this chat had were not kept: it is measured without any.")
NO_CHAT = tr("Ask something first: the cost is measured on what this chat holds.")
_COMPARE = "compare"
_COST = "cost"


class MeasureWiring(QObject):
    """Lives as long as the window. Comparisons replay the last prompt of the chat on screen with a switch both ways;
    costs are measured on what that chat holds. At most one of each runs."""

    changed = Signal()
    """:attr:`measuring` may be another."""

    def __init__(
        self, link: EngineLink, panel: OptimisationPanel, chat: ChatPage, notice: NoticeBar, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._link, self._panel, self._chat, self._notice = link, panel, chat, notice
        self._comparison: tuple[str, str] | None = None
        """(the id of the comparison that runs, the key of its switch)."""
        self._asked = ""
        """The prompt that it replays."""
        self._cost: tuple[str, str] | None = None
        """(the id of the measurement that runs, the key of its switch)."""
        self._taken = ""
        self._model = ""
        """The path of the model that the results on show were measured with."""
        panel.measure_requested.connect(self._compare)
        panel.cost_requested.connect(self._measure_cost)
        for changed in (panel.value_changed, panel.measure_requested):
            changed.connect(lambda *_: notice.clear(_COST))
        chat.chat_changed.connect(lambda _: panel.clear_costs())
        link.welcomed.connect(self._on_welcome)
        link.loaded.connect(self._on_loaded)
        link.compare_progress.connect(self._on_progress)
        link.compared.connect(self._on_compared)
        link.cost.connect(self._on_cost)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        for signal in (link.loaded, link.unloaded, chat.prompt_changed):
            signal.connect(self._update_measurable)
        self._update_measurable()

    @property
    def measuring(self) -> bool:
        """True if a switch or a cost is being measured."""
        return self._comparison is not None or self._cost is not None

    @property
    def comparing(self) -> bool:
        """True if a switch is being measured, which takes time that another answer would take, too."""
        return self._comparison is not None

    def set_taken(self, reason: str) -> None:
        """Set the reason nothing can be measured here, as something else measures on this machine; "" when it can."""
        if reason != self._taken:
            self._taken = reason
            self._update_measurable()

    def _compare(self, key: str) -> None:
        """Measure a switch, or stop measuring it."""
        if self._comparison is not None and self._comparison[1] == key:
            self._link.send(protocol.Cancel(id=self._comparison[0]))
            return
        prompt, spec = self._chat.last_prompt(), self._panel.spec(key)
        if prompt is None or spec is None or self._comparison is not None:
            return
        messages, sampling = prompt
        try:
            tools = self._chat.session.talk.last_tools()
        except LookupError:
            tools = None
            self._notice.say(NO_TOOLS, topic=_COMPARE)
        else:
            self._notice.clear(_COMPARE)
        compare = protocol.Compare(
            id=uuid.uuid4().hex,
            key=key,
            prompt=seen_by(self._link.card, messages),
            sampling=sampling,
            values=compare_values(spec),
            thinking=self._chat.session.last_thinking(),
            adapter=self._chat.last_adapter(),
            tools=tools,
        )
        self._comparison = (compare.id, key)
        self._asked = title_of(next((each.content for each in reversed(messages) if each.role == "user"), ""))
        self._panel.show_progress(key, protocol.CompareProgress(id=compare.id, done=0, total=0))
        self._link.send(compare)
        self.changed.emit()

    def _measure_cost(self, key: str) -> None:
        if self._cost is None and self._chat.chat_id:
            self._cost = (uuid.uuid4().hex, key)
            self._notice.clear(_COST)
            self._panel.show_cost_running(key, True)
            self._update_measurable()
            self._link.send(protocol.MeasureCost(id=self._cost[0], prompt="", chat=self._chat.chat_id))
            self.changed.emit()

    def _on_welcome(self, message: protocol.Welcome) -> None:
        if message.loaded is not None:
            self._model = message.loaded.path

    def _on_loaded(self, message: protocol.Loaded) -> None:
        self._notice.clear(_COMPARE)
        if message.card.path != self._model:
            self._panel.clear_results()
        self._model = message.card.path

    def _on_progress(self, message: protocol.CompareProgress) -> None:
        if self._comparison is not None and message.id == self._comparison[0]:
            self._panel.show_progress(self._comparison[1], message)

    def _on_compared(self, message: protocol.Compared) -> None:
        if self._comparison is not None and message.id == self._comparison[0]:
            self._comparison = None
            self._panel.show_result(message, self._asked)
            self.changed.emit()

    def _on_cost(self, message: protocol.Cost) -> None:
        if self._cost is not None and message.id == self._cost[0]:
            self._panel.show_cost(self._cost[1], message)
            self._end_cost()

    def _on_failed(self, error: protocol.Error) -> None:
        """The chat page shows what became of loads, settings and its own requests."""
        if self._comparison is not None and error.id == self._comparison[0]:
            self._end_comparison()
            if error.code != "cancelled":
                self._notice.say(error.message, "bad", topic=_COMPARE)
        elif self._cost is not None and error.id == self._cost[0]:
            self._end_cost()
            self._notice.say(error.message, "bad", topic=_COST)

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:
            self._end_comparison()
            self._end_cost()
        self._update_measurable()

    def _end_comparison(self) -> None:
        if self._comparison is not None:
            self._panel.show_progress(self._comparison[1], None)
            self._comparison = None
            self.changed.emit()

    def _end_cost(self) -> None:
        if self._cost is not None:
            self._panel.show_cost_running(self._cost[1], False)
            self._cost = None
            self._update_measurable()
            self.changed.emit()

    def _update_measurable(self, *_: object) -> None:
        connected, asked = self._link.state is LinkState.CONNECTED, self._chat.last_prompt() is not None
        no_model = "" if connected and self._link.card is not None else tr("Load a model first.")
        no_model = reason_elsewhere(self._chat.session.talk.chat.remote) or no_model or self._taken
        reason = no_model or ("" if asked else NO_PROMPT)
        self._panel.set_measurable(reason if connected else tr("The engine is not running."))
        self._panel.set_cost_measurable(BUSY if self._cost is not None else no_model or ("" if asked else NO_CHAT))


def compare_values(spec: protocol.OptionSpec) -> list[protocol.Value]:
    """The two values to replay: the engine's own pair, but a choice set to a third value takes the place of "on"."""
    pair = spec.measure.compare
    if spec.kind == "choice" and pair and spec.value not in pair:
        return [pair[0], spec.value]
    return list(pair)
