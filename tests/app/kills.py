"""Kill -9 the window, or its engine, at random moments, and count what was lost.

    python -m tests.app.kills --window 100 --engine 100 [--seed 1]

The real program runs offscreen with the real engine and the bundled model. It asks one question after the other, some
before the model is there, and writes down what a person sees; that is compared with what the history holds afterwards.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SEEN = "seen.jsonl"
BEHIND_S = 2.0
"""The save interval of a second, and as much again for a machine that is busy."""
STARTING_S = (0.0, 6.0)
"""From the first question to the kill, for every third window: the engine starts, or its model is being loaded."""
WRITING_S = (0.0, 5.0)
"""From the first text of an answer to the kill, for the others."""
ENGINE_LIFE_S = (0.0, 7.0)
GONE_S = 120.0
START_S = 300.0
"""The most that a busy machine may take until there is an answer."""


class Figures(NamedTuple):
    """Of one kind of kill. Everything but ``kills``, ``questions``, ``finished`` and ``cut`` should be 0."""

    kills: int
    questions: int
    finished: int
    cut: int
    lost_questions: int
    changed_answers: int
    short_answers: int
    """Cut answers without something that was shown BEHIND_S before the kill, or with something that never was."""
    lost_drafts: int
    damaged: int
    orphans: int
    """Engines that lived on without their window."""

    @property
    def failures(self) -> int:
        return sum(self[4:])


def kill_windows(home: Path, kills: int, chance: random.Random) -> Figures:
    """Start the window again and again with the same folders, and kill each."""
    moments, orphans, damaged = [], 0, 0
    for number in range(kills):
        before = len(seen(home))
        with _program(home, "--window") as child:
            sign, life = ("asked", STARTING_S) if number % 3 == 0 else ("shown", WRITING_S)
            _wait(lambda before=before, sign=sign: _has(home, before, sign), START_S, f"what is {sign} first")
            time.sleep(chance.uniform(*life))
            child.kill()
            moments.append(time.monotonic())
            child.wait()
        engines = [fact["pid"] for fact in seen(home)[before:] if fact["kind"] == "engine"]
        orphans += sum(not _ends(pid) for pid in engines)
        damaged += not _sound(home)
        if number % 10 == 9:
            print(number + 1, _count(home, moments, orphans, damaged), file=sys.stderr, flush=True)
    return _count(home, moments, orphans, damaged)


def kill_engines(home: Path, kills: int, seed: int) -> Figures:
    """One window, whose engine is killed again and again."""
    with _program(home, "--engine", str(kills), "--seed", str(seed)) as child:
        if child.wait(timeout=120.0 * kills):
            raise AssertionError(f"the window ended with {child.returncode}")
    return count_engines(home)


def if_killed_now(home: Path) -> Figures:
    """What would be lost with the window: what is committed by now is what another process finds after a kill."""
    return _count(home, [time.monotonic()], 0, int(not _sound(home)))


def count_engines(home: Path) -> Figures:
    """What one window, in which engines were killed, has left behind."""
    found = _count(home, [], 0, int(not _sound(home)))
    return found._replace(kills=sum(fact["kind"] == "killed" for fact in seen(home)))


def seen(home: Path) -> list[dict[str, Any]]:
    """What the windows wrote down, each with the time.monotonic() at which it was so."""
    file = home / SEEN
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _count(home: Path, moments: list[float], orphans: int, damaged: int) -> Figures:
    facts, stored = seen(home), _stored(home)
    questions = [fact["text"] for fact in facts if fact["kind"] == "asked"]
    kept = {content for role, content, _ in stored.values() if role == "user"}
    finished = {fact["id"]: fact for fact in facts if fact["kind"] == "ended" and fact["state"] == "complete"}
    cut = {fact["id"]: fact for fact in facts if fact["kind"] == "ended" and fact["state"] != "complete"}
    running: dict[str, list[dict[str, Any]]] = {}
    for fact in facts:
        if fact["kind"] == "shown" and fact["id"] not in finished and fact["id"] not in cut:
            running.setdefault(fact["id"], []).append(fact)
    changed = [one for one in finished.values() if stored.get(one["id"], ("", "", ""))[1] != one["text"]]
    short = [one for one in cut.values() if stored.get(one["id"], ("", "", ""))[1] != one["shown"]]
    short += [shows[-1] for name, shows in running.items() if _is_short(stored.get(name), shows, moments)]
    drafts = _lost_drafts(home, facts, moments)
    for what, lost in (("changed", changed), ("short", short), ("draft", drafts)):
        for one in lost:
            print(f"{what}: {one}, in the history: {stored.get(one.get('id', ''))}", file=sys.stderr)
    lost = [question for question in questions if question not in kept]
    print(*(f"lost: {question}" for question in lost), sep="\n", end="\n" if lost else "", file=sys.stderr)
    return Figures(
        len(moments),
        len(questions),
        len(finished),
        len(cut) + len(running),
        len(lost),
        len(changed),
        len(short),
        len(drafts),
        damaged,
        orphans,
    )


def _is_short(row: tuple[str, str, str] | None, shows: list[dict[str, Any]], moments: list[float]) -> bool:
    """Whether an answer that a kill cut lacks what was shown BEHIND_S before, or holds what was not written."""
    killed = min(moment for moment in moments if moment >= shows[-1]["at"])
    due = [show["text"] for show in shows if show["at"] <= killed - BEHIND_S]
    if row is None:
        return bool(due)
    text, last = row[1], shows[-1]["text"]
    return not text.startswith(due[-1] if due else "") or not (last.startswith(text) or text.startswith(last))


def _lost_drafts(home: Path, facts: list[dict[str, Any]], moments: list[float]) -> list[dict[str, Any]]:
    """What stood in the composer of the last window that was killed, if the history has an earlier text of it."""
    typed = [fact for fact in facts if fact["kind"] == "typed"]
    if not moments or not typed:
        return []
    due = [fact for fact in typed if fact["at"] <= moments[-1] - BEHIND_S][-1:]
    with contextlib.closing(sqlite3.connect(home / "data" / "history.db")) as connection:
        kept = {text for (text,) in connection.execute("SELECT text FROM drafts")}
    later = {fact["text"] for fact in typed if due and fact["at"] >= due[0]["at"]}
    return [] if not due or (kept | {""}) & later else due  # "": it was sent since


def _stored(home: Path) -> dict[str, tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(home / "data" / "history.db")) as connection:
        rows = connection.execute("SELECT id, role, content, state FROM messages").fetchall()
    return {row[0]: row[1:] for row in rows}


def _sound(home: Path) -> bool:
    with contextlib.closing(sqlite3.connect(home / "data" / "history.db")) as connection:
        whole = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return whole and not connection.execute("PRAGMA foreign_key_check").fetchall()


@contextlib.contextmanager
def _program(home: Path, *arguments: str) -> Iterator[subprocess.Popen]:
    home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "KVASIR_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-m", "tests.app.killed_program", str(home), *arguments]
    with (home / "output.log").open("ab") as output:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def _has(home: Path, before: int, kind: str) -> bool:
    return any(fact["kind"] == kind for fact in seen(home)[before:])


def _wait(done: Any, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.05)


def _ends(pid: int) -> bool:
    until = time.monotonic() + GONE_S
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if (
            Path(f"/proc/{pid}/stat").exists()
            and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        ):
            return True
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--engine", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="kvasir-kills-") as folder:
        for name, count in (("window", given.window), ("engine", given.engine)):
            if count:
                home = Path(folder, name)
                found = (
                    kill_windows(home, count, random.Random(given.seed))
                    if name == "window"
                    else kill_engines(home, count, given.seed)
                )
                print(name, json.dumps(found._asdict()), flush=True)
                failures += found.failures
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
