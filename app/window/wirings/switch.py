"""Connects the switches of the panel to the engine, the settings and the plots. No widget is made here."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app.chat.page import ChatPage
from app.language import known, tr
from app.link.link import EngineLink
from app.link.switches import Withheld
from app.notice import NoticeBar
from app.panel.controls import value_title
from app.panel.panel import OptimisationPanel
from app.panel.titles import in_two
from app.panel.words import event_label
from app.plots.strip import PlotStrip
from app.settings.store import SettingsStore
from engine import protocol
from engine.protocol import keys

_HELPER = "helper"
_WITHHELD = "withheld"


class SwitchWiring(QObject):
    """Lives as long as the window."""

    def __init__(
        self,
        link: EngineLink,
        store: SettingsStore,
        panel: OptimisationPanel,
        chat: ChatPage,
        plots: PlotStrip,
        notice: NoticeBar,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._store, self._panel, self._chat = link, store, panel, chat
        self._plots, self._notice = plots, notice
        self._values: dict[str, protocol.Value] = {}
        self.guard: Callable[[str, str, Callable[[], object]], object] = lambda _what, _title, act: act()
        """Does something, after a question where that would end an answer: what it is, what the button says, and it."""
        self._helper_chosen = False
        """True if the next model comes with a draft model or heads that the person just chose."""
        self._helper_came = False
        """True if it came, and the catalogue of what it allows comes next."""
        link.want(store.settings.options)
        link.welcomed.connect(lambda message: self._show_options(message.catalogue))
        link.options.connect(lambda message: self._show_options(message.catalogue))
        link.loaded.connect(self._on_loaded)
        link.failed.connect(self._on_failed)
        link.withheld.connect(self._on_withheld)
        link.telemetry.connect(self._on_telemetry)
        panel.value_changed.connect(self._set)
        chat.loads.helper_chosen.connect(self._on_helper)
        for signal in (panel.tint_changed, chat.tint_changed):
            signal.connect(self._set_tint)
        self._show_tint(store.settings.tint)

    def _set(self, key: str, value: protocol.Value) -> None:
        """Ask first where a cache or a model that is made again would end an answer or a measurement."""
        spec = self._panel.spec(key)
        order = protocol.Set(key=key, value=value)
        if spec is None or self._link.card is None or spec.applies not in ("cache", "reload"):
            self._link.send(order)
            return
        asked = True

        def send() -> None:
            nonlocal asked
            asked = False
            self._link.send(order)

        self.guard(tr("Changing {title}", title=in_two(known(spec.title))[0]), tr("Change it now"), send)
        if asked:
            self._panel.set_catalogue(self._link.catalogue)

    def _show_options(self, catalogue: list[protocol.OptionSpec]) -> None:
        # While a model is on its way back, after a restart of the engine or to make room, no row comes and goes.
        coming = bool(self._values) and self._link.card is None and self._link.knows_model
        for spec in catalogue:
            if spec.key in self._values and self._values[spec.key] != spec.value:
                self._plots.mark(event_label(spec, spec.value))
            self._values[spec.key] = spec.value
        if not coming:
            self._panel.set_catalogue(catalogue)
        self._store.update(options=self._link.wanted)
        if self._notice.shows(_WITHHELD):
            self._on_withheld(self._link.held_back if self._link.card is not None else [])
        if self._helper_came and self._link.card is not None:
            self._helper_came = False
            self._use_helper(self._link.card)

    def _use_helper(self, card: protocol.ModelCard) -> None:
        """Switch speculation on for a draft model or heads that the person chose, who wants them to draft."""
        kinds = [*(["draft"] if card.draft else []), *card.heads]
        spec = self._panel.spec(keys.SPECULATION)
        if not kinds or spec is None or spec.value in (*kinds, "auto") or kinds[0] in spec.disabled_choices:
            return
        before, who = spec.value, value_title(spec, kinds[0])
        self._set(keys.SPECULATION, kinds[0])
        who = card.draft or who
        words = tr("Speculation is on: {drafter} drafts tokens for {name}.", drafter=who, name=card.name)
        self._notice.say(words, topic=_HELPER, action=tr("Undo"), act=lambda: self._set(keys.SPECULATION, before))

    def _on_helper(self) -> None:
        self._helper_chosen = True

    def _on_loaded(self, _: protocol.Loaded) -> None:
        self._notice.clear(_HELPER)
        self._helper_came, self._helper_chosen = self._helper_chosen, False

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            # A refused value must not stay on show.
            self._panel.set_catalogue(self._link.catalogue)
            self._helper_chosen = False

    def _on_withheld(self, wishes: list[Withheld]) -> None:
        """Report the values that were chosen before and cannot be in force with this model."""
        if not wishes:
            self._notice.clear(_WITHHELD)
            return
        each = [
            f"{known(spec.title)}: {value_title(spec, value)} ({known(reason).strip().rstrip('.')})"
            for spec, value, reason in wishes
        ]
        words = tr("Off for this model; your choice is remembered: {choices}.", choices="; ".join(each))
        self._notice.say(words, topic=_WITHHELD)

    def _on_telemetry(self, frame: protocol.Telemetry) -> None:
        """Show the present amounts of automatic values."""
        drafting = [one for one in frame.acceptance if not one.off_reason]
        lengths = [one.draft_length for one in drafting]
        self._panel.show_live(keys.DRAFT_LENGTH, str(max(lengths)) if lengths else "")
        trees = [one.tree_nodes for one in drafting if one.tree_nodes > one.draft_length]
        self._panel.show_live(keys.TREE_NODES, str(max(trees)) if trees else "")
        share = "" if frame.captured is None else tr("{share:.0f} % of steps", share=100 * frame.captured)
        why = tr("The others: {reason}.", reason=known(frame.eager_reason)) if frame.eager_reason else ""
        self._panel.show_live(keys.CUDA_GRAPHS, share, why)
        late = frame.late_reason
        why = tr("Steps are captured without it: {reason}.", reason=known(late)) if late else ""
        self._panel.show_live(keys.EARLY_LAUNCH, tr("not in force") if late else "", why)

    def _set_tint(self, on: bool) -> None:
        self._store.update(tint=on)
        self._show_tint(on)

    def _show_tint(self, on: bool) -> None:
        self._panel.set_tint(on)
        self._chat.set_tint(on)
