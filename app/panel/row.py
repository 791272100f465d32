"""One switch of the panel in columns: name, what it bought, control; an explanation unfolds below."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.language import known, tr
from app.panel.controls import ChoiceControl, IntControl, control_for
from app.panel.cost import CostLine, has_cost
from app.panel.result import ResultCell
from app.panel.titles import in_two
from app.panel.words import badge_of, explanation, paper
from app.theme.sheet import restyle, set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, button_text, fill, named, say, tip
from engine.protocol import Compared, OptionSpec

CONTROL_PX = 104
"""Width of the column of controls."""
ROW_PX = 44
"""Least height of a row, which holds two lines and room to the next: none grows when its second line comes."""
AIR_PX = 4
"""Above a row's words and below them."""

LONG_BADGE = 8
"""Letters of a badge next to which the links have no room: they stand below it."""
GAP_PX = 8
"""Between what was measured and the explanation, and below that."""


class NameLabel(QLabel):
    """The row's name, which unfolds the explanation on a click, Enter or Space. Arrow keys lead to it, Tab does not."""

    clicked = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setWordWrap(True)
        self.setProperty("name", "true")
        self.setIndent(0)  # the ring's border would else bring a margin with it
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self.rect().contains(event.position().toPoint()):
            self.clicked.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.clicked.emit()
        else:
            super().keyPressEvent(event)


def small_label(name: str, role: str = "caption", wrap: bool = True) -> QLabel:
    return named(QLabel(wordWrap=wrap), name, role=role)


class OptionRow(QWidget):
    """Built from an OptionSpec alone. Its signals are the person's doing: (key, value) and (key)."""

    value_changed = Signal(str, object)
    measure_requested = Signal(str)
    cost_requested = Signal(str)
    learn_requested = Signal(str)
    """The person wants to see the Lab's experiment of that name."""
    help_requested = Signal(str)
    """The person wants to read about the switch of that key."""

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._spec = spec
        self._theme = theme
        self._expanded = False
        self._live = "", ""
        self.setObjectName(f"row.{spec.key}")
        title = known(spec.title)
        name, self._term = in_two(title)
        self._name = named(NameLabel(name), title=title)
        self._name.clicked.connect(self.toggle_explanation)
        self._second = named(ElidedLabel("", "tiny"), f"{spec.key}.term", minimumWidth=1)
        self._second.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.learn = self._link("learn", tr("Learn"), tr("See in the Lab what {name} does", name=name))
        self.learn.clicked.connect(lambda: self.learn_requested.emit(self._spec.measure.lab))
        if not spec.measure.lab:
            self.learn.hide()
        self.help = self._link("help", tr("Help"), tr("Read about {name}", name=name))
        self.help.clicked.connect(lambda: self.help_requested.emit(self._spec.key))
        self._badge = small_label(f"{spec.key}.badge", wrap=False)
        self._badge.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._reason = small_label(f"{spec.key}.reason", "tiny")
        self._reason.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.result = ResultCell(spec, theme)
        """Result of a measurement, and the button that asks for one."""
        self.result.requested.connect(lambda: self.measure_requested.emit(self._spec.key))
        self._control = control_for(spec, theme)
        self._control.changed.connect(lambda value: self.value_changed.emit(self._spec.key, value))
        self._caption = small_label(f"{spec.key}.caption")
        self._paper = small_label(f"{spec.key}.paper")
        named(self._paper, textFormat=Qt.TextFormat.RichText, openExternalLinks=True)
        self.cost = CostLine(spec) if has_cost(spec) else None
        """The cost line of an approximate switch of the cache."""
        if self.cost is not None:
            self.cost.requested.connect(lambda: self.cost_requested.emit(self._spec.key))
        self._lay_out()
        self._control.set_spec(spec)
        self._show_spec()
        self.recolour()

    @property
    def spec(self) -> OptionSpec:
        return self._spec

    def set_spec(self, spec: OptionSpec) -> None:
        """Take over values and availability. The same option, so the widgets stay."""
        before, self._spec = self._spec, spec
        self._control.set_spec(spec)  # which the person may have moved
        if spec != before:
            self._show_spec()

    def _show_spec(self) -> None:
        spec = self._spec
        self._control.setAccessibleDescription(known(spec.explains))
        set_role(self._name, "mute" if spec.disabled_reason else "")
        self._refresh_second()
        self._name.setToolTip(tip(known(spec.disabled_reason or spec.explains)))
        if spec.kind != "choice":
            self._control.setToolTip(tip(known(spec.disabled_reason or spec.explains)))
        if self.cost is not None:
            self.cost.set_spec(spec)
        self.result.set_spec(spec)
        self._refresh()

    def set_result(self, result: Compared | None, asked: str = "") -> None:
        """``asked``: the prompt that was replayed."""
        self.result.set_result(result, asked)
        self._refresh()

    def set_live(self, words: str, why: str = "") -> None:
        """Show the present amount of an automatic value or a switch; ``why`` it is not more goes into a tooltip."""
        if isinstance(self._control, IntControl):
            self._control.set_live(words)
        elif (words, why) != self._live:
            self._live = words, why
            self._refresh_second()
            self._refresh()

    def stops(self) -> list[QWidget]:
        """Widgets that can have the focus now, left to right."""
        control = self._control.focusProxy() or self._control
        every = (self._name, self.learn, self.help, self.result.button, control)
        return [stop for stop in every if stop.isVisibleTo(self)]

    def toggle_explanation(self) -> None:
        self._expanded = not self._expanded
        self._refresh()

    def recolour(self) -> None:
        """Colours or text size changed."""
        self.result.recolour()
        self._paper.clear()  # links keep the colour that they were set with
        self._paper.setText(paper(self._spec))
        self._fit_cell()

    def _fit_cell(self) -> None:
        column = self._theme.px(CONTROL_PX)
        self._cell.setFixedWidth(self._control.sizeHint().width() if not self._reason.isHidden() else column)
        self._columns.setMinimumHeight(self._theme.px(ROW_PX))

    def _lay_out(self) -> None:
        column = self._column = QVBoxLayout(self)
        fill(column, margins=0, spacing=4)
        self._columns = QWidget()
        line = self._line = QHBoxLayout(self._columns)
        fill(line, margins=(0, AIR_PX, 0, AIR_PX), spacing=6)
        self._name_block = QWidget()
        self._fill_name_block()
        fill(line, (self._name_block, 1), (self._reason, 1), self.result)
        self._cell = QWidget()
        self._cell.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        cell = fill(QHBoxLayout(self._cell), margins=0)
        if self._spec.kind == "bool" or isinstance(self._control, ChoiceControl):
            cell.addStretch(1)
        cell.addWidget(self._control)
        line.addWidget(self._cell)
        fill(column, self._columns, self.result.detail)
        if self.cost is not None:
            column.addWidget(self.cost)
        fill(column, self._caption, self._paper)

    def _fill_name_block(self) -> None:
        block = QVBoxLayout(self._name_block)
        fill(block, 1, self._name, margins=0, spacing=0)
        self._links = QWidget()
        self._links.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        fill(QHBoxLayout(self._links), self.learn, self.help, margins=0, spacing=6)
        self._second_line = fill(QHBoxLayout(), self._badge, (self._second, 100), self._links, 1, spacing=6)
        self._third_line = fill(QHBoxLayout(), spacing=0)
        fill(block, self._second_line, self._third_line, 1)

    def _link(self, name: str, text: str, about: str) -> QPushButton:
        """Arrow keys lead to it, Tab does not."""
        link = named(QPushButton(button_text(text)), f"{self._spec.key}.{name}", title=about, tooltip=tip(about))
        named(link, kind="link", role="tiny", focusPolicy=Qt.FocusPolicy.ClickFocus)
        link.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        link.setCursor(Qt.CursorShape.PointingHandCursor)
        return link

    def _refresh_second(self) -> None:
        """Show the badge of the present value: some choices of an exact switch are not exact."""
        badge = badge_of(self._spec)
        self._badge.setVisible(badge is not None)
        if badge is not None:
            self._badge.setText(badge.text)
            named(self._badge, tooltip=tip(badge.meaning), badge=badge.tone)
            restyle(self._badge)
        long = badge is not None and len(badge.text) > LONG_BADGE
        if long != (self._third_line.indexOf(self._links) >= 0):
            line = self._third_line if long else self._second_line
            line.insertWidget(0 if long else 2, self._links, 0, Qt.AlignmentFlag.AlignLeft)
        term = "" if self._spec.kind == "float" else self._term
        reloads = self._spec.applies == "reload"
        words = tr("reloads") if reloads else self._live[0] or known(self._spec.found.short) or term
        self._second.setText(words)
        about = tr("reloads the model") if reloads else self._live[1] or known(self._spec.found.sentence)
        self._second.setToolTip(tip(about))
        self._second.setVisible(bool(words) and badge is None)

    def _refresh(self) -> None:
        """A toggle's reason comes and goes with other switches: it takes the result's place, so that no row moves."""
        reason = known(self._spec.disabled_reason)
        why = reason if self._spec.kind == "bool" else ""
        say(self._reason, why)
        self.result.setVisible(not why)
        self._name.setWordWrap(not why)
        self._line.setStretchFactor(self._name_block, 0 if why else 1)
        self._fit_cell()
        lines = [reason] if reason and not why else []
        if self._expanded:
            lines += [explanation(self._spec), *filter(None, [self._live[1], known(self._spec.found.sentence)])]
        if self.cost is not None:
            self.cost.unfold(self._expanded)
        self._caption.setText("\n\n".join(lines))
        self._caption.setVisible(bool(lines))
        self._paper.setText(paper(self._spec))
        self._paper.setVisible(self._expanded and bool(self._spec.reference))
        said = self._expanded and self.result.measured
        self.result.detail.setVisible(said)
        self._caption.setContentsMargins(0, GAP_PX if said else 0, 0, 0)
        self._column.setContentsMargins(0, 0, 0, GAP_PX if self._expanded else 0)
