"""What a repaint of the page map and the prefix tree costs (budget: mean 16 ms): python tests/app/measure_pages.py

Prints the milliseconds from a message of the engine to painted pixels, mean and worst, for pools of several sizes and
for maps in which few or all pages changed; processor time of this thread, so that neighbours do not count, and clock.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from PySide6.QtWidgets import QApplication

from app.cache.view import CacheView
from app.charts.hues import ChatHues
from app.charts.page_states import decode
from app.theme.sheet import apply
from app.theme.theme import Theme
from engine.protocol import PAGE_STATES, PageMap, PageOwner, RadixTree, TreeNode

ROUNDS = 60
SIZE = (1440, 330)


def page_map(rng: np.random.Generator, states: np.ndarray, owners: np.ndarray, changed: int) -> PageMap:
    """``changed`` pages get another state and owner, in place."""
    which = rng.choice(len(states), changed, replace=False)
    states[which] = rng.integers(0, len(PAGE_STATES), changed)
    owners[which] = rng.integers(1, 7, changed)
    legend = [PageOwner(chat=f"chat {i}", id=str(i)) for i in range(6)]
    return PageMap(
        total=len(states), states=zlib.compress(states.tobytes()), owners=zlib.compress(owners.tobytes()),
        legend=legend, swapped=500, saved=200,
    )  # fmt: skip


def tree(rng: np.random.Generator, count: int) -> RadixTree:
    nodes = [
        TreeNode(
            id=i,
            parent=int(rng.integers(-1, i)) if i else -1,
            tokens=int(rng.integers(16, 2000)),
            hits=int(rng.integers(0, 9)),
            idle_seconds=float(rng.integers(0, 900)),
            text="what it reads " * 8,
            chat=f"chat {i % 6}",
        )
        for i in range(count)
    ]
    return RadixTree(nodes=nodes, total_nodes=count, total_tokens=sum(node.tokens for node in nodes))


def main() -> None:
    app = QApplication([])
    theme = Theme("dark")
    apply(theme, app)
    view = CacheView(theme, ChatHues())
    view.resize(*SIZE)
    view.show()
    app.processEvents()
    panes = view.panes
    assert panes is not None
    panes.show_chat("chat 1")
    rng = np.random.default_rng(0)
    for total, changed in ((4096, 64), (65536, 64), (65536, 4096), (65536, 65536)):
        states, owners = np.zeros(total, dtype=np.uint8), np.zeros(total, dtype="<u2")
        messages = [page_map(rng, states, owners, changed) for _ in range(ROUNDS)]
        report(
            f"{total:,} pages, {changed:,} changed",
            app,
            [lambda m=m: panes.show_pages(decode(m)) for m in messages],
            panes,
        )
    trees = [tree(rng, 300) for _ in range(ROUNDS)]
    report("300 runs, all changed", app, [lambda t=t: panes.show_tree(t) for t in trees], panes)
    panes.stop()
    view.close()


def report(name: str, app: QApplication, updates: list, panes: object) -> None:
    cpus, clocks = [], []
    for update in updates:
        panes.map._painted = 0.0  # the limit of ten a second would hide every other update
        cpu, clock = time.thread_time(), time.perf_counter()
        update()
        app.processEvents()
        cpus.append(1e3 * (time.thread_time() - cpu))
        clocks.append(1e3 * (time.perf_counter() - clock))
    of = ", ".join(
        f"{kind} mean {sum(values) / len(values):.1f} worst {max(values):.1f} ms"
        for kind, values in (("processor", cpus[1:]), ("clock", clocks[1:]))
    )
    sys.stdout.write(f"{name}: {of}\n")


if __name__ == "__main__":
    main()
