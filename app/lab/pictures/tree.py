"""A prefix tree from left to right: a bar a node, as long as its tokens, and a dot a reader where its text ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app.charts.legend import Legend
from app.lab.pictures import words
from app.lab.pictures.painter import GAP, Painter, solid
from app.theme.theme import Theme
from engine.protocol.lab import LabTreeNode, Tree

ROW_PX, BAR_PX, LINK_PX = 22, 12, 12


class TreePainter(Painter):
    """Every node is drawn once, however many read it, so that the ink is what the cache holds. A moment a reader."""

    def __init__(self, theme: Theme, picture: Tree) -> None:
        super().__init__(theme)
        self._nodes = picture.nodes
        self._readers = sorted({reader for node in picture.nodes for reader in node.readers})
        self.moments = len(self._readers)
        self._part: TreePainter | None = None
        """Painter of the part that takes the place of the whole."""
        parents = [node.parent if 0 <= node.parent < place else -1 for place, node in enumerate(self._nodes)]
        self._children: list[list[int]] = [[] for _ in self._nodes]
        self._starts, self._depths = [0] * len(self._nodes), [0] * len(self._nodes)
        for place, parent in enumerate(parents):
            if parent >= 0:
                self._children[parent].append(place)
                self._starts[place] = self._starts[parent] + max(0, self._nodes[parent].tokens)
                self._depths[place] = self._depths[parent] + 1
        ends = (start + node.tokens for start, node in zip(self._starts, self._nodes, strict=True))
        self._longest = max(ends, default=1)
        self._leaves: list[tuple[int, int]] = []
        """The node where it ends and the reader, from the top."""
        self._rows = [0.0] * len(self._nodes)
        """The row in whose middle each node lies, counted in leaves."""
        self._set_rows(parents)
        self._bars: list[QRectF] = []

    def _set_rows(self, parents: list[int]) -> None:
        first, last = [0] * len(self._nodes), [0] * len(self._nodes)
        row = 0
        waiting = [(place, False) for place in reversed(range(len(parents))) if parents[place] < 0]
        while waiting:
            place, done = waiting.pop()
            if done:
                last[place] = row - 1
                self._rows[place] = (first[place] + last[place]) / 2
                continue
            first[place] = row
            below = {reader for child in self._children[place] for reader in self._nodes[child].readers}
            ending = [reader for reader in self._nodes[place].readers if reader not in below]
            if not ending and not self._children[place]:
                ending = [-1]
            self._leaves += [(place, reader) for reader in ending]
            row += len(ending)
            waiting.append((place, True))
            waiting += [(child, False) for child in reversed(self._children[place])]

    @property
    def height(self) -> float:
        return self.theme.px(ROW_PX) * len(self._leaves)

    def paint(self, painter: QPainter, room: QRectF) -> None:
        self._part = None
        if self.at < self.moments:
            self._part = part = TreePainter(self.theme, read_by(self._nodes, self._readers[: self.at]))
            part._longest, part.metrics = self._longest, self.metrics
            part.paint(painter, room)
            return
        high = min(self.theme.px(ROW_PX), room.height() / max(1, len(self._leaves)))
        thick = max(1.0, min(self.theme.px(BAR_PX), 0.6 * high))
        link = min(self.theme.px(LINK_PX), room.width() / 4 / (1 + max(self._depths, default=0)))
        names = high >= self.metrics.height()
        leaf = self.metrics.horizontalAdvance("00") + thick + 2 * GAP if names else thick + GAP
        wide = (room.width() - leaf - link * max(self._depths, default=0)) / max(1, self._longest)
        self._bars = [
            QRectF(
                room.left() + self._starts[place] * wide + self._depths[place] * link,
                room.top() + (self._rows[place] + 0.5) * high - thick / 2,
                max(2.0, node.tokens * wide),
                thick,
            )
            for place, node in enumerate(self._nodes)
        ]
        self._draw_links(painter, link)
        for node, bar in zip(self._nodes, self._bars, strict=True):
            solid(painter, bar, self._color(node.readers), min(2.0, thick / 4))
        self._draw_leaves(painter, room.top(), high, thick, names)

    def _draw_links(self, painter: QPainter, link: float) -> None:
        painter.setPen(QPen(self.theme.color("mute"), 1))
        for bar, children in zip(self._bars, self._children, strict=True):
            if not children:
                continue
            ends = [self._bars[child] for child in children]
            middle = round(bar.right() + link / 2) + 0.5
            painter.drawLine(QPointF(bar.right(), bar.center().y()), QPointF(middle, bar.center().y()))
            heights = [end.center().y() for end in ends] + [bar.center().y()]
            painter.drawLine(QPointF(middle, min(heights)), QPointF(middle, max(heights)))
            for end in ends:
                painter.drawLine(QPointF(middle, end.center().y()), QPointF(end.left(), end.center().y()))

    def _draw_leaves(self, painter: QPainter, top: float, high: float, thick: float, names: bool) -> None:
        for row, (place, reader) in enumerate(self._leaves):
            if reader < 0:
                continue
            bar, middle = self._bars[place], top + (row + 0.5) * high
            at = QPointF(bar.right() + GAP + thick / 2, middle)
            if abs(bar.center().y() - middle) > 1:  # one of several readers who end in the same node
                painter.setPen(QPen(self.theme.color("mute"), 1))
                painter.drawLine(QPointF(bar.right(), bar.center().y()), at)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(self.hue(reader)))
            painter.drawEllipse(at, thick / 2, thick / 2)
            if names:
                area = QRectF(at.x() + thick / 2 + 4, middle - high / 2, 200, high)
                self.write(painter, area, str(reader + 1), Qt.AlignmentFlag.AlignLeft)

    def under(self, at: QPointF) -> str:
        if self._part is not None:
            return self._part.under(at)
        for node, bar in zip(self._nodes, self._bars, strict=True):
            if bar.adjusted(-2, -4, 2, 4).contains(at):
                return words.node(node)
        return ""

    def legend(self) -> list[Legend]:
        found = [Legend("violet", words.SHARED)] if any(len(node.readers) > 1 for node in self._nodes) else []
        if any(len(node.readers) == 1 for node in self._nodes):
            found.append(Legend(self.hue(0), words.ONE_CHAT))
        return [*found, Legend("mute", words.READER, "●")]

    def _color(self, readers: list[int]) -> str:
        if len(readers) == 1:
            return self.hue(readers[0])
        return self.theme.tokens.violet if readers else self.theme.shade("mute", 0.45)


def read_by(nodes: Sequence[LabTreeNode], readers: Collection[int]) -> Tree:
    """The part of a tree that these have read."""
    places: dict[int, int] = {}
    part: list[LabTreeNode] = []
    for place, node in enumerate(nodes):
        if theirs := [reader for reader in node.readers if reader in readers]:
            places[place] = len(part)
            part.append(LabTreeNode(parent=places.get(node.parent, -1), tokens=node.tokens, readers=theirs))
    return Tree(nodes=part)
