"""What a screen reader finds in the real window: python -m tests.app.screen_reader [--tree]

Starts an X server without a screen, a bus, the accessibility service (AT-SPI) and the program with an empty home. Then
it operates the program by that service alone, as a person who sees nothing does: it goes to each page, types a
question, sends it and waits for the answer. Prints as JSON how many things each page shows, those that the keyboard
reaches and that have no name, and the answer's blocks as they can be read letter by letter. With ``--tree`` all that is
shown is printed, too.

Needs Debian's packages xvfb, openbox, dbus, at-spi2-core and python3-pyatspi; the last is one of the system's Python,
so the part that reads runs there, and this file imports nothing of Kvasir's.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BUS = "/usr/libexec/at-spi-bus-launcher"
SYSTEM_PYTHON = "/usr/bin/python3"
SIZE = "1440x900x24"
QUESTION = "What is a page?"
PATIENCE_S = 90.0


def missing() -> str:
    """What this machine lacks, as a sentence; "" for nothing."""
    lacks = [name for name in ("Xvfb", "openbox", "dbus-run-session", BUS) if shutil.which(name) is None]
    python = [SYSTEM_PYTHON, "-c", "import pyatspi"]
    if not Path(SYSTEM_PYTHON).exists() or subprocess.run(python, capture_output=True, check=False).returncode:
        lacks.append("pyatspi")
    return f"There is no {', '.join(lacks)} here." if lacks else ""


def main() -> int:
    if lacks := missing():
        sys.exit(lacks)
    return found("--tree" in sys.argv).returncode


def found(tree: bool = False, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run it all on a display of its own."""
    with tempfile.TemporaryDirectory() as home:
        read, write = os.pipe()
        screen = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", SIZE], pass_fds=[write], stderr=subprocess.DEVNULL
        )
        os.close(write)
        with os.fdopen(read) as told:
            display = told.readline().strip()
        environment = {
            **os.environ, "DISPLAY": f":{display}", "KVASIR_HOME": home, "QT_QPA_PLATFORM": "xcb",
            "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1",
        }  # fmt: skip
        parts = [f"{BUS} --launch-immediately &", "openbox &", f"'{sys.executable}' -m app &"]
        reader = f"'{SYSTEM_PYTHON}' '{__file__}' --read {'--tree' if tree else ''}"
        script = " ".join(["exec 2>/dev/null;", *parts, reader, "; told=$?; kill $(jobs -p); exit $told"])
        try:
            return subprocess.run(
                ["dbus-run-session", "--", "bash", "-c", script], env=environment, text=True,
                stdout=subprocess.PIPE if capture else None, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        finally:
            screen.terminate()
            screen.wait()


# --- the part that reads, on the system's Python ----------------------------------------------------------------------


def read(tree: bool) -> None:
    import pyatspi  # type: ignore[import-not-found]

    program = waited(
        lambda: next((each for each in pyatspi.Registry.getDesktop(0) if each and each.name == "Kvasir"), None),
        "the window",
    )
    waited(lambda: one(program, "Model: "), "the model")
    pages: dict[str, dict[str, Any]] = {}
    told: dict[str, Any] = {"pages": pages}
    names = [each.name for each in shown(program) if each.name.startswith("Page: ")]
    for name in [*names, names[0]]:
        press(waited(lambda: one(program, name), name))  # noqa: B023
        time.sleep(2.0)
        things = list(shown(program))
        nameless = [f"{each.getRoleName()} in {path(each)}" for each in things if focusable(each) and not each.name]
        pages[name.removeprefix("Page: ")] = {"things": len(things), "nameless": nameless}
        for each in things if tree else ():
            print("F" if focusable(each) else " ", "  " * path(each).count(" > "), each.getRoleName(), repr(each.name))
    box = waited(lambda: one(program, "Message"), "the message box")
    box.queryEditableText().setTextContents(QUESTION)
    press(waited(lambda: one(program, "Send the message"), "the button that sends"))

    waited(lambda: one(program, "Regenerate"), "the answer's end")
    told["answer"] = [text(each) for each in shown(one(program, "Answer: ")) if text(each)]
    print(json.dumps(told, indent=1))


def shown(root: Any) -> Iterator[Any]:
    """Everything below ``root`` that is on the screen. What goes away meanwhile is left out."""
    import pyatspi
    from gi.repository import GLib  # type: ignore[import-not-found]

    try:
        for each in root:
            if each is not None and each.getState().contains(pyatspi.STATE_SHOWING):
                yield each
                yield from shown(each)
    except (GLib.GError, LookupError, NotImplementedError):
        return


def one(root: Any, name: str) -> Any:
    """The first thing on the screen whose name begins so; None where there is none."""
    return next((each for each in shown(root) if each.name.startswith(name)), None)


def focusable(thing: Any) -> bool:
    import pyatspi

    return bool(thing.getState().contains(pyatspi.STATE_FOCUSABLE))


def path(thing: Any) -> str:
    names = []
    while (thing := thing.parent) is not None and thing.getRoleName() != "desktop frame":
        names.append(thing.name or thing.getRoleName())
    return " > ".join(reversed(names))


def text(thing: Any) -> str:
    """What can be read in it letter by letter; "" where nothing can."""
    try:
        letters = thing.queryText()
    except NotImplementedError:
        return ""
    return str(letters.getText(0, letters.characterCount))


def press(thing: Any) -> None:
    """Do what a click does. Its action is called "Press", or "Toggle" where it stays pressed."""
    actions = thing.queryAction()
    names = [actions.getName(i) for i in range(actions.nActions)]
    actions.doAction(next(i for i, name in enumerate(names) if name in ("Press", "Toggle")))


def waited(look: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        if time.monotonic() > end:
            sys.exit(f"Not found within {PATIENCE_S:.0f} seconds: {what}.")
        time.sleep(0.3)
    return seen


if __name__ == "__main__":
    sys.exit(read("--tree" in sys.argv) if "--read" in sys.argv else main())
