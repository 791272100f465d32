"""Failures on the command line: one sentence on standard error, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import typer

from engine.base.errors import plain
from engine.base.terminal import say


class CommandFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """The command cannot go on; the message is a sentence for a person."""


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Say what went wrong and leave with exit code 1. ``KVASIR_DEBUG=1`` lets the traceback through."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except (typer.Exit, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if os.environ.get("KVASIR_DEBUG"):
            raise
        say(f"kvasir: {plain(sentence_of(error))}", error=True)  # a path may have lines
        sys.exit(1)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Let Ctrl-C end the process at once: raised inside an import, KeyboardInterrupt may be swallowed on its way."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handled(signal.SIGINT, signal.SIG_DFL) if ours else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def handled(number: signal.Signals, handler: Callable[[int, Any], object] | signal.Handlers) -> Iterator[None]:
    """Have ``handler`` answer a signal within the block; in the main thread, as Python answers them in no other."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def sentence_of(error: Exception) -> str:
    """The message of an error meant for people; anything else is a fault of Kvasir's and said to be one."""
    if type(error).__module__.startswith("engine."):
        return str(error)
    if isinstance(error, ImportError):
        return f"A part is missing ({error}). {_mend()}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" of {error.filename}" if error.filename else ""
        return f"The disk{where} is full. Free some room and try again."
    if isinstance(error, OSError) and error.filename:
        return (
            f"{error.filename} cannot be used ({error.strerror}). Check that it is there and that you may write to it."
        )
    if isinstance(error, OSError) and error.strerror:
        return f"The system refused to go on: {error.strerror}. Remove the cause and try again."
    said = " ".join(str(error).split())
    return f"Something failed that should not ({type(error).__name__}: {said}). Set KVASIR_DEBUG=1 to see where."


def _mend() -> str:
    """Say how to restore a missing part, depending on the installation."""
    from engine.base import installation

    if installation.pack() is not None:
        return "`kvasir gpu repair` downloads it again."
    return "Install Kvasir again." if installation.packaged() else "Install Kvasir again: pip install kvasir."
