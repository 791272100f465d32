"""The engine's own switches of speculation in the panel: menus, badges, and room for all of it."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLabel, QPushButton, QSpinBox

from app.panel.controls import ChoiceControl
from app.panel.menu_control import MenuControl
from app.panel.panel import OptimisationPanel
from app.window.sides import PANEL_WIDTH
from engine import protocol as p
from engine.catalogue import defaults, state

EVERYTHING = ("draft model", "several layers", "medusa heads", "eagle head", "mtp layers", "assistant")


def specs(**values: p.Value) -> list[p.OptionSpec]:
    """The engine's own catalogue."""
    return state({**defaults(), **values}, EVERYTHING)


@pytest.fixture
def panel(qtbot, theme) -> OptimisationPanel:
    panel = OptimisationPanel(theme)
    qtbot.addWidget(panel)
    panel.set_catalogue(specs())
    panel.show_all(True)
    panel.resize(PANEL_WIDTH, 700)
    panel.show()
    return panel


def test_many_choices_are_a_menu_and_few_are_side_by_side(qtbot, panel) -> None:
    button = panel.findChild(QPushButton, "speculation.choices")
    assert button.text() == "auto ▾"
    actions = [action.text() for action in button.menu().actions()]
    assert len(actions) == 10
    assert "Medusa heads" in actions
    with qtbot.waitSignal(panel.value_changed) as heard:
        panel.findChild(QAction, "speculation.medusa").trigger()
    assert heard.args == ["speculation", "medusa"]
    with qtbot.assertNotEmitted(panel.value_changed):
        panel.set_catalogue(specs(speculation="eagle"))
    assert button.toolTip() == "EAGLE head"
    assert button.accessibleName() == "Speculation: EAGLE head"
    assert isinstance(panel.row("speculation")._control, MenuControl)
    assert isinstance(panel.row("kv_key_bits")._control, ChoiceControl)


def test_the_button_of_a_menu_leaves_out_what_is_in_brackets(panel) -> None:
    panel.set_catalogue(specs(speculation="auto", acceptance="ratio"))
    button = panel.findChild(QPushButton, "acceptance.choices")
    assert button.text() == "lossless ▾"
    assert button.toolTip() == "lossless, other sample (rejection sampling)"


def test_a_choice_that_cannot_apply_is_grey_in_the_menu(panel) -> None:
    panel.set_catalogue(state(defaults(), ["several layers"]))
    heads, layers = (panel.findChild(QAction, f"speculation.{choice}") for choice in ("medusa", "exit"))
    assert not heads.isEnabled()
    assert heads.toolTip().replace("\n", " ") == panel.spec("speculation").disabled_choices["medusa"] != ""
    assert layers.isEnabled()
    disabled = [msgspec.structs.replace(s, disabled_reason="Load a model first.") for s in specs()]
    panel.set_catalogue(disabled)
    assert not panel.findChild(QPushButton, "speculation.choices").isEnabled()


def test_the_badge_follows_the_chosen_value(panel) -> None:
    badge = panel.findChild(QLabel, "acceptance.badge")
    found = []
    for value in ("keyed", "ratio", "typical", "keyed"):
        panel.set_catalogue(specs(speculation="auto", acceptance=value))
        found.append((badge.text(), badge.property("badge")) if badge.isVisible() else None)
    assert found == [None, ("same distribution", "mute"), ("lossy", "warn"), None]


def test_the_exit_layer_shows_only_while_it_means_something(panel) -> None:
    assert panel.row("exit_layer").isHidden()
    panel.set_catalogue(specs(speculation="exit"))
    assert panel.row("exit_layer").isVisible()
    assert panel.findChild(QSpinBox, "exit_layer.value").text() == "auto"
    panel.set_catalogue(specs(speculation="auto", tree_nodes=16))
    assert panel.row("exit_layer").isHidden()
    assert panel.findChild(QSpinBox, "tree_nodes.value").value() == 16


def places(panel: OptimisationPanel, upto: str) -> dict[str, tuple[int, int]]:
    """Top and height of the visible rows down to ``upto``."""
    keys = [spec.key for spec in specs()]
    rows = [panel.row(key) for key in keys[: keys.index(upto) + 1]]
    return {row.objectName(): (row.y(), row.height()) for row in rows if row.isVisible()}


def settled(qtbot, panel: OptimisationPanel, upto: str) -> dict[str, tuple[int, int]]:
    """``places`` once they stay: layouts settle over several rounds of events."""
    found: list[dict[str, tuple[int, int]]] = []

    def stays() -> bool:
        found.append(places(panel, upto))
        return len(found) > 5 and all(each == found[-1] for each in found[-5:])

    qtbot.waitUntil(stays)
    return found[-1]


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_choosing_a_kind_of_speculation_moves_no_row_above_it(qtbot, panel, theme, qapp, scale) -> None:
    theme.set_scale(scale)
    panel.resize(theme.px(PANEL_WIDTH), 700)
    before = settled(qtbot, panel, "speculation")
    panel.set_catalogue(specs(speculation="exit"))
    assert settled(qtbot, panel, "speculation") == before
    reason = panel.findChild(QLabel, "kv_cache.reason")
    assert reason.isVisible()
    assert reason.text() == panel.spec("kv_cache").disabled_reason != ""
    assert reason.heightForWidth(reason.width()) <= reason.height(), "the reason is not cut"


def test_a_result_moves_nothing(qtbot, panel) -> None:
    before = settled(qtbot, panel, "acceptance")
    found = p.Compared("1", "kv_cache", [False, True], [], same=True, before=10.0, after=20.0, ratio=2.0)
    panel.show_result(found)
    assert settled(qtbot, panel, "acceptance") == before
    panel.row("kv_cache").toggle_explanation()
    assert panel.findChild(QLabel, "kv_cache.outcome").isVisible()


def test_without_speculation_its_settings_are_hidden(panel) -> None:
    of_it = ("ngram_first", "ngram_chats", "draft_length", "tree_nodes", "exit_layer", "acceptance")

    def shown(kind: str) -> list[str]:
        panel.set_catalogue(specs(speculation=kind))
        return [key for key in of_it if panel.row(key).isVisible()]

    assert shown("off") == []
    assert shown("ngram") == ["ngram_chats", "draft_length", "acceptance"]
    assert shown("draft") == ["ngram_first", "ngram_chats", "draft_length", "acceptance"]
    panel.set_catalogue(specs(speculation="draft", ngram_first=False))
    assert panel.row("ngram_chats").isHidden(), "where no n-gram lookup drafts"
    panel.set_catalogue(specs(speculation="auto", ngram_first=False))
    assert panel.row("ngram_chats").isVisible()
    assert shown("eagle") == ["ngram_first", "ngram_chats", "draft_length", "tree_nodes", "acceptance"]


def test_what_appears_with_a_value_stands_below_the_switch_that_has_it() -> None:
    keys = [spec.key for spec in specs()]
    assert all(keys.index(spec.of) < keys.index(spec.key) for spec in specs() if spec.of)


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_no_row_is_wider_than_the_narrow_panel(panel, theme, qapp, scale) -> None:
    theme.set_scale(scale)
    width = theme.px(PANEL_WIDTH)
    panel.resize(width, 700)
    for value in ("off", "exit", "skip", "mtp"):
        shown = [spec for spec in specs(speculation=value, acceptance="ratio") if spec.group == "Speculation"]
        panel.set_catalogue(shown)
        qapp.processEvents()
        for spec in shown:
            control = panel.row(spec.key)._control
            if control.isVisible():
                left = control.mapTo(panel, QPoint(0, 0)).x()
                assert left >= 0, spec.key
                assert left + control.width() <= width, spec.key
                assert control.width() >= control.minimumSizeHint().width(), spec.key
