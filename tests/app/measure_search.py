"""How long the list of chats and a search take with 10,000 chats (budget: 50 ms of CPU for a search).

    python -m tests.app.measure_search [--chats COUNT] [--messages COUNT] [--scroll STEPS]

The texts are made of words that are as unequally frequent as those of a language; a tenth of the chats is Chinese. A
search is timed at the history, and once more as a person types it: from the key to the painted list, without the pause
that the field waits for. Times are CPU of this thread in ms, as medians; the database lies in the page cache.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEventLoop
from PySide6.QtWidgets import QApplication, QWidget

from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.theme.sheet import dress, prepare
from app.theme.theme import Theme

WORDS = 30_000
"""Words of the language."""
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
SIGNS = [chr(0x4E00 + number) for number in range(3_000)]
SEARCHES = {
    "a rare word": "zyzzyva",
    "a common word": "w0",
    "a word in a title": "t17",
    "two common words": "w0 w1",
    "a common and a rare word": "w0 zyzzyva",
    "one letter": "w",
    "two letters": "we",
    "the inside of a word": "yzzyv",
    "nothing": "nowhereinhere",
    "one Chinese sign": SIGNS[1],
    "one rare Chinese sign": "龘",
    "two Chinese signs": SIGNS[0] + SIGNS[1],
    "two Chinese signs that nothing has": SIGNS[0] + "龘",
    "three Chinese signs": "".join(SIGNS[:3]),
    "a sign": "%",
}


def words(draw: random.Random) -> list[str]:
    made = [f"w{number}" for number in range(40)]
    return made + ["".join(draw.choices(LETTERS, range(26, 0, -1), k=draw.randint(2, 11))) for _ in range(WORDS)]


def texts(draw: random.Random, chinese: bool, known: list[str], weights: list[float], count: int) -> Iterator[str]:
    for _ in range(count):
        length = draw.choice((8, 20, 60, 120))
        if chinese:
            yield "".join(draw.choices(SIGNS, weights[: len(SIGNS)], k=2 * length)) + "。"
        else:
            yield " ".join(draw.choices(known, cum_weights=weights_sum(weights), k=length)) + "."


_SUMS: list[float] = []


def weights_sum(weights: list[float]) -> list[float]:
    if not _SUMS:
        total = 0.0
        for weight in weights:
            total += weight
            _SUMS.append(total)
    return _SUMS


def fill(path: Path, chats: int, messages: int) -> None:
    """Write the chats in one transaction, as an import of them would."""
    HistoryStore(path).close()
    draw = random.Random(5)
    known = words(draw)
    weights = [1 / (rank + 2) for rank in range(len(known))]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for number in range(chats):
            chinese = number % 10 == 9
            title = f"t{number} " + " ".join(draw.choices(known, k=4))
            when = 1.7e9 + 600.0 * number
            row = (f"c{number}", title, when, when)
            connection.execute("INSERT INTO chats (id, title, created, updated) VALUES (?,?,?,?)", row)
            parent = ""
            for at, text in enumerate(texts(draw, chinese, known, weights, messages)):
                if number % 1000 == 500 and at == 3:
                    text += " zyzzyva"
                message = f"m{number}.{at}"
                row = (message, f"c{number}", parent, "assistant" if at % 2 else "user", text, "complete", when + at)
                connection.execute(
                    "INSERT INTO messages (id, chat, parent, role, content, state, created) VALUES (?,?,?,?,?,?,?)", row
                )
                parent = message
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def cpu_ms(act: Callable[[], object], times: int = 5) -> tuple[float, float]:
    """(the first, the median of the later ones)."""
    spent = []
    for _ in range(times):
        began = time.thread_time()
        act()
        spent.append(1000 * (time.thread_time() - began))
    return spent[0], statistics.median(spent[1:])


def painted(app: QApplication, widget: QWidget) -> None:
    app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
    widget.repaint()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--scroll", type=int, default=200)
    parser.add_argument("--file", type=Path, help="where the history is made, or lies already from an earlier run")
    arguments = parser.parse_args()
    app = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "history.db"
        if not path.exists():
            began = time.perf_counter()
            fill(path, arguments.chats, arguments.messages)
            print(f"made in {time.perf_counter() - began:.0f} s, {path.stat().st_size / 1e6:,.0f} MB")
        history = HistoryStore(path)
        for name, text in SEARCHES.items():
            first, later = cpu_ms(lambda text=text: history.search(text))
            print(f"  search {name}: {len(history.search(text))} found, first {first:.1f} ms, then {later:.1f}")
        show(app, history, arguments.scroll)
        history.close()


def show(app: QApplication, history: HistoryStore, steps: int) -> None:
    theme = Theme("dark")
    prepare(theme, app)
    bar = Sidebar(history, theme)
    dress(theme, app)
    bar.resize(260, 900)
    bar.show()
    first, later = cpu_ms(lambda: (bar.refresh(), painted(app, bar)))
    print(f"  the list read and painted: first {first:.1f} ms, then {later:.1f}; {bar.model.rowCount()} rows")
    widgets = len(bar.list.findChildren(QWidget))
    place = bar.list.verticalScrollBar()
    spent = []
    for step in range(steps):
        place.setValue(round(place.maximum() * step / steps))
        began = time.thread_time()
        painted(app, bar)
        spent.append(1000 * (time.thread_time() - began))
    print(f"  a step of scrolling: mean {statistics.mean(spent):.1f} ms, worst {max(spent):.1f}; {widgets} widgets")
    for name, text in SEARCHES.items():
        spent = []
        for end in range(1, len(text) + 1):
            bar.search.setText(text[:end])
            began = time.thread_time()
            bar.refresh()
            painted(app, bar)
            spent.append(1000 * (time.thread_time() - began))
        print(f"  typing {name}: worst key {max(spent):.1f} ms")
    bar.search.clear()
    bar.deleteLater()


if __name__ == "__main__":
    main()
