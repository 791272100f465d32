"""The engine's own switches of speculation in the panel: menus, badges, and room for all of it."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLabel, QPushButton, QSlider, QSpinBox

from app.panel.controls import ChoiceControl
from app.panel.menu_control import MenuControl
from app.panel.panel import OptimisationPanel
from app.window import NARROW_PANEL_WIDTH
from engine import protocol as p
from engine.catalogue import defaults, state

EVERYTHING = ("draft model", "several layers", "medusa heads", "eagle head", "mtp layers")


def specs(**values: p.Value) -> list[p.OptionSpec]:
    """The engine's own catalogue."""
    return state({**defaults(), **values}, EVERYTHING)


@pytest.fixture
def panel(qtbot, theme) -> OptimisationPanel:
    panel = OptimisationPanel(theme)
    qtbot.addWidget(panel)
    panel.set_catalogue(specs())
    panel.resize(NARROW_PANEL_WIDTH, 700)
    panel.show()
    return panel


def test_many_choices_are_a_menu_and_few_are_side_by_side(qtbot, panel) -> None:
    button = panel.findChild(QPushButton, "speculation.choices")
    assert button.text() == "off  ▾"
    actions = [action.text() for action in button.menu().actions()]
    assert len(actions) == 9
    assert "Medusa heads" in actions
    with qtbot.waitSignal(panel.value_changed) as heard:
        panel.findChild(QAction, "speculation.medusa").trigger()
    assert heard.args == ["speculation", "medusa"]
    with qtbot.assertNotEmitted(panel.value_changed):
        panel.set_catalogue(specs(speculation="eagle"))
    assert button.text() == "EAGLE head  ▾"
    assert button.accessibleName() == "Speculation: EAGLE head"
    assert isinstance(panel.row("acceptance")._control, ChoiceControl)
    assert isinstance(panel.row("speculation")._control, MenuControl)


def test_a_choice_that_cannot_apply_is_grey_in_the_menu(panel) -> None:
    panel.set_catalogue(state(defaults(), ["several layers"]))
    heads, layers = (panel.findChild(QAction, f"speculation.{choice}") for choice in ("medusa", "exit"))
    assert not heads.isEnabled()
    assert heads.toolTip() == panel.spec("speculation").disabled_choices["medusa"] != ""
    assert layers.isEnabled()
    disabled = [msgspec.structs.replace(s, disabled_reason="Load a model first.") for s in specs()]
    panel.set_catalogue(disabled)
    assert not panel.findChild(QPushButton, "speculation.choices").isEnabled()


def test_the_badge_follows_the_chosen_value(panel) -> None:
    badge = panel.findChild(QLabel, "acceptance.badge")
    found = []
    for value in ("keyed", "ratio", "typical", "keyed"):
        panel.set_catalogue(specs(acceptance=value))
        found.append((badge.text(), badge.property("badge")))
    assert found == [("exact", "good"), ("same dist.", "good"), ("approx", "warn"), ("exact", "good")]


def test_the_exit_layer_shows_only_while_it_means_something(panel) -> None:
    assert panel.row("exit_layer").isHidden()
    panel.set_catalogue(specs(speculation="exit"))
    assert panel.row("exit_layer").isVisible()
    assert panel.findChild(QSpinBox, "exit_layer.value").text() == "automatic"
    panel.set_catalogue(specs(speculation="auto", tree_nodes=16))
    assert panel.row("exit_layer").isHidden()
    assert panel.findChild(QSlider, "tree_nodes.value").value() == 16


@pytest.mark.parametrize("scale", [1.0, 1.2])
def test_no_row_is_wider_than_the_narrow_panel(panel, theme, qapp, scale) -> None:
    theme.set_scale(scale)
    for value in ("off", "exit", "skip", "mtp"):
        shown = [spec for spec in specs(speculation=value, acceptance="ratio") if spec.group == "Speculation"]
        panel.set_catalogue(shown)
        qapp.processEvents()
        for spec in shown:
            control = panel.row(spec.key)._control
            if control.isVisible():
                left = control.mapTo(panel, QPoint(0, 0)).x()
                assert left >= 0, spec.key
                assert left + control.width() <= NARROW_PANEL_WIDTH, spec.key
                assert control.width() >= control.minimumSizeHint().width(), spec.key
