"""Errors of downloads, with the reason as a sentence."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator

from engine.base.errors import MOST, plain

_NO_NETWORK = (errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN)
_NUMBER = re.compile(r"^\[(?:Errno|WinError) -?\d+\] ")


class FetchFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """A file cannot be had; the message is a sentence for a person, and what it quotes of a server is plain text."""

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence, most=MOST))


class RefusedByServer(FetchFailed):
    """The server answered that it does not give the file; ``status`` is HTTP's."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def unreachable(way: str, error: BaseException, then: str) -> str:
    """Sentences that say that a server cannot be reached, and what to do ``then`` (a sentence, too).

    ``way``: :func:`engine.base.fetching.client.way_to`. Where no name is found or no network leads there, and no proxy
    is set, the machine is offline as far as a program can tell.
    """
    if ", through the proxy" not in way and any(_says_offline(each) for each in causes(error)):
        return f"You are offline: {way} cannot be reached. {then}"
    return f"{way} cannot be reached ({cause(error)}). {then}"


def cause(error: BaseException) -> str:
    """Reason that a connection broke, in the system's words and without its number."""
    said = (each.strerror for each in causes(error) if isinstance(each, OSError) and isinstance(each.strerror, str))
    return next(filter(None, said), "") or _NUMBER.sub("", str(error)) or type(error).__name__


def _says_offline(error: BaseException) -> bool:
    return isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in _NO_NETWORK)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came of, as libraries wrap it (urllib keeps it as ``reason``)."""
    seen: set[int] = set()
    after: list[object] = [error]
    while after:
        each = after.pop(0)
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            yield each
            after += [getattr(each, "reason", None), each.__cause__, each.__context__]
