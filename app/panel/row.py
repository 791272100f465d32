"""One switch of the panel: name, badge, what it bought, control; an explanation unfolds below."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from app.panel.controls import IntControl, control_for
from app.panel.cost import CostLine, has_cost
from app.panel.words import BADGES, bought, explanation
from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme
from engine.protocol import Compared, CompareProgress, OptionSpec


class NameLabel(QLabel):
    """The row's name, which unfolds the explanation on a click, Enter or Space."""

    clicked = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setWordWrap(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(text)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self.rect().contains(event.position().toPoint()):
            self.clicked.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.clicked.emit()
        else:
            super().keyPressEvent(event)


def caption_label(text: str = "", role: str = "caption") -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    label.setWordWrap(True)
    return label


class OptionRow(QWidget):
    """Built from an OptionSpec alone. Its signals are the person's doing: (key, value) and (key)."""

    value_changed = Signal(str, object)
    measure_requested = Signal(str)
    cost_requested = Signal(str)

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._spec = spec
        self._theme = theme
        self._result: Compared | None = None
        self._expanded = False
        self._progress: CompareProgress | None = None
        self._blocked = ""
        self.setObjectName(f"row.{spec.key}")
        self._name = NameLabel(spec.title)
        self._name.clicked.connect(self.toggle_explanation)
        self._badge = QLabel()
        self._badge.setObjectName(f"{spec.key}.badge")
        self._badge.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._measure = self._make_measure()
        self._figure = caption_label("–")
        self._figure.setObjectName(f"{spec.key}.bought")
        self._figure.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._figure.setWordWrap(False)
        self._figure.setMinimumWidth(theme.px(34))
        self._control = control_for(spec, theme)
        self._control.changed.connect(lambda value: self.value_changed.emit(self._spec.key, value))
        self._outcome = caption_label()
        self._outcome.setObjectName(f"{spec.key}.outcome")
        self._caption = caption_label()
        self._caption.setObjectName(f"{spec.key}.caption")
        self.cost = CostLine(spec) if has_cost(spec) else None
        """Of an approximate switch of the cache."""
        if self.cost is not None:
            self.cost.requested.connect(lambda: self.cost_requested.emit(self._spec.key))
        self._lay_out()
        self.set_spec(spec)
        self.recolour()

    @property
    def spec(self) -> OptionSpec:
        return self._spec

    def set_spec(self, spec: OptionSpec) -> None:
        """Take over values and availability. The same option, so the widgets stay."""
        self._spec = spec
        self._control.set_spec(spec)
        self._control.setAccessibleDescription(spec.explains)
        self._name.setProperty("role", "mute" if spec.disabled_reason else "")
        restyle(self._name)
        self._refresh_badge()
        tip = spec.disabled_reason or spec.explains
        self._name.setToolTip(tip)
        if not self._is_choice():
            self._control.setToolTip(tip)
        if self.cost is not None:
            self.cost.set_spec(spec)
        self._refresh()

    def set_blocked(self, reason: str) -> None:
        """Why nothing can be measured now; empty when it can."""
        self._blocked = reason
        self._refresh()

    def set_progress(self, progress: CompareProgress | None) -> None:
        self._progress = progress
        self._refresh()

    def set_result(self, result: Compared | None) -> None:
        self._progress = None
        self._result = result
        if result is not None:
            self._expanded = True
        self._refresh()

    def set_live(self, words: str) -> None:
        """What an automatic value amounts to at the moment."""
        if isinstance(self._control, IntControl):
            self._control.set_live(words)

    def toggle_explanation(self) -> None:
        self._expanded = not self._expanded
        self._refresh()

    def recolour(self) -> None:
        """The theme changed."""
        self._measure.setIcon(icon(self._theme, "measure", 14))

    def _is_choice(self) -> bool:
        return self._spec.kind == "choice"

    def _refresh_badge(self) -> None:
        """Of the present value: some choices of an exact switch are not."""
        badge = BADGES[self._spec.exactness]
        self._badge.setText(badge.text)
        self._badge.setProperty("badge", badge.tone)
        self._badge.setToolTip(badge.meaning)
        restyle(self._badge)

    def _make_measure(self) -> QToolButton:
        button = QToolButton()
        button.setObjectName(f"{self._spec.key}.measure")
        button.setProperty("kind", "quiet")
        button.setIconSize(QSize(14, 14))
        button.setFixedSize(20, 20)
        button.setAccessibleName(f"Measure {self._spec.title}")
        button.clicked.connect(lambda: self.measure_requested.emit(self._spec.key))
        return button

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 3, 0, 3)
        column.setSpacing(4)
        line = QHBoxLayout()
        line.setSpacing(6)
        line.addWidget(self._name, 1)
        line.addWidget(self._badge)
        line.addWidget(self._measure)
        line.addWidget(self._figure)
        column.addLayout(line)
        if self._spec.kind == "bool":
            line.addWidget(self._control)
        else:
            below = QHBoxLayout()
            below.addStretch(1)
            below.addWidget(self._control)
            column.addLayout(below)
        column.addWidget(self._outcome)
        if self.cost is not None:
            column.addWidget(self.cost)
        column.addWidget(self._caption)

    def _refresh(self) -> None:
        found = bought(self._spec, self._result)
        running = self._progress is not None
        text = f"{self._progress.done}/{self._progress.total}" if self._progress else found.text
        self._figure.setText(text)
        self._figure.setToolTip("Measuring…" if running else found.sentence)
        self._figure.setAccessibleName(f"{self._spec.title}: {found.sentence}")
        self._figure.setProperty("role", "caption" if running else found.tone)
        restyle(self._figure)
        self._refresh_measure(running)
        self._refresh_caption()
        shown = self._expanded and self._result is not None
        self._outcome.setText(found.sentence if shown else "")
        self._outcome.setProperty("role", found.tone)
        restyle(self._outcome)
        self._outcome.setVisible(shown)

    def _refresh_measure(self, running: bool) -> None:
        reason = self._spec.disabled_reason or ("Measuring now." if running else self._blocked)
        if not self._spec.compare:
            reason = "There is nothing to measure with the present model."
        self._measure.setEnabled(not reason)
        self._measure.setToolTip(reason or "Measure: replay the last prompt both ways, same seed, in turn.")

    def _refresh_caption(self) -> None:
        lines = [self._spec.disabled_reason] if self._spec.disabled_reason else []
        if self._expanded:
            lines.append(explanation(self._spec))
        elif self._spec.applies == "reload" and not lines:
            lines.append("Changing it reloads the model.")
        text = "\n".join(lines)
        self._caption.setText(text)
        self._caption.setVisible(bool(text))
