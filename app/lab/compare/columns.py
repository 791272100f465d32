"""The columns of a comparison: a card for each, with its model and the settings in which it differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.elsewhere import reason
from app.chat.welcome import BUNDLED
from app.lab.compare import words
from app.lab.layout import ColumnsLayout
from app.language import known, tr
from app.panel.controls import FloatControl, IntControl, control_for
from app.panel.titles import in_two
from app.settings.engine import QUANTISE
from app.theme.icons import icon
from app.theme.menus import ARROW, ChoiceButton, ChoiceGroup
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, button_text, caption, fill, menu_text, named, say, tip
from engine.protocol import KnownModel, OptionSpec, RemoteModel, Value
from engine.protocol.lab import Column

_CARD_PX, _CONTROL_PX, _ICON_PX = 300, 132, 14


class SwitchSetting(QWidget):
    """A switch in a card, with its control. ``spec.value`` is what it is set to."""

    changed = Signal()
    removed = Signal()

    def __init__(self, spec: OptionSpec, theme: Theme) -> None:
        super().__init__()
        # What the window's own model cannot do says nothing of the column's.
        self._spec = msgspec.structs.replace(
            spec,
            disabled_reason="",
            choices=[msgspec.structs.replace(each, disabled_reason="") for each in spec.choices],
        )
        self._theme = theme
        name = in_two(known(spec.title))[0]
        title = named(ElidedLabel(name, ""), tooltip=tip(f"{known(spec.title)}\n{known(spec.explains)}"))
        self._control = control_for(self._spec, theme)
        self._control.changed.connect(self._on_changed)
        self._remove = named(QToolButton(), f"compare.remove.{spec.key}")
        about = tr("Remove the setting {name}", name=name)
        named(self._remove, title=about, tooltip=tr("Remove this setting"), kind="quiet")
        self._remove.clicked.connect(self.removed)
        fill(QHBoxLayout(self), (title, 1), self._control, self._remove, margins=0, spacing=8)
        theme.changed.connect(self._fit)
        self._fit()

    @property
    def in_order(self) -> tuple[QWidget, ...]:
        """Widgets that the keyboard reaches, in its order."""
        return (self._control, self._remove)

    @property
    def spec(self) -> OptionSpec:
        """The switch at what its control shows, also where that is just being typed."""
        control = self._control
        if isinstance(control, IntControl | FloatControl):
            control.interpretText()
            return msgspec.structs.replace(self._spec, value=control.value())
        return self._spec

    def set_blocked(self, reason: str) -> None:
        """Set the reason that it means nothing here, as a sentence; "" where it does."""
        named(self._control, tooltip=tip(reason)).setEnabled(not reason)

    def _on_changed(self, value: Value) -> None:
        self._spec = msgspec.structs.replace(self._spec, value=value)
        self._control.set_spec(self._spec)
        self.changed.emit()

    def _fit(self) -> None:
        side = self._theme.px(_ICON_PX)
        self._remove.setIcon(icon(self._theme, "close", side))
        self._remove.setIconSize(QSize(side, side))
        if self._spec.kind != "bool":
            self._control.setFixedWidth(self._theme.px(_CONTROL_PX))


class ColumnCard(QFrame):
    """One column. ``changed`` follows everything that the person changes in it."""

    changed = Signal()
    duplicated = Signal()
    removed = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._specs: dict[str, OptionSpec] = {}
        self.settings: dict[str, SwitchSetting] = {}
        self._models: Sequence[KnownModel] = ()
        self._servers: Mapping[str, Sequence[RemoteModel]] = {}
        self._remote: dict[str | None, RemoteModel] = {}
        """Models of other servers by their keys, those that are not offered any more too."""
        self._first = False
        self.setProperty("card", "choice")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._letter = named(QLabel(), role="figure")
        self.name = named(QLineEdit(maxLength=60), "compare.name")
        self.name.textEdited.connect(lambda _: self.changed.emit())
        self._duplicate = _link(tr("Duplicate"), "compare.duplicate")
        self._duplicate.clicked.connect(self.duplicated)
        self._remove = _link(tr("Remove"), "compare.remove")
        self._remove.clicked.connect(self.removed)
        head = fill(QHBoxLayout(), self._letter, (self.name, 1), self._duplicate, self._remove, spacing=8)
        self.model = named(ChoiceButton(tr("Model"), {BUNDLED: _bundled()}), "compare.model")
        self.model.choose(BUNDLED)
        self.quantise = ChoiceButton(tr("Quantise a 16-bit model on load"), dict(QUANTISE.items()))
        self.quantise.setObjectName("compare.quantise")
        self.quantise.choose("none")
        grid = fill(QGridLayout(), spacing=(8, 6), wide=1)
        choices = ((tr("Model"), self.model), (tr("Quantise on load"), self.quantise))
        for row, (title, choice) in enumerate(choices):
            label = QLabel(title)
            label.setBuddy(choice)
            fill(grid, (label, row, 0), (choice, row, 1))
            choice.changed.connect(self._refresh)
        self.elsewhere = caption(name="compare.elsewhere")
        self.elsewhere.hide()
        self._rows = fill(QVBoxLayout(), spacing=6)
        self.add = named(QPushButton(tr("Add a setting") + ARROW), "compare.add", kind="choice")
        self._menu = QMenu(self, toolTipsVisible=True)
        self.add.setMenu(self._menu)
        self._groups: dict[str, QMenu] = {}
        self._actions: dict[str, QAction] = {}
        column = fill(QVBoxLayout(self), head, grid, self.elsewhere, self._rows, margins=(14, 12, 14, 12), spacing=8)
        fill(column, (self.add, 0, Qt.AlignmentFlag.AlignLeft), 1)
        self._offer()

    @property
    def in_order(self) -> list[QWidget]:
        """Widgets that the keyboard reaches, in its order."""
        rows = [widget for row in self.settings.values() for widget in row.in_order]
        return [self.name, self._duplicate, self._remove, self.model, self.quantise, *rows, self.add]

    @property
    def column(self) -> Column:
        name = self.name.text().strip() or self.name.placeholderText()
        if self.remote is not None:
            return Column(name=name, remote=self.remote)
        return Column(
            name=name,
            model=str(self.model.key),
            quantise=str(self.quantise.key),  # type: ignore[arg-type]
            set=self._values(),
        )

    @property
    def remote(self) -> RemoteModel | None:
        """The model of another server that is chosen; None for one of this machine."""
        return self._remote.get(self.model.key)

    def set_letter(self, letter: str, removable: bool, more: bool) -> None:
        """Its letter in the row; whether it may go, and whether another may be added."""
        self._first = letter == words.LETTERS[0]
        self._letter.setText(letter)
        self.name.setAccessibleName(tr("Name of column {letter}", letter=letter))
        self._duplicate.setAccessibleName(tr("Duplicate column {letter}", letter=letter))
        self._duplicate.setEnabled(more)
        self._remove.setAccessibleName(tr("Remove column {letter}", letter=letter))
        self._remove.setVisible(removable)
        self.add.setAccessibleName(tr("Add a setting to column {letter}", letter=letter))
        self._offer_models()
        self._refresh()

    def set_models(self, models: Sequence[KnownModel], servers: Mapping[str, Sequence[RemoteModel]]) -> None:
        """Set the models that can be chosen; ``servers``: those of other servers by their names."""
        self._models, self._servers = models, servers
        self._remote |= {_key(model): model for offered in servers.values() for model in offered}
        self._offer_models()

    def set_catalogue(self, specs: Mapping[str, OptionSpec]) -> None:
        """Set the options that can be added; those that were added stay."""
        if {key: spec.title for key, spec in specs.items()} != {key: spec.title for key, spec in self._specs.items()}:
            self._specs = dict(specs)
            self._offer()

    def take(self, other: ColumnCard) -> None:
        """Be as another card is, but for a name of its own."""
        self._remote |= other._remote
        self.model.choose(other.model.key)
        self.quantise.choose(other.quantise.key)
        for setting in other.settings.values():
            self.set(setting.spec)

    def set(self, spec: OptionSpec) -> None:
        """Add a setting, at the value that ``spec`` has."""
        row = SwitchSetting(spec, self._theme)
        row.changed.connect(self._refresh)
        row.removed.connect(lambda: self._drop(spec.key))
        self.settings[spec.key] = row
        self._rows.addWidget(row)
        self._show_offers()
        self._refresh()

    def _drop(self, key: str) -> None:
        row = self.settings.pop(key)
        self._rows.removeWidget(row)
        row.hide()
        row.deleteLater()
        self._show_offers()
        self._refresh()
        self.add.setFocus()

    def _offer_models(self) -> None:
        """Another server's models come behind those of this machine, but not in the first column."""
        groups = [
            ChoiceGroup(words.server(name, len(offered)), {_key(model): model.model for model in offered})
            for name, offered in self._servers.items()
        ]
        if self._first and groups:
            groups = [ChoiceGroup(words.SERVERS_LATER, {})]
        self.model.retitle(_titles(self._models), groups)

    def _values(self) -> dict[str, Value]:
        return {key: row.spec.value for key, row in self.settings.items()}

    def _offer(self) -> None:
        """Fill the menu of settings, by group."""
        for menu in self._groups.values():
            menu.deleteLater()
        self._menu.clear()
        self._groups, self._actions = {}, {}
        for key, spec in self._specs.items():
            if spec.group not in self._groups:
                self._groups[spec.group] = self._menu.addMenu(menu_text(known(spec.group)))
                self._groups[spec.group].setToolTipsVisible(True)
            self._actions[key] = action = self._groups[spec.group].addAction(menu_text(known(spec.title)))
            named(action, f"compare.add.{key}", tooltip=tip(known(spec.explains)))
            action.triggered.connect(lambda _=False, spec=spec: self._add(spec))
        self._show_offers()

    def _show_offers(self) -> None:
        """Offer only the options that are not set already."""
        for key, action in self._actions.items():
            action.setVisible(key not in self.settings)
        for menu in self._groups.values():
            menu.menuAction().setVisible(any(action.isVisible() for action in menu.actions()))
        left = any(key not in self.settings for key in self._specs)
        why = reason(self.remote) or ("" if left else words.ALL_SET if self._specs else words.NO_CATALOGUE)
        named(self.add, tooltip=tip(why)).setEnabled(not why)

    def _add(self, spec: OptionSpec) -> None:
        self.set(msgspec.structs.replace(spec, value=words.first_value(spec)))

    def _refresh(self) -> None:
        """The name that it has without one of its own, and which of its settings mean something."""
        why, column = reason(self.remote), self.column
        say(self.elsewhere, why, "caption")
        for row in self.settings.values():
            row.set_blocked(why)
        named(self.quantise, tooltip=tip(why or words.QUANTISE)).setEnabled(not why)
        self._show_offers()
        model = "" if self.model.key == BUNDLED else words.model(self.model.title, self.remote)
        quantise = "" if column.quantise == "none" else QUANTISE[column.quantise]
        specs = {key: row.spec for key, row in self.settings.items()}
        self.name.setPlaceholderText(words.column_name(model, quantise, column.set, specs, self._first))
        self.changed.emit()


class ColumnCards(QWidget):
    """The cards, as many in a row as there is room for, and a button that adds one."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.cards: list[ColumnCard] = []
        self._models: tuple[Sequence[KnownModel], Mapping[str, Sequence[RemoteModel]]] = ((), {})
        self.specs: dict[str, OptionSpec] = {}
        self._columns = ColumnsLayout([], theme, _CARD_PX, 1)
        self.more = named(
            QPushButton(tr("Add a column")), "compare.more", clicked=lambda: self.insert().name.setFocus()
        )
        fill(QVBoxLayout(self), self._columns, (self.more, 0, Qt.AlignmentFlag.AlignLeft), margins=0, spacing=12)
        self.insert()
        self.insert()

    @property
    def columns(self) -> list[Column]:
        found = [card.column for card in self.cards]
        names = words.unlike([column.name for column in found])
        return [msgspec.structs.replace(column, name=name) for column, name in zip(found, names, strict=True)]

    def set_models(self, models: Sequence[KnownModel], servers: Mapping[str, Sequence[RemoteModel]] = {}) -> None:
        """Set the models that can be chosen; ``servers``: those of other servers by their names."""
        self._models = models, servers
        for card in self.cards:
            card.set_models(models, servers)

    def set_catalogue(self, catalogue: Sequence[OptionSpec]) -> None:
        self.specs = {spec.key: spec for spec in catalogue}
        for card in self.cards:
            card.set_catalogue(self.specs)

    def insert(self, after: ColumnCard | None = None) -> ColumnCard:
        """Another card: a copy of ``after`` next to it, or one at the end that is as it is."""
        card = ColumnCard(self._theme, self)
        card.duplicated.connect(lambda: self.insert(card).name.setFocus())
        card.removed.connect(lambda: self._drop(card))
        card.changed.connect(self._order)
        card.set_models(*self._models)
        card.set_catalogue(self.specs)
        if after is not None:
            card.take(after)
        self.cards.insert(len(self.cards) if after is None else self.cards.index(after) + 1, card)
        self._renew()
        return card

    def _drop(self, card: ColumnCard) -> None:
        at = self.cards.index(card)
        self.cards.remove(card)
        self._renew()
        self.cards[min(at, len(self.cards) - 1)].name.setFocus()

    def _renew(self) -> None:
        more = len(self.cards) < len(words.LETTERS)
        for card, letter in zip(self.cards, words.LETTERS, strict=False):
            card.set_letter(letter, len(self.cards) > 2, more)
        self.more.setEnabled(more)
        self._columns.show_widgets(self.cards, len(self.cards))
        self._order()

    def _order(self) -> None:
        """The keyboard goes through the cards as they stand, whenever what is in them was made."""
        widgets = [widget for card in self.cards for widget in card.in_order]
        for before, after in pairwise([*widgets, self.more]):
            QWidget.setTabOrder(before, after)


def _titles(models: Sequence[KnownModel]) -> dict[str | None, str]:
    """The bundled model by its name, the others by their paths."""
    others: dict[str | None, str] = {model.path: model.name for model in models if model.name != BUNDLED}
    return {BUNDLED: _bundled(), **others}


def _bundled() -> str:
    return tr("{name} (bundled)", name=BUNDLED)


def _key(model: RemoteModel) -> str:
    """Key of another server's model among the paths of those here."""
    return f"{model.server}: {model.model}"


def _link(text: str, name: str) -> QPushButton:
    return named(QPushButton(button_text(text)), name, kind="link")
