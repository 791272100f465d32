"""The optimisation panel: one row per switch that the engine declares, grouped as it groups them."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.language import known, plural, tr
from app.panel.arrows import Arrows, Stops
from app.panel.card import ResultCard
from app.panel.cost import describe, tone
from app.panel.effects import EffectLine, lines
from app.panel.row import ROW_PX, OptionRow
from app.panel.titles import in_two
from app.theme.direction import fold_mark
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import Toggle, fill, named, show_checked, switched, take_out, tip
from engine.protocol import SPECULATION_GROUP, Compared, CompareProgress, Cost, OptionSpec

NO_PROMPT = tr("This chat has no prompt yet. Ask something: measuring replays its last one.")
BUSY = tr("Another measurement is running.")
ALL = tr("The switches that are right as they are for most people")


def _made_of(spec: OptionSpec) -> tuple[object, ...]:
    """What a row's widgets depend on."""
    return spec.key, spec.kind, spec.group, spec.title, spec.measure.lab, spec.common, tuple(spec.titles)


class OptimisationPanel(QWidget):
    """The common switches, and behind one line all others. ``value_changed`` (key, value), ``measure_requested`` (key),
    ``cost_requested`` (key), ``tint_changed`` (on), ``learn_requested`` (an experiment), ``help_requested`` (key) and
    ``unfolded`` (all are shown) come from the person only."""

    value_changed = Signal(str, object)
    measure_requested = Signal(str)
    cost_requested = Signal(str)
    tint_changed = Signal(bool)
    learn_requested = Signal(str)
    help_requested = Signal(str)
    unfolded = Signal(bool)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows: dict[str, OptionRow] = {}
        self._blocked = NO_PROMPT
        self._measuring = ""
        """The key of the switch that is being measured."""
        self._told: list[OptionSpec] = []
        """The engine's last catalogue, of which not everything is shown while a switch is measured."""
        self._set_meanwhile: set[str] = set()
        """The keys that the person set since the measurement began."""
        self._costs_blocked = ""
        named(self, surface="panel")
        named(self, "panel", title=tr("Optimisations"))
        self._arrows = Arrows(self._stops, self)
        self._tint = named(Toggle(theme), "panel.tint", title=tr("Highlight drafted tokens"))
        switched(self._tint, self.tint_changed.emit)
        self._tint_row = self._make_tint_row()
        self._lay_out()
        self.card = ResultCard(theme, self._body)
        self.card.both_asked.connect(lambda key: self._rows[key].result.show_both())
        self.value_changed.connect(lambda key, _: self._set_meanwhile.add(key))
        theme.changed.connect(self._recolour)
        self._recolour()

    def row(self, key: str) -> OptionRow:
        """Raises KeyError when the catalogue has no such option."""
        return self._rows[key]

    def spec(self, key: str) -> OptionSpec | None:
        row = self._rows.get(key)
        return row.spec if row else None

    def set_catalogue(self, catalogue: list[OptionSpec]) -> None:
        """Show these options, but for those that mean nothing now, for want of others' values or on this machine.

        Rows whose option only changed its state keep their widgets, results and focus. A measurement sets its switch
        both ways again and again: until its end every row stays as it was, but for those that the person sets.
        """
        self._told = catalogue
        if self._measuring:
            catalogue = [spec if spec.key in self._set_meanwhile else self._held(spec) for spec in catalogue]
        self._show(catalogue)

    def _held(self, spec: OptionSpec) -> OptionSpec:
        """Spec that the row of that option shows now."""
        row = self._rows.get(spec.key)
        return row.spec if row is not None else spec

    def _show(self, catalogue: list[OptionSpec]) -> None:
        if [*map(_made_of, catalogue)] != [_made_of(row.spec) for row in self._rows.values()]:
            self._rebuild(catalogue)
        values = {spec.key: spec.value for spec in catalogue}
        for spec in catalogue:
            self._rows[spec.key].set_spec(spec)
            self._rows[spec.key].setVisible(not spec.hidden and (not spec.of or values.get(spec.of) in spec.of_values))
        self._refresh_line()

    def show_all(self, on: bool) -> None:
        """Unfold or fold the switches behind the line."""
        show_checked(self.line, on)
        self._rest.setVisible(on or self.line.isHidden())
        self._refresh_line()

    def reveal(self, key: str) -> bool:
        """Scroll to a switch and give it the keyboard, unfolding the line it stands behind; whether there is such a
        switch now."""
        row = self._rows.get(key)
        if row is None or row.isHidden():
            return False
        if self._rest.isHidden() and self._rest.isAncestorOf(row):
            self.show_all(True)
            self.unfolded.emit(True)
        self._column.activate()  # a row that was hidden has no place yet
        self._scroll.ensureWidgetVisible(row)
        row.stops()[0].setFocus(Qt.FocusReason.OtherFocusReason)
        return True

    def _refresh_line(self) -> None:
        """How many there are in all, and how many behind the line are not as they begin."""
        shown = [row for row in self._rows.values() if not row.isHidden()]
        behind = [row.spec for row in shown if not row.spec.common]
        two = bool(behind) and len(behind) < len(shown)
        self.line.setVisible(two)
        self._rest.setVisible(self.line.isChecked() or not two)
        changed = [known(spec.title) for spec in behind if spec.value != spec.default and not spec.disabled_reason]
        count = [plural("1 changed", "{n} changed", len(changed))] if changed else []
        every = tr("All {n} switches", n=len(shown))
        self.line.setText(f"{fold_mark(self.line.isChecked())} {' · '.join([every, *count])}")
        title = " · ".join([tr("All {n} switches", n=len(shown)), *count])
        named(self.line, title=title, tooltip=tip("\n".join(changed) or ALL))

    def set_tint(self, on: bool) -> None:
        show_checked(self._tint, on)

    def set_measurable(self, reason: str) -> None:
        """``reason`` why nothing can be measured now (a sentence), or empty when a last prompt exists."""
        self._blocked = reason
        self._update_blocked()

    def show_progress(self, key: str, progress: CompareProgress | None) -> None:
        """Show the progress of the comparison of ``key``; None when it ended without a result."""
        if progress is not None and not self._measuring:
            self._set_meanwhile.clear()
        began = progress is not None and self._measuring != key
        self._measuring = key if progress is not None else ""
        if key in self._rows and progress is not None:
            if began:
                self.card.begin(key, in_two(known(self._rows[key].spec.title))[0], self._rows[key])
            self.card.show_progress(tr("Measuring…"), progress)
        elif progress is None:
            self.card.forget(key)
        if key in self._rows:
            self._rows[key].result.set_progress(progress)
            spec = self._rows[key].spec
            # Stopped while it was set the other way: the engine is putting it back, and says so.
            back = key in self._set_meanwhile or any((s.key, s.value) == (key, spec.value) for s in self._told)
            if progress is None and back:
                self._show(self._told)
        self._update_blocked()

    def show_result(self, result: Compared, asked: str = "") -> None:
        """``asked``: the prompt that was replayed."""
        self._measuring = ""
        self._show(self._told)
        if result.key in self._rows:
            row = self._rows[result.key]
            row.set_result(result, asked)
            self.card.show_found(result.key, lines(row.spec, result, asked), len(result.texts) == 2)
        self._update_blocked()

    def show_live(self, key: str, words: str, why: str = "") -> None:
        """Show the present amount of an automatic value or a switch, and the reason it is not more; nothing happens if
        there is no such option."""
        if key in self._rows:
            self._rows[key].set_live(words, why)

    def clear_results(self) -> None:
        """Another model was loaded: what was measured no longer holds."""
        for row in self._rows.values():
            row.set_result(None)
        self.card.forget()
        self.clear_costs()

    def clear_costs(self) -> None:
        """Another chat is on screen, or another model answers."""
        if not self._measuring:
            self.card.forget()
        for row in self._rows.values():
            if row.cost is not None:
                row.cost.show_cost(None)

    def set_cost_measurable(self, reason: str) -> None:
        """``reason`` why no approximation's cost can be measured now, or empty."""
        self._costs_blocked = reason
        self._update_blocked()

    def show_cost_running(self, key: str, running: bool) -> None:
        if key in self._rows and (line := self._rows[key].cost) is not None:
            line.set_running(running)
            if running:
                self.card.begin(key, in_two(known(self._rows[key].spec.title))[0], self._rows[key])
                self.card.show_progress(tr("Measuring its cost on this chat…"), None)
            elif not self.card.words:  # it ended without a cost
                self.card.forget(key)

    def show_cost(self, key: str, cost: Cost) -> None:
        if key in self._rows and (line := self._rows[key].cost) is not None:
            line.show_cost(cost)
            self.card.show_found(key, [EffectLine(describe(cost), tone(cost))], False)

    def _lay_out(self) -> None:
        self._body = QWidget()
        self._column = fill(QVBoxLayout(self._body), margins=(16, 12, 4, 8), spacing=0)
        scroll = self._scroll = scrolling(self._body)
        scroll.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # else the columns move as it comes
        bar = scroll.verticalScrollBar()
        bar.rangeChanged.connect(lambda low, high: bar.setEnabled(high > low))
        fill(QVBoxLayout(self), scroll, margins=0)
        self._column.addLayout(self._head())
        self._empty = named(QLabel(tr("The switches appear when the engine is ready."), wordWrap=True), role="caption")
        self._column.addWidget(self._empty)
        self._common = fill(QVBoxLayout(), spacing=0)
        self.line = named(QPushButton(), "panel.all", kind="link", checkable=True)
        switched(self.line, self._on_line)
        self.line.hide()
        self._rest = QWidget()
        self._groups = fill(QVBoxLayout(self._rest), margins=0, spacing=0)
        line = fill(QHBoxLayout(), self.line, 1, margins=(0, 8, 0, 0))
        fill(self._column, self._common, line, self._rest, 1)

    def _on_line(self, on: bool) -> None:
        self.show_all(on)
        self.unfolded.emit(on)

    def _head(self) -> QHBoxLayout:
        head = fill(QHBoxLayout(), margins=(0, 0, 0, 4))
        title = named(QLabel(tr("Optimisations")), role="title")
        unit = QLabel(tr("Effect on this computer"))
        unit.setProperty("role", "caption")
        named(unit, wordWrap=True, alignment=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        head.addWidget(title)
        head.addSpacing(8)
        head.addWidget(unit, 1)
        return head

    def _make_tint_row(self) -> QFrame:
        frame = QFrame(self)
        frame.hide()
        line = fill(QHBoxLayout(frame), margins=0, spacing=0)
        label = QLabel(tr("Highlight drafted tokens"))
        label.setContentsMargins(1, 0, 0, 0)  # the ring of the names above
        words = tr(
            "Colours the words of an answer: accepted draft tokens, the model's token where a draft was rejected, all "
            "others. Changes the view only."
        )
        label.setToolTip(tip(words))
        self._tint.setToolTip(tip(words))
        fill(line, (label, 1), self._tint)
        return frame

    def _rebuild(self, catalogue: list[OptionSpec]) -> None:
        made = {*map(_made_of, catalogue)}
        kept = {key: row for key, row in self._rows.items() if _made_of(row.spec) in made}
        self.card.forget()
        for column in (self._common, self._groups):
            while (item := column.takeAt(0)) is not None:
                widget = item.widget()
                if widget is not None and widget is not self._tint_row and widget not in kept.values():
                    take_out(widget)
        self._rows = {}
        self._empty.setVisible(not catalogue)
        for spec in catalogue:
            if spec.common:
                row = self._rows[spec.key] = kept.get(spec.key) or self._make_row(spec)
                self._common.addWidget(row)
        groups = list(dict.fromkeys(spec.group for spec in catalogue if not spec.common))
        for group in groups:
            self._groups.addSpacing(13)
            self._groups.addWidget(named(QLabel(known(group)), role="section"))
            self._groups.addSpacing(3)
            for spec in catalogue:
                if spec.group == group and not spec.common:
                    row = self._rows[spec.key] = kept.get(spec.key) or self._make_row(spec)
                    self._groups.addWidget(row)
            if group == SPECULATION_GROUP:
                self._groups.addWidget(self._tint_row)
        self._tint_row.setVisible(SPECULATION_GROUP in groups)
        self._order_tabs(bool(kept))
        # The order of the catalogue, which is how the next catalogue is compared with this one.
        self._rows = {spec.key: self._rows[spec.key] for spec in catalogue}
        self._update_blocked()

    def _order_tabs(self, all_of_it: bool) -> None:
        """From top to bottom, the line among the rows; new rows alone are in their order by themselves."""
        parts: dict[bool, list[QWidget]] = {True: [], False: []}
        for row in self._rows.values():
            inner = row.findChildren(QWidget)
            parts[row.spec.common] += [part for part in inner if part.focusPolicy() & Qt.FocusPolicy.TabFocus]
        common, others = parts[True], parts[False]
        line = [self.line] if common and others else []
        order = [*common, *line, *others] if all_of_it else [*common[-1:], *line, *others[:1]]
        for before, after in pairwise(order):
            QWidget.setTabOrder(before, after)

    def _make_row(self, spec: OptionSpec) -> OptionRow:
        row = OptionRow(spec, self._theme)
        row.value_changed.connect(self.value_changed)
        row.measure_requested.connect(self.measure_requested)
        row.cost_requested.connect(self.cost_requested)
        row.learn_requested.connect(self.learn_requested)
        row.help_requested.connect(self.help_requested)
        self._arrows.watch(row.stops())
        return row

    def _stops(self) -> list[Stops]:
        rows = sorted(self._rows.values(), key=lambda row: not row.spec.common)
        return [row.stops() for row in rows if row.isVisible()]

    def _update_blocked(self) -> None:
        for key, row in self._rows.items():
            row.result.set_blocked(BUSY if self._measuring and key != self._measuring else self._blocked)
            if row.cost is not None:
                row.cost.set_blocked(self._costs_blocked)

    def _recolour(self) -> None:
        self._tint_row.setMinimumHeight(self._theme.px(ROW_PX))
        for row in self._rows.values():
            row.recolour()
