"""The prefix tree as rows: depth first, each with its depth; an update touches only the rows that changed."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.cache import words
from app.language import tr
from engine.protocol import RadixTree, TreeNode


class TreeRow(NamedTuple):
    """``current``: the run is part of what the chat on screen has read."""

    node: TreeNode
    depth: int
    current: bool

    @property
    def sentence(self) -> str:
        """The whole row, for a screen reader."""
        mine = [tr("part of this chat")] if self.current else []
        facts = ", ".join([words.token_count(self.node.tokens), *mine, *words.facts(self.node)])
        return tr("Level {n}: {facts}: {text}", n=self.depth + 1, facts=facts, text=words.readable(self.node.text))


def rows_of(tree: RadixTree, chat: str, older: float = 0.0) -> list[TreeRow]:
    """Depth first, children in the order in which they came. Runs whose parent is missing stand at the root.

    ``older``: seconds since the tree came.
    """
    nodes = {node.id: node for node in tree.nodes}
    children: dict[int, list[TreeNode]] = {}
    for node in tree.nodes:
        children.setdefault(node.parent if node.parent in nodes and node.parent != node.id else -1, []).append(node)
    current: set[int] = set()
    for node in tree.nodes if chat else ():
        at = node if node.chat == chat else None
        while at is not None and at.id not in current:
            current.add(at.id)
            at = nodes.get(at.parent)
    rows: list[TreeRow] = []
    waiting = [(node, 0) for node in reversed(children.get(-1, []))]
    while waiting:
        node, depth = waiting.pop()
        aged = (
            msgspec.structs.replace(node, idle_seconds=node.idle_seconds + older) if older and not node.locks else node
        )
        rows.append(TreeRow(aged, depth, node.id in current))
        waiting += [(child, depth + 1) for child in reversed(children.get(node.id, []))]
    return rows


class TreeModel(QAbstractListModel):
    """Rows keep their indices, and with them the selection and the scroll position, while their runs stay."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[TreeRow] = []
        self.longest = 1
        """Tokens of the longest run."""

    @property
    def rows(self) -> list[TreeRow]:
        return self._rows

    def row(self, index: QModelIndex | QPersistentModelIndex) -> TreeRow:
        return self._rows[index.row()]

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return words.readable(row.node.text)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return row.sentence
        return None

    def show_rows(self, rows: list[TreeRow]) -> None:
        """Keep the rows at both ends whose runs are the same, and replace those between."""
        old, new = [row.node.id for row in self._rows], [row.node.id for row in rows]
        start = _same(old, new)
        end = min(_same(old[::-1], new[::-1]), min(len(old), len(new)) - start)
        self.longest = max((row.node.tokens for row in rows), default=1)
        none = QModelIndex()
        if len(old) - end > start:
            self.beginRemoveRows(none, start, len(old) - end - 1)
            del self._rows[start : len(old) - end]
            self.endRemoveRows()
        if len(new) - end > start:
            self.beginInsertRows(none, start, len(new) - end - 1)
            self._rows[start:start] = rows[start : len(new) - end]
            self.endInsertRows()
        if self._rows != rows:
            self._rows = rows
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))


def _same(a: list[int], b: list[int]) -> int:
    """Number of leading entries that are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
