"""`kvasir quantise` without models: python fake_quantise.py STATE.json quantise…

STATE.json: ``stored`` (models, as StoredModel's fields), ``makes`` (by ID: MakeProgress's fields), ``reports`` (by
path), ``steps`` (seconds of a layer; a negative number: none is ever done) and ``fails`` (a sentence; "" for none).
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAYERS = 4
SOURCE_BYTES = 1_500_000_000


def main() -> int:
    path, arguments = Path(sys.argv[1]), sys.argv[3:]
    state = json.loads(path.read_text())
    return make(path, state, arguments[0], arguments[2], [each for each in arguments[3:] if each != "--json"])


def make(path: Path, state: dict[str, Any], model: str, to: str, options: list[str]) -> int:
    id = f"{Path(model).name}-{to}-{len(options)}"
    at = state["makes"].get(id, {"id": id, "model": model, "to": to, "total": LAYERS, "done": 0, "options": options})

    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))

    def say(kind: str, **more: Any) -> None:
        at.update(state=kind, **more)
        with editing(path) as now:
            now["makes"][id] = at
        tell("MakeProgress", at)

    say("reading")
    if state["fails"]:
        say("failed", sentence=state["fails"])
        return 1
    while at["done"] < LAYERS:
        say("quantising", left_s=60.0 * (LAYERS - at["done"]))
        until = time.monotonic() + (60.0 if state["steps"] < 0 and at["done"] >= 1 else abs(state["steps"]))
        while time.monotonic() < until and not stopped:
            time.sleep(0.01)
        if stopped:
            say("paused")
            return 130
        at["done"] += 1
    say("measuring")
    name = f"{Path(model).name}-{to}"
    made = f"/models/{name}"
    say("done", path=made)
    report = report_of(name, made, Path(model).name, to)
    with editing(path) as now:
        del now["makes"][id]
        now["stored"].append(
            {"name": name, "path": made, "format": "safetensors", "bytes": 540_000_000, "quantisation": to,
             "made_of": Path(model).name, "repository": f"made/{name}", "report": report}
        )  # fmt: skip
    tell("MakeReport", report)
    return 0


def report_of(name: str, path: str, source: str, to: str) -> dict[str, Any]:
    """Invented figures."""
    before = {"bytes": SOURCE_BYTES, "perplexity": 12.5, "tokens_per_second": 20.0}
    after = {"bytes": 540_000_000, "perplexity": 12.8, "tokens_per_second": 36.0}
    worst = [
        {"name": f"model.layers.{index}.mlp.{part}_proj", "error": error, "rounded": 2.4 * error}
        for index, part, error in ((27, "down", 0.021), (0, "gate", 0.0142), (3, "up", 0.0097), (14, "down", 0.0061))
    ]
    return {
        "name": name, "path": path, "source": source, "to": to, "before": before, "after": after, "kl": 0.0314,
        "same_top": 0.942, "tokens": 4096, "seconds": 754.0, "worst": worst if to in ("gptq", "awq") else [],
    }  # fmt: skip


@contextlib.contextmanager
def editing(path: Path) -> Iterator[dict[str, Any]]:
    """The state, written at the end; others read and write it meanwhile."""
    lock = path.with_suffix(".lock")
    while True:
        with contextlib.suppress(OSError):
            lock.mkdir()
            break
        time.sleep(0.005)
    try:
        state = json.loads(path.read_text())
        yield state
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(path)
    finally:
        lock.rmdir()


def tell(kind: str, fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
