"""The fake engine as a thread instead of a child process.

``app/link/child.py`` starts its engine through ``subprocess.Popen``; :func:`popen` stands in for that name alone. The
token still goes through the engine's input, its ready line, last words and exit code come back, and all else goes over
the websocket. What differs is that no interpreter starts.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any
from weakref import WeakValueDictionary

from tests.kit import fake_engine, forked

PROCESS = [sys.executable, "-m", "tests.kit.fake_engine"]
"""The command of the fake engine as a process, from the repository's root."""
THREAD = ["fake engine as a thread"]
"""The same for :func:`popen`."""

_pids = itertools.count(1 << 30)  # larger than any process has, so that a signal to one reaches nobody
_running: WeakValueDictionary[int, EngineThread] = WeakValueDictionary()


class EngineThread:
    """What ``app/link/child.py`` asks of a Popen: three pipes, ``pid``, ``poll``, ``wait``, ``terminate``, ``kill``."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.pid = next(_pids)
        self.returncode: int | None = None
        self._arguments, self._environment = arguments, environment
        self._lock = threading.Lock()
        window, self._input = socket.socketpair()  # a socket, as it can be ended from both sides
        with window:
            self.stdin = window.makefile("wb")
        self.stdout, self._output = _pipe()
        self.stderr, self._errors = _pipe()
        self._thread = threading.Thread(target=self._live, name=fake_engine.THREADS, daemon=True)
        _running[self.pid] = self
        self._thread.start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Raises TimeoutExpired while a thread of the engine runs."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise subprocess.TimeoutExpired(THREAD, timeout or 0)
        return self.returncode

    def terminate(self) -> None:
        self._end(-signal.SIGTERM)

    def kill(self) -> None:
        self._end(-signal.SIGKILL)

    def _live(self) -> None:
        try:
            with self._input.makefile("rb") as stdin:
                crash = partial(self._end, 3)
                fake_engine.run(self._arguments, self._environment, stdin, self._output, crash)
        except SystemExit as end:
            self._end(1, str(end.code))
        finally:
            self._end(0)
            for file in (self._input, self._output, self._errors):
                file.close()

    def _end(self, code: int, words: str = "") -> None:
        """Once: say the last words and wake the engine's thread, which then ends the others."""
        with self._lock:
            if self.returncode is not None:
                return
            self._errors.write(words.encode() + b"\n")
            self._errors.flush()
            self.returncode = code
        with suppress(OSError):
            self._input.shutdown(socket.SHUT_RDWR)


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return os.fdopen(read, "rb"), os.fdopen(write, "wb")


def popen(command: Sequence[str], **options: Any) -> EngineThread | subprocess.Popen:
    """A thread for :data:`THREAD`, a process for all other commands."""
    if command[:1] != THREAD:
        return forked.popen(command, **options)
    return EngineThread(command[1:], options["env"] or dict(os.environ))


def kill(pid: int | None) -> None:
    """As SIGKILL ends it, whether it is a thread or a process."""
    assert pid is not None, "no engine runs"
    thread = _running.get(pid)
    if thread is None:
        os.kill(pid, signal.SIGKILL)
    else:
        thread.kill()
