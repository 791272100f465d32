"""Gain of a switch: a cell of its row with the figure and the measure button, and a detail under the row."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from app.language import known, tr
from app.panel.controls import value_title
from app.panel.effects import EffectLine, figure, lines, sides
from app.texts.side_by_side import SideBySide
from app.theme.icons import icon
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import fill, keep_place, named, tip
from engine.protocol import Compared, CompareProgress, OptionSpec, Value

_CELL_PX, _EMPTY_PX, _ICON_PX = 82, 36, 14
"""Width with room for a figure, width where none ever comes, and the side of the button's picture."""
MEASURE = tr("Run an A/B test on the last prompt of this chat.")


class ResultCell(QWidget):
    """Lies in the row's middle column, flush right, with room for a figure: neither the name nor a row moves for one.

    ``requested`` comes from the person: to measure, or while it measures, to stop.
    ``detail`` says the same in sentences; the row shows it while it is unfolded.
    """

    requested = Signal()

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._spec, self._theme = spec, theme
        self._result: Compared | None = None
        self._asked = ""
        self._measured_at: Value = spec.value
        self._progress: CompareProgress | None = None
        self._blocked = ""
        self._icon = ""
        self._figure = QLabel("–")
        named(self._figure, f"{spec.key}.bought", alignment=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.button = named(QToolButton(), f"{spec.key}.measure", kind="quiet")
        self.button.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.button.clicked.connect(self.requested)
        keep_place(self.button)  # figures stand in one column
        self.detail = _Detail(spec.key)
        self.detail.both.clicked.connect(self.show_both)
        fill(QHBoxLayout(self), (self._figure, 1), self.button, margins=0, spacing=2)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        self.recolour()
        self._refresh()

    @property
    def measured(self) -> bool:
        return self._result is not None

    def set_spec(self, spec: OptionSpec) -> None:
        self._spec = spec
        self._refresh()

    def set_blocked(self, reason: str) -> None:
        """Set the reason nothing can be measured now; empty when it can."""
        if reason != self._blocked:
            self._blocked = reason
            self._refresh_button()

    def set_progress(self, progress: CompareProgress | None) -> None:
        self._progress = progress
        self._refresh()

    def set_result(self, result: Compared | None, asked: str = "") -> None:
        """``asked``: the prompt that was replayed."""
        self._progress, self._result, self._asked = None, result, asked
        self._measured_at = self._spec.value
        self._refresh()

    def show_both(self) -> None:
        """Both answers side by side."""
        if self._result is not None and len(self._result.texts) == 2:
            about = tr("On: “{asked}”", asked=self._asked) if self._asked else ""
            dialog = SideBySide(*sides(self._spec, self._result), about, self._theme, self.window())
            dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            dialog.open()

    def recolour(self) -> None:
        """Colours or text size changed."""
        side = self._theme.px(_ICON_PX)
        self.button.setIconSize(QSize(side, side))
        self.button.setFixedSize(side + 6, side + 6)
        self._fit()
        self._icon = ""  # to be painted again
        self._refresh_button()

    def _fit(self) -> None:
        never = self._spec.measure.metric.elsewhere
        self.setFixedWidth(self._theme.px(_EMPTY_PX if never else _CELL_PX))

    def _stale(self) -> str:
        """Say which value the result was measured with, if the switch has been set to something else since."""
        if self._result is None or self._spec.value in (self._measured_at, self._result.values[1]):
            return ""
        on, now = (value_title(self._spec, value) for value in (self._result.values[1], self._spec.value))
        return tr("Measured with {on}; the switch is at {now} now.", on=on, now=now)

    def _refresh(self) -> None:
        running, stale = self._progress is not None, self._stale()
        found = EffectLine(_progress(self._progress), "caption") if self._progress is not None else figure(self._result)
        said = lines(self._spec, self._result, self._asked) if self._result is not None else []
        if stale:
            said = [EffectLine(stale, "caption"), *(EffectLine(line.text, "caption") for line in said)]
        words = (
            "\n".join(line.text for line in said)
            or known(self._spec.measure.metric.elsewhere)
            or tr("Not measured yet.")
        )
        self._figure.setText(found.text)
        title = f"{known(self._spec.title)}: {words}"
        named(self._figure, title=title, tooltip=tr("Measuring…") if running else tip(words))
        set_role(self._figure, "caption" if stale else found.tone)
        self._fit()
        self.detail.say(said)
        self.detail.both.setVisible(self._result is not None and len(self._result.texts) == 2)
        self._refresh_button()

    def _refresh_button(self) -> None:
        running = self._progress is not None
        reason = known(self._spec.measure.metric.elsewhere or self._spec.disabled_reason) or (
            "" if running else self._blocked
        )
        if not reason and not self._spec.measure.compare:
            reason = tr("There is nothing to measure with the present model.")
        self.button.setVisible(not self._spec.measure.metric.elsewhere)
        self.button.setEnabled(not reason)
        self.button.setToolTip(tip(reason or (tr("Stop measuring.") if running else MEASURE)))
        switch = known(self._spec.title)
        title = tr("Stop measuring {switch}", switch=switch) if running else tr("Measure {switch}", switch=switch)
        self.button.setAccessibleName(title)
        if self._icon != (name := "stop" if running else "measure"):
            self._icon = name
            self.button.setIcon(icon(self._theme, name, self._theme.px(_ICON_PX)))


class _Detail(QWidget):
    """Under the row, over its whole width: a label for each sentence, in its own colour."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self._labels: list[QLabel] = []
        self.both = named(QPushButton(tr("See both")), kind="link")
        about = tr("Both answers side by side, with the place marked where they part")
        named(self.both, f"{key}.both", tooltip=tip(about))
        self._column = fill(QVBoxLayout(self), (self.both, 0, Qt.AlignmentFlag.AlignLeft), margins=0, spacing=4)

    def say(self, said: list[EffectLine]) -> None:
        while len(self._labels) < len(said):
            label = named(QLabel(textFormat=Qt.TextFormat.PlainText, wordWrap=True), f"{self._key}.outcome")
            self._column.insertWidget(len(self._labels), label)
            self._labels.append(label)
        for index, label in enumerate(self._labels):
            label.setVisible(index < len(said))
            if index < len(said):
                label.setText(said[index].text)
                set_role(label, said[index].tone)


def _progress(progress: CompareProgress) -> str:
    return f"{progress.done}/{progress.total}" if progress.total else "…"
