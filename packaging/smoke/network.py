"""A network of this program's own, for a while: only a loopback, where its servers are met by what it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def only_loopback() -> Iterator[None]:
    """For this thread, and the threads and processes that it begins meanwhile. Needs root; raises OSError,
    subprocess.CalledProcessError."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _succeed(libc.unshare(_CLONE_NEWNET))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _succeed(libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def _succeed(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
