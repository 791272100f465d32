"""Python processes that are forked from one that has imported the engine and PyTorch: two seconds of CPU less for each.

They are processes like others: of their own memory, pid, environment and streams, ended by signals, children of the
process that asks for them. What is left out is what an interpreter does before a module's own first line; tests of that
start one themselves, and so does this module on systems other than Linux.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

HEAVY = ("engine.doors.serve", "engine.loop.engine", "engine.loading.loader", "engine.loading.techniques")
"""What a process that serves or answers imports."""
LARGEST = 1 << 20
"""Bytes of a request: the module, its arguments, the folder and the environment of a process."""
_CHILD_SUBREAPER = 36
"""The option of prctl(2) by which a process becomes the parent of what its children leave behind."""
_one = threading.Lock()
"""Held for a request and its answer."""


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """A process, forked where the command is ``python -m MODULE ...`` of this interpreter."""
    own = list(command[:1]) == [sys.executable] and "-m" in command[1:3] and sys.platform == "linux"
    return (_Forked if own else subprocess.Popen)(command, **options)


def run(
    command: Sequence[str], input: str = "", timeout: float | None = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What it wrote and how it ended, as :func:`subprocess.run` tells of text."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with popen(command, text=True, **pipes, **options) as process:
        try:
            written = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, *written)


class _Forked(subprocess.Popen):
    """A child that another process forked for this one."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        cwd, env = rest[4:6]
        pipes = rest[9:15]  # for each stream what the child has and what is kept, or -1
        streams = pipes[0], pipes[3], pipes[5]
        module = list(args)[list(args).index("-m") + 1 :]
        request = [module, os.fspath(cwd or os.getcwd()), dict(os.environ if env is None else env)]
        fds = [own if given == -1 else given for own, given in enumerate(streams)]
        with _one, _parent_of_orphans():
            asked = _server()
            socket.send_fds(asked, [json.dumps(request).encode()], fds)
            self.pid = int(asked.recv(32))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@contextmanager
def _parent_of_orphans() -> Iterator[None]:
    """Meanwhile what the server's children leave behind are children of this process, which can wait for them."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def _server() -> socket.socket:
    """Where to ask for processes: of one that ends with this process."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    with theirs:
        command = [sys.executable, "-m", "tests.kit.forked", str(theirs.fileno())]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(_end, mine, server)
    return mine


def _end(asked: socket.socket, server: subprocess.Popen) -> None:
    asked.close()
    server.wait()


def _serve(asked: socket.socket) -> list[str]:
    """Fork for each request. Returns in every process that was asked for, with its surroundings: its module and
    arguments."""
    for module in HEAVY:
        import_module(module)
    gc.collect()
    gc.freeze()
    while True:
        request, fds, *_ = socket.recv_fds(asked, LARGEST, 3)
        if not request:
            os._exit(0)
        if between := os.fork():
            os.waitpid(between, 0)
            for fd in fds:
                os.close(fd)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        break
    gc.unfreeze()
    while os.getppid() == between:
        time.sleep(0.0005)
    asked.send(str(os.getpid()).encode())
    asked.close()
    for own, given in enumerate(fds):
        os.dup2(given, own)
        os.close(given)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)  # as they are of these files
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    command, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return command


if __name__ == "__main__":
    name, *sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.modules.pop(name, None)
    runpy.run_module(name, run_name="__main__", alter_sys=True)
