"""Failures on the command line: one sentence on standard error, never a traceback."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import typer

from engine.base.collector import no_collection
from engine.base.errors import plain
from engine.base.terminal import say
from engine.services.failures import sentence_of


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
    """Let Ctrl-C end the process at once: raised inside an import, KeyboardInterrupt may be swallowed on its way.

    Modules stay: looking for garbage among them took a sixth of the engine's start.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with no_collection(), handled(signal.SIGINT, signal.SIG_DFL) if ours else contextlib.nullcontext():
        yield
        gc.freeze()


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
