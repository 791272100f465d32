"""A display of its own (Xvfb), seen and used from outside as a person would: keys, clicks, pictures."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import TracebackType

from smoke.sandbox import Running

ASK_TO_CLOSE = Path(__file__).with_name("ask_to_close.py")
SIZE = (1440, 900)
POLL_S = 0.02
TOP, PAINTED_COLOURS = 60, 16
"""Pixels from the upper edge that are looked at, and how many colours smooth text has at least."""


class Screen:
    """Xvfb on the first free number; ends with its context."""

    def __init__(self) -> None:
        read, write = os.pipe()
        geometry = f"{SIZE[0]}x{SIZE[1]}x24"
        # -ac: whoever is on this machine may connect, for as long as the test runs; the inside has no cookie to show.
        # -noreset: else it begins anew whenever the last program leaves, and takes no connection while it does.
        server = ["Xvfb", "-noreset", "-displayfd", str(write), "-screen", "0", geometry, "-ac", "-nolisten", "tcp"]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *server],  # whatever ends this process ends it too
            pass_fds=[write],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        with os.fdopen(read) as numbers:
            line = numbers.readline().strip()
        if not line:
            raise RuntimeError("Xvfb ended before it said which display it has.")
        self.number = int(line)

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def tool(self, *arguments: str | int) -> subprocess.CompletedProcess[str]:
        """xdotool, whose exit code 1 often means no more than "none found"."""
        return self._run("xdotool", *map(str, arguments))

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DISPLAY": f":{self.number}"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    def _import(self, *arguments: str) -> str:
        """ImageMagick's import on the whole screen; what it prints. Raises RuntimeError."""
        done = self._run("import", "-silent", "-window", "root", *arguments)
        if done.returncode:
            raise RuntimeError(f"display :{self.number} cannot be looked at: {done.stderr}")
        return done.stdout

    def windows(self, name: str) -> list[int]:
        """Visible windows with this title."""
        return [int(line) for line in self.tool("search", "--onlyvisible", "--name", f"^{name}$").stdout.split()]

    def wait_for_window(self, name: str, running: Running, timeout: float) -> int:
        """Its number. Raises RuntimeError when the program ends first, TimeoutError."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if found := self.windows(name):
                return found[0]
            if not running.alive:
                raise RuntimeError(f"The program ended without a window: {running.err or running.out or 'silently'}")
            time.sleep(POLL_S)
        raise TimeoutError(f"no window after {timeout:.0f} s; the program printed: {running.err or running.out}")

    def wait_for_paint(self, running: Running, timeout: float) -> None:
        """Until the top of the screen is more than one surface. Raises RuntimeError, TimeoutError as above."""
        until = time.monotonic() + timeout
        while int(self._import("-crop", f"{SIZE[0]}x{TOP}+0+0", "-format", "%k", "info:-")) < PAINTED_COLOURS:
            if not running.alive:
                raise RuntimeError(f"The program ended before it painted: {running.err or running.out or 'silently'}")
            if time.monotonic() > until:
                raise TimeoutError(f"nothing was painted within {timeout:.0f} s")
            time.sleep(POLL_S)

    def geometry(self, window: int) -> tuple[int, int, int, int]:
        """Left, top, width, height, in pixels."""
        lines = self.tool("getwindowgeometry", "--shell", window).stdout.splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return int(values["X"]), int(values["Y"]), int(values["WIDTH"]), int(values["HEIGHT"])

    def focus(self, window: int) -> None:
        """As a window manager does, which there is none of here."""
        self.tool("windowfocus", "--sync", window)

    def click(self, x: int, y: int) -> None:
        self.tool("mousemove", "--sync", x, y, "click", 1)

    def type(self, text: str) -> None:
        self.tool("type", "--delay", 12, text)

    def key(self, *keys: str) -> None:
        self.tool("key", *keys)

    def close(self, window: int) -> None:
        """As the window manager's close button does."""
        self._run("/usr/bin/python3", str(ASK_TO_CLOSE), str(window)).check_returncode()

    def picture(self, path: Path) -> Path:
        """The whole screen as a PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._import(str(path))
        return path
