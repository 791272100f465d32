"""Calls into a library that cannot be interrupted, given up when they take too long.

Finding words in a text can take the square of its length, or far more, by the expressions of a model's tokenizer:
`\\s+$` needs minutes for a hundred thousand spaces. The thread of such a call is left behind, and until it ends no
other call begins: such texts cost as many cores as were given at the same time, at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class TookTooLong(Exception):  # noqa: N818 - becomes a PromptError, which says what to do
    """The call was left behind."""


class StillBusy(TookTooLong):
    """It was not made, because an earlier one that was left behind still runs."""


class Panicked(Exception):  # noqa: N818 - as above
    """The library gave up: its own panics are no :class:`Exception`, and would end the thread of whoever called."""


class Patience:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._left: list[threading.Thread] = []

    def run(self, call: Callable[[], T], seconds: float) -> T:
        """The result of ``call``, or what it raised; :class:`TookTooLong` after ``seconds``, or :class:`StillBusy`."""
        self._left = [thread for thread in self._left if thread.is_alive()]
        if self._left:
            raise StillBusy
        made: Future[T] = Future()

        def run() -> None:
            try:
                made.set_result(call())
            except BaseException as error:  # it is the caller's, in another thread
                made.set_exception(error)

        thread = threading.Thread(target=run, name="kvasir-tokenizer", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self._left.append(thread)
            raise TookTooLong
        error = made.exception()
        if error is not None and not isinstance(error, Exception):
            raise Panicked("the library gave up") from error
        return made.result()
